"""Every wording of every computed sentence, with a pair that produces it."""

from dataclasses import replace

import pytest
from stacks import FULL_62, INTERLEAVED_24, INTERLEAVED_62, SLIDING_62, WINDOWS_ALONE, stack

from kvprefetch import (
    A100_PCIE,
    LLAMA3_8B,
    RTX4090,
    HardwareProfile,
    Layer,
    ModelConfig,
    captions,
    compare,
    crossover_ctx,
    derivation,
    prose,
)
from kvprefetch.configs import FIRST_ORDER, Terms
from kvprefetch.effects import effects
from kvprefetch.planner import peak_ctx, sweep_columns
from kvprefetch.verify import Check, summary

FAST_LINK = HardwareProfile("fast link", 100, 1000)
ONE_LAYER = replace(LLAMA3_8B, num_hidden_layers=1)


FIRST_ALONE = ModelConfig(
    "first alone", hidden_size=8, vocab_size=10, layers=(Layer("full", 100, 200.0, 8), Layer("mlp", 100, 200.0, 0))
)


@pytest.mark.parametrize(
    ("model", "peak", "longest", "depth", "sentence"),
    [
        (
            LLAMA3_8B,
            1306,
            32768,
            1,
            "Prefetching one layer ahead pays most at 1306 tokens, where it cuts the step by 48.4 %; at 32768 tokens "
            "it saves 3.7 % (178.64 → 172.01 ms), because both policies then wait for the same link. With all KV on "
            "the GPU the engine alone would take 6.85 ms.",
        ),
        (
            LLAMA3_8B,
            1306,
            512,
            2,
            "Prefetching 2 layers ahead pays most at 1306 tokens, where it cuts the step by 48.4 %; at 512 tokens it "
            "saves 27.3 % (9.53 → 6.93 ms), hiding 97 % of the transfer behind compute. With all KV on the GPU the "
            "engine alone would take 6.85 ms.",
        ),
        (
            INTERLEAVED_62,
            1236,
            8192,
            1,
            "Prefetching one layer ahead pays most at 1236 tokens, where it cuts the step by 45.4 %; at 8192 tokens it "
            "saves 30.5 % (69.40 → 48.24 ms), hiding 48 % of the transfer behind compute. Keeping the sliding layers' "
            "windows on the GPU (436 MB) would make it 28.06 ms; with all KV there the engine alone would take "
            "25.11 ms.",
        ),
        (
            ONE_LAYER,
            1306,
            512,
            1,
            "Prefetch cannot help: no computation comes before a fetch that could hide it. With all KV on the "
            "GPU the engine alone would take 0.21 ms.",
        ),
        (FIRST_ALONE, 1306, 512, 1, "Prefetch cannot help: no computation comes before a fetch"),
    ],
)
def test_the_answer(model, peak, longest, depth, sentence):
    comparisons = [compare(model, A100_PCIE, n, depth=depth) for n in (peak, longest)]
    windows = compare(model, A100_PCIE, longest, depth=depth, terms=Terms(resident_windows=True))
    assert prose.answer(*comparisons, windows).startswith(sentence)


@pytest.mark.parametrize(
    ("n_star", "contexts", "sentence"),
    [
        (
            1306,
            [512, 1024, 2048],
            "The link takes at least as long as the engine from 1306 tokens on; below, the engine is busy longer. "
            "PCIe-bound among the swept contexts: 1 of 3.",
        ),
        (
            1306,
            [512],
            "from 1306 tokens on; below, the engine is busy longer. PCIe-bound among the swept contexts: none.",
        ),
        (1306, [4096], "PCIe-bound among the swept contexts: all."),
        (1, [4096], "The link takes at least as long as the engine at every context. "),
    ],
)
def test_the_crossover(n_star, contexts, sentence):
    assert sentence in prose.crossover(n_star, sweep_columns(LLAMA3_8B, A100_PCIE, contexts), LLAMA3_8B.layers)


@pytest.mark.parametrize(
    ("contexts", "sentence"),
    [
        ([1024], "The reduction is 42.6 % at 1024 tokens, the only context asked for."),
        ([10**6, 10**6 + 1], "The reduction is 0.1 % at every swept context."),
        (
            [512, 1024, 32768],
            "Among the swept contexts the reduction is largest, 42.6 % at 1024 tokens, and smallest, 3.7 % at 32768 "
            "tokens.",
        ),
    ],
)
def test_the_range_of_the_sweep(contexts, sentence):
    assert prose.sweep_range(sweep_columns(LLAMA3_8B, A100_PCIE, contexts)) == sentence


