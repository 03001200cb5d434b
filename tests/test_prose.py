"""Every wording of every computed sentence, with a pair that produces it."""

from dataclasses import replace

import pytest

from kvprefetch import A100_PCIE, LLAMA3_8B, RTX4090, compare, prose
from kvprefetch.planner import sweep_columns
from kvprefetch.verify import Check

ONE_LAYER = replace(LLAMA3_8B, num_hidden_layers=1)


@pytest.mark.parametrize(
    ("model", "peak", "longest", "depth", "sentence"),
    [
        (
            LLAMA3_8B,
            1306,
            32768,
            1,
            "Prefetching one layer ahead pays most at 1306 tokens, where it cuts the step by 48.4 %; at 32768 tokens "
            "it saves 3.7 % (178.64 → 172.01 ms), because both policies then wait for the same link.",
        ),
        (
            LLAMA3_8B,
            1306,
            512,
            2,
            "Prefetching 2 layers ahead pays most at 1306 tokens, where it cuts the step by 48.4 %; at 512 tokens it "
            "saves 27.3 % (9.53 → 6.93 ms), hiding 97 % of the transfer behind compute.",
        ),
        (ONE_LAYER, 1306, 512, 1, "Prefetch cannot help: with one layer there is nothing to fetch ahead of."),
    ],
)
def test_the_answer(model, peak, longest, depth, sentence):
    comparisons = (compare(model, A100_PCIE, n, depth=depth) for n in (peak, longest))
    assert prose.answer(*comparisons) == sentence


@pytest.mark.parametrize(
    ("n_star", "contexts", "sentence"),
    [
        (
            1306,
            [512, 1024, 2048],
            "The link takes at least as long as the engine from 1306 tokens on; below, compute hides it. "
            "PCIe-bound among the swept contexts: 1 of 3.",
        ),
        (1306, [512], "from 1306 tokens on; below, compute hides it. PCIe-bound among the swept contexts: none."),
        (1306, [4096], "PCIe-bound among the swept contexts: all."),
        (1, [4096], "The link takes at least as long as the engine at every context. "),
    ],
)
def test_the_crossover(n_star, contexts, sentence):
    assert sentence in prose.crossover(n_star, sweep_columns(LLAMA3_8B, A100_PCIE, contexts))


@pytest.mark.parametrize(
    ("contexts", "sentence"),
    [
        ([1024], "The reduction is 42.6 % at 1024 tokens, the only context asked for."),
        (
            [512, 1024, 32768],
            "Among the swept contexts the reduction is largest, 42.6 % at 1024 tokens, and smallest, 3.7 % at 32768 "
            "tokens.",
        ),
    ],
)
def test_the_range_of_the_sweep(contexts, sentence):
    assert prose.sweep_range(sweep_columns(LLAMA3_8B, A100_PCIE, contexts)) == sentence


def test_the_cost_of_depth():
    one, two = (compare(LLAMA3_8B, A100_PCIE, 4096, depth=depth) for depth in (1, 2))
    assert prose.depth_cost(one, two) == (
        "From depth 1 to 2 the step at 4096 tokens changes by 0.00 ms and the KV blocks on the GPU grow by 16.8 MB: "
        "depth is a memory knob here, not a speed knob."
    )


def test_the_words_for_the_bound():
    assert prose.bound(compare(LLAMA3_8B, RTX4090, 1)) == "compute-bound"
    assert prose.bound(compare(LLAMA3_8B, RTX4090, 10**6)) == "PCIe-bound"


def test_one_token_is_no_plural():
    assert (prose.tokens(1), prose.tokens(2)) == ("1 token", "2 tokens")


def test_checks_that_hold_and_checks_that_fail():
    good, bad = Check("a = b", "1", "1", True), Check("c = d", "1", "2", False)
    assert prose.checks((good, good)).startswith("All 2 checks hold")
    assert prose.checks((good, bad)) == "1 of 2 checks fail: c = d."


def test_alt_texts_tell_the_charts_numbers():
    lines = sweep_columns(LLAMA3_8B, A100_PCIE, [512, 1306, 32768])
    peak = compare(LLAMA3_8B, A100_PCIE, 1306)
    assert "peaks at 48.4 % at 1306 tokens and ends at 3.7 %" in prose.latency_alt(lines, peak)
    assert "at 1306 tokens (PCIe-bound)" in prose.timeline_alt(peak)
    deep = [[compare(LLAMA3_8B, A100_PCIE, 1306, depth=depth) for depth in (1, 2)]]
    assert "from depth 1 to 2: at 1306 tokens from 7.06 to 7.06 ms and from 10.7 to 16.0 MB" in prose.depth_alt(deep)