def at_depths(model, ctx_len, *depths):
    return [compare(model, A100_PCIE, ctx_len, depth=depth) for depth in depths]


def test_the_cost_of_depth():
    assert derivation.depth_cost(LLAMA3_8B, *at_depths(LLAMA3_8B, 4096, 1, 2)) == (
        "The closed form holds at every depth: in a stack of equal layers one buffer ahead already keeps the slower "
        "resource busy without a gap, and no number of further buffers makes it faster. From depth 1 to 2 the step at "
        "4096 tokens gets no shorter and the KV blocks on the GPU grow by 16.8 MB: "
        "depth is a memory knob here, not a speed knob."
    )
    assert derivation.depth_cost(INTERLEAVED_62, *at_depths(INTERLEAVED_62, 8192, 1, 2)) == (
        "From depth 1 to 2 the step at 8192 tokens gets 3.40 ms shorter and the KV blocks on the GPU grow by 67.1 MB: "
        "depth is a speed knob here."
    )


def test_depth_beyond_the_stack_costs_nothing():
    deepest = at_depths(LLAMA3_8B, 4096, 31, 40)
    assert derivation.depth_cost(LLAMA3_8B, *deepest).endswith(
        "gets no shorter and the KV blocks on the GPU stay as they are: there is nothing left to fetch ahead."
    )
    assert captions.depth_caption([deepest]).startswith("More depth changes neither")


def test_the_strongest_knob():
    deeper = at_depths(INTERLEAVED_62, 8192, 1, 2)
    resident = compare(INTERLEAVED_62, A100_PCIE, 8192, terms=Terms(resident_windows=True))
    assert (
        derivation.knobs(deeper) == "The strongest of these is depth 2: 3.40 ms shorter for 67.1 MB of GPU memory more."
    )
    assert derivation.knobs([*deeper, resident]) == (
        "The strongest of these is windows kept on the GPU: 20.18 ms shorter for 436.2 MB of GPU memory more."
    )
    assert derivation.knobs(at_depths(INTERLEAVED_62, 8192, 3, 4)).endswith(
        "what the link carries in all sets its pace."
    )
    assert derivation.knobs(at_depths(INTERLEAVED_62, 512, 1, 2)).endswith(
        "what the engine computes in all sets its pace."
    )
    assert derivation.knobs(at_depths(ONE_LAYER, 1306, 1, 2)) == "None of these shortens the step at this context."
    windows = stack("windows before one full layer", 5376, [SLIDING_62] * 3 + [FULL_62])
    one = compare(windows, A100_PCIE, 8192, depth=3)
    resident = compare(windows, A100_PCIE, 8192, terms=Terms(resident_windows=True))
    assert derivation.knobs([one, resident]).endswith("with 176.2 MB of GPU memory less.")


def test_the_caption_over_depth():
    assert captions.depth_caption([at_depths(LLAMA3_8B, 4096, 1, 2)]).startswith(
        "More depth leaves the step where it is"
    )
    assert captions.depth_caption([at_depths(INTERLEAVED_62, 8192, 1, 2)]).startswith("More depth shortens the step")


MOE = ModelConfig(
    "moe",
    hidden_size=8,
    vocab_size=10,
    layers=(Layer("moe", 10**6, 2e6, 64, experts=8, experts_per_token=2, expert_params=10**6, expert_bytes=2e6),) * 2,
)


@pytest.mark.parametrize(
    ("model", "weights", "cache"),
    [
        (
            LLAMA3_8B,
            "Here: 218 103 808 weights × 2 bytes = 436.21 MB, and 436.21 MB / 2039 GB/s = **0.2139 ms** a layer. All "
            "32 layers hold 6 979 321 856 weights and take 6.846 ms.",
            "Here: a layer's cache grows by 4 096 bytes a token. At 1024 tokens it is 4.19 MB, and 4.19 MB / 25 GB/s = "
            "**0.1678 ms** a layer.",
        ),
        (
            INTERLEAVED_24,
            "Here: 24 layers hold 3 025 797 120 weights. A step reads 6.052 GB, "
            "252.15 MB a layer, and 6.052 GB / 2039 GB/s = **2.968 ms**.",
            "Here, at 1024 tokens: 24 of 24 layers hold a cache, from 0.26 to 2.10 MB a layer and 28.31 MB in all, and "
            "28.31 MB / 25 GB/s = **1.132 ms**.",
        ),
        (
            MOE,
            "Here: 2 layers hold 18 000 000 weights, of which one token uses 6 000 000. A step reads 0.012 GB, 6.00 MB "
            "a layer, and 0.012 GB / 2039 GB/s = **0.006 ms**.",
            "Here: a layer's cache grows by 128 bytes a token. At 1024 tokens it is 0.13 MB, and 0.13 MB / 25 GB/s = "
            "**0.0052 ms** a layer.",
        ),
    ],
)
def test_weights_and_cache_with_the_models_numbers(model, weights, cache):
    comparison = compare(model, A100_PCIE, 1024)
    law, _, numbers = derivation.weights(model, A100_PCIE, comparison).replace("\u202f", " ").rpartition("Here: ")
    assert (law == derivation.DENSE_LAW, f"Here: {numbers}") == (model is LLAMA3_8B, weights)
    assert derivation.cache(model, A100_PCIE, comparison).replace("\u202f", " ") == cache


def test_a_link_that_is_never_the_bound():
    comparison = compare(WINDOWS_ALONE, FAST_LINK, 1024)
    assert "windows cap what the link carries" in derivation.summary(comparison, None)
    assert derivation.crossover_sums(WINDOWS_ALONE, FAST_LINK, None, 1).startswith(
        "Here: never. Every cache is a window"
    )
    assert prose.pace(None, comparison).startswith("By the sums the engine is the bound at every context; the gap")
    assert prose.pace(1, comparison).startswith("By the sums the link is the bound at every context; the gap")
    never = prose.crossover(None, sweep_columns(WINDOWS_ALONE, FAST_LINK, [512]), WINDOWS_ALONE.layers)
    assert never == "The link never takes as long as the engine: windows cap what it carries."


def test_a_link_that_never_catches_up_with_attentions_reads():
    hw, reads = replace(A100_PCIE, pcie_gb_s=2500), Terms(kv_read=True)
    for model in (LLAMA3_8B, INTERLEAVED_24):
        assert crossover_ctx(model, hw, terms=reads) is None
        assert prose.crossover(None, sweep_columns(model, hw, [512], terms=reads), model.layers) == (
            "The link never takes as long as the engine: the engine's time grows faster than the link's."
        )


def test_a_link_that_catches_up():
    comparison = compare(LLAMA3_8B, A100_PCIE, 1024)
    assert derivation.summary(comparison, 1306).endswith(
        "the link catches up at 1306 tokens, and everything else follows."
    )
    sums = "Here: at $n^*$ = **1306** the link needs 6.8472 ms and the engine 6.8458 ms."
    assert f"\n\n{sums} It scales with the weights" in derivation.crossover_sums(LLAMA3_8B, A100_PCIE, 1306, 1)
    assert "It scales" not in derivation.crossover_sums(MOE, A100_PCIE, 1306, 1)
    assert derivation.crossover_sums(INTERLEAVED_24, A100_PCIE, 2892, 1).startswith("Here: at $n^*$ = **2892**")
    assert prose.pace(1306, comparison) == (
        "By the sums the engine is the bound below 1306 tokens and the link from there on; the gap to on-demand is "
        "widest, in proportion, at 1024 tokens."
    )


def test_the_makespan_has_its_closed_form_in_a_stack_of_equal_layers_alone():
    equal, unlike = compare(LLAMA3_8B, A100_PCIE, 32768), compare(INTERLEAVED_24, A100_PCIE, 4096)
    assert (
        "Here, at 32768 tokens: 5.36871 + 31 × 5.36871 + 0.21393 = 172.013 ms. The prefetch step"
        in derivation.makespan(LLAMA3_8B, equal)
    )
    assert derivation.makespan(INTERLEAVED_24, unlike) == (
        "The prefetch step at 4096 tokens is **5.521 ms**, between the bounds 4.152 and 7.120 ms. The engine stalls "
        "for 2.553 ms of it, and prefetch hides 38.5 % of the transfer."
    )
    assert derivation.ondemand(unlike) == "Here, at 4096 tokens: 2.9679 + 4.1524 ms = **7.120 ms**."


def test_the_benefit_has_a_law_in_a_stack_of_equal_layers_alone():
    equal = derivation.benefit(LLAMA3_8B, compare(LLAMA3_8B, A100_PCIE, 1306), 1306)
    assert equal.startswith("### Why the benefit rises, peaks, and falls")
    assert equal.endswith("Here: (32 − 1) / (2 × 32) = 48.438 %, and the best whole context, 1306, reaches 48.433 %.")
    unlike = derivation.benefit(INTERLEAVED_24, compare(INTERLEAVED_24, A100_PCIE, 1510), 2892)
    assert unlike.startswith("### Where the benefit is largest")
    assert unlike.endswith("; the sums call it compute-bound, and the engine stalls there for 0.011 ms.")


def test_one_layer_has_no_benefit():
    alone = derivation.benefit(ONE_LAYER, compare(ONE_LAYER, A100_PCIE, 1306), 1306)
    assert alone.startswith("### Why there is no benefit") and alone.endswith("its fetch comes before all computation.")


def test_windows_alone_leave_nothing_to_fetch():
    at, kept = compare(WINDOWS_ALONE, A100_PCIE, 512), Terms(resident_windows=True)
    answer = prose.answer(at, at, compare(WINDOWS_ALONE, A100_PCIE, 512, terms=kept))
    assert "Keeping" not in answer and "With all KV on the GPU" in answer


def test_windows_that_never_fill_the_link_have_their_own_words():
    at_window = compare(WINDOWS_ALONE, FAST_LINK, 128)
    assert derivation.benefit(WINDOWS_ALONE, at_window, None).endswith("and so does every longer one.")
    assert "crossover" not in derivation.benefit(WINDOWS_ALONE, at_window, None)
    assert "bytes a token, up to its window of 128 tokens. At" in derivation.cache(WINDOWS_ALONE, FAST_LINK, at_window)


def test_a_stack_is_not_taken_for_uniform_because_its_windows_are_not_yet_full():
    below = compare(INTERLEAVED_24, A100_PCIE, 100)
    assert len(set(below.transfer)) == 1
    assert derivation.benefit(INTERLEAVED_24, below, 2892).startswith("### Where the benefit is largest")
    assert derivation.makespan(INTERLEAVED_24, below).startswith("The prefetch step at 100 tokens")


def test_question_inputs_scope_and_what_is_left_out():
    one = compare(LLAMA3_8B, A100_PCIE, 32768)
    many = compare(LLAMA3_8B, A100_PCIE, 32768, batch=4, depth=2)
    assert "(batch 4)" in prose.question("M", 4, 2, FIRST_ORDER) and "fetches 2 layers ahead while" in prose.question(
        "M", 4, 2, FIRST_ORDER
    )
    assert prose.inputs("M", "C").startswith("Everything follows from two files, that of M and that of C, ")
    assert prose.scope(one, FIRST_ORDER).startswith("One step decodes one token for one sequence: ")
    assert "for each of 4 sequences: " in prose.scope(many, FIRST_ORDER)
    assert "(17.18 GB at 32768 tokens)" in prose.scope(many, FIRST_ORDER)


@pytest.mark.parametrize(
    ("terms", "reads", "part", "rest"),
    [
        (FIRST_ORDER, "", "whole", ", and nothing else takes time"),
        (Terms(kv_read=True), " and reads the cache", "whole", ", and nothing else takes time"),
        (
            Terms(kv_read=True, lm_head=True, resident_tokens=1),
            " and reads the cache",
            "offloaded",
            ", and the terms of section 4 add what they say",
        ),
        (Terms(copy_latency_us=5), "", "whole", ", and the terms of section 4 add what they say"),
        (Terms(layer_overhead_us=5), "", "whole", ", and the terms of section 4 add what they say"),
    ],
)
def test_what_a_step_is_taken_to_do(terms, reads, part, rest):
    assert prose.scope(compare(LLAMA3_8B, A100_PCIE, 32768, terms=terms), terms) == (
        f"One step decodes one token for one sequence: the engine streams the weights that the step uses once{reads}, "
        f"the link carries every layer's {part} KV once (4.29 GB at 32768 tokens){rest}."
    )


def test_an_answer_says_so_where_nothing_crosses_the_link_at_the_longest_context():
    terms = replace(FIRST_ORDER, resident_tokens=40_000)
    peak = compare(LLAMA3_8B, A100_PCIE, peak_ctx(LLAMA3_8B, A100_PCIE, terms=terms), terms=terms)
    longest = compare(LLAMA3_8B, A100_PCIE, 32768, terms=terms)
    assert prose.answer(peak, longest, longest) == (
        "Prefetching one layer ahead pays most at 41306 tokens, where it cuts the step by 48.4 %; at 32768 tokens "
        "nothing crosses the link. With all KV on the GPU the engine alone would take 6.85 ms."
    )


@pytest.mark.parametrize(
    ("hw", "contexts", "sentence"),
    [
        (
            A100_PCIE,
            [512],
            "With the refined terms together the crossover moves from 1306 tokens to 1322 tokens; they move the "
            "prefetch step at 512 tokens from 6.93 to 7.48 ms (+7.9 %) and the step with all KV on the GPU at 512 "
            "tokens from 6.85 to 7.39 ms (+8.0 %).",
        ),
        (
            replace(A100_PCIE, weight_efficiency=0.5),
            [512, 8192],
            "With the refined terms together the crossover moves from 1306 tokens to 2644 tokens; they move the "
            "prefetch step at 512 tokens from 6.93 to 14.84 ms (+114.1 %), the prefetch step at 8192 tokens from 43.16 "
            "to 44.42 ms (+2.9 %) and the step with all KV on the GPU at 8192 tokens from 6.85 to 15.25 ms (+122.7 %).",
        ),
        (
            replace(A100_PCIE, pcie_gb_s=2500),
            [8192],
            "With the refined terms together the crossover of 130574 tokens is gone: the link is never the bound; they "
            "move the prefetch step at 8192 tokens from 6.86 to 7.90 ms (+15.2 %) and the step with all KV on the GPU "
            "at 8192 tokens from 6.85 to 7.89 ms (+15.2 %).",
        ),
    ],
)
def test_how_far_the_refined_terms_move_first_order(hw, contexts, sentence):
    assert prose.first_order(effects(LLAMA3_8B, hw, contexts)) == sentence


@pytest.mark.parametrize(
    ("model", "hw", "terms", "sentence"),
    [
        (
            LLAMA3_8B,
            A100_PCIE,
            Terms(kv_read=True, lm_head=True),
            "Here, at 8192 tokens, first order and then with them: the engine computes 6.846 and 7.888 ms, the link "
            "carries 42.950 and 42.950 ms, the step takes 49.796 and 50.837 ms on demand, 43.164 and **43.695 ms** "
            "with prefetch. The crossover moves from 1306 tokens to 1322 tokens.",
        ),
        (LLAMA3_8B, A100_PCIE, Terms(lm_head=True), " The crossover stays at 1306 tokens."),
        (LLAMA3_8B, replace(A100_PCIE, pcie_gb_s=2500), Terms(kv_read=True), " is gone: the link is never the bound."),
        (WINDOWS_ALONE, FAST_LINK, Terms(kv_read=True), " The crossover stays away."),
        (
            *(WINDOWS_ALONE, FAST_LINK, Terms(copy_latency_us=10_000)),
            " The crossover is 1 token, where there was none.",
        ),
    ],
)
def test_what_the_terms_in_force_make_of_first_order(model, hw, terms, sentence):
    steps = (compare(model, hw, 8192), compare(model, hw, 8192, terms=terms))
    said = derivation.in_force(*steps, crossover_ctx(model, hw), crossover_ctx(model, hw, terms=terms))
    assert said.endswith(sentence) and said.startswith("Here, at 8192 tokens, first order and then with them: ")


def test_the_words_for_the_bound():
    assert prose.bound(compare(LLAMA3_8B, RTX4090, 1)) == "compute-bound"
    assert prose.bound(compare(LLAMA3_8B, RTX4090, 10**6)) == "PCIe-bound"


def test_checks_that_hold_and_checks_that_fail():
    good, bad = Check("a = b", "1", "1", True), Check("c = d", "1", "2", False)
    assert summary((good, good)).startswith("All 2 checks hold")
    assert summary((good, bad)) == "1 of 2 checks fail: c = d."


def test_alt_texts_tell_the_charts_numbers():
    lines = sweep_columns(LLAMA3_8B, A100_PCIE, [512, 1306, 32768])
    peak = compare(LLAMA3_8B, A100_PCIE, 1306)
    assert "peaks at 48.4 % at 1306 tokens and ends at 3.7 %" in captions.latency_alt(lines, peak)
    assert "at 1306 tokens (PCIe-bound)" in captions.timeline_alt(peak)
    deep = [[compare(LLAMA3_8B, A100_PCIE, 1306, depth=depth) for depth in (1, 2)]]
    assert "from depth 1 to 2: at 1306 tokens from 7.06 to 7.06 ms and from 10.7 to 16.0 MB" in captions.depth_alt(deep)
