"""Every wording of every sentence on what it would take, how sure it is and what else could be done."""

from dataclasses import replace

import pytest
from stacks import INTERLEAVED_62, WINDOWS_ALONE

from kvprefetch import A100_PCIE, LLAMA2_13B, LLAMA3_8B, RTX4090, HardwareProfile, answers, crossover_ctx
from kvprefetch.configs import Terms
from kvprefetch.outlook import make_outlook
from kvprefetch.plan import Fit, make_plan

NO_CAPACITY = replace(A100_PCIE, hbm_capacity_gb=None)
NO_LIMIT = replace(LLAMA3_8B, max_position_embeddings=None)
WITH_HOST = {"host_gb_s": 40, "host_efficiency": 0.25}
SLOW_GPU = HardwareProfile("slow GPU", 0.1, 1e5)
KEPT = Terms(resident_windows=True)
LATENCY = Terms(copy_latency_us=300)  # a layer computes 213.93 µs


def made(model, hw, ctx_len, target_ms=50, generate=512, **of_plan):
    plan = make_plan(model, hw, ctx_len, **of_plan)
    return plan, make_outlook(model, hw, plan, target_ms, generate)


@pytest.mark.parametrize(("ctx_len", "text"), [(None, "any"), (0, "none"), (1, "1"), (131_072, "131072")])
def test_the_longest_context_in_a_table(ctx_len, text):
    assert answers.reach_text(ctx_len) == text


@pytest.mark.parametrize(("crossover", "text"), [(None, "never"), (1, "1"), (131_072, "131072")])
def test_a_crossover_in_a_table(crossover, text):
    assert answers.crossover_text(crossover) == text


@pytest.mark.parametrize(
    ("model", "hw", "target_ms", "sentence"),
    [
        (
            NO_LIMIT,
            A100_PCIE,
            50,
            "A step of at most 50 ms is kept up to 467300 tokens with all KV on the GPU (stopped by GPU memory), up "
            "to 8231 tokens on demand (stopped by the target), and up to 9495 tokens with prefetch (stopped by the "
            "target).",
        ),
        (
            LLAMA3_8B,
            replace(A100_PCIE, host_capacity_gb=1),
            12.5,
            "A step of at most 12.5 ms is kept up to 8192 tokens with all KV on the GPU (stopped by the model's own "
            "limit), up to 1078 tokens on demand (stopped by the target), and up to 2343 tokens with prefetch (stopped "
            "by the target).",
        ),
        (
            LLAMA3_8B,
            replace(A100_PCIE, host_capacity_gb=0.1),
            50,
            "A step of at most 50 ms is kept up to 8192 tokens with all KV on the GPU (stopped by the model's own "
            "limit), up to 762 tokens on demand (stopped by host memory), and up to 762 tokens with prefetch "
            "(stopped by host memory).",
        ),
        (
            WINDOWS_ALONE,
            NO_CAPACITY,
            50,
            "A step of at most 50 ms is kept at every context with all KV on the GPU, at every context on demand, "
            "and at every context with prefetch.",
        ),
        (
            LLAMA3_8B,
            A100_PCIE,
            1,
            "A step of at most 1 ms is kept at no context with all KV on the GPU (stopped by the target), at no "
            "context on demand (stopped by the target), and at no context with prefetch (stopped by the target).",
        ),
    ],
)
def test_how_far_a_target_reaches(model, hw, target_ms, sentence):
    assert answers.target(made(model, hw, 100, target_ms)[1]) == sentence


@pytest.mark.parametrize(
    ("model", "ctx_len", "terms", "sentence"),
    [
        (
            INTERLEAVED_62,
            2048,
            Terms(),
            "At 2048 tokens the link would have to carry 24.06 GB/s for its work to take no longer than the engine's, "
            "and 41.43 GB/s for a prefetched step to wait for its first fetch alone; this card's carries 25 GB/s.",
        ),
        (
            LLAMA3_8B,
            1,
            Terms(),
            "At 1 token the link would have to carry 0.02 GB/s for its work to take no longer than the engine's, and "
            "0.02 GB/s for a prefetched step to wait for its first fetch alone; this card's carries 25 GB/s.",
        ),
        (WINDOWS_ALONE, 512, KEPT, "At 512 tokens nothing crosses the link, so any link will do."),
        (
            LLAMA3_8B,
            8192,
            LATENCY,
            "At 8192 tokens no link is fast enough: the copies' fixed latencies alone take as long as the engine.",
        ),
    ],
)
def test_which_link_it_would_take(model, ctx_len, terms, sentence):
    assert answers.links(*made(model, A100_PCIE, ctx_len, terms=terms), A100_PCIE) == sentence


@pytest.mark.parametrize(
    ("model", "hw", "ctx_len", "sentence"),
    [
        (LLAMA3_8B, A100_PCIE, 512, "At 512 tokens the link takes at least as long as the engine from batch 3 on."),
        (LLAMA3_8B, A100_PCIE, 1306, "At 1306 tokens the link takes at least as long as the engine with any batch."),
        (WINDOWS_ALONE, SLOW_GPU, 1, "At 1 token no batch makes the link the bound."),
    ],
)
def test_from_which_batch_on_the_link_is_the_bound(model, hw, ctx_len, sentence):
    assert answers.bound_batch(*made(model, hw, ctx_len)) == sentence


@pytest.mark.parametrize(
    ("model", "hw", "ctx_len", "terms", "sizes"),
    [
        (LLAMA3_8B, A100_PCIE, 512, Terms(), "171 MB; it must carry 67.1 MB in each step"),
        (LLAMA3_8B, A100_PCIE, 8192, Terms(), "171 MB; it must carry 1.07 GB in each step"),
        (LLAMA3_8B, replace(A100_PCIE, pcie_gb_s=150), 8192, Terms(), "1.03 GB; it must carry 1.07 GB in each step"),
        (WINDOWS_ALONE, A100_PCIE, 512, KEPT, "12.4 MB; it need not carry any"),
    ],
)
def test_how_much_of_the_cache_a_step_can_hide(model, hw, ctx_len, terms, sizes):
    said = answers.hideable(*made(model, hw, ctx_len, terms=terms))
    assert said == f"While the engine computes, the link can carry {sizes}."


@pytest.mark.parametrize(
    ("model", "hw", "ctx_len", "terms", "sentence"),
    [
        (
            LLAMA3_8B,
            A100_PCIE,
            8192,
            Terms(),
            "With the cache as it is, most tokens a second are 8326: batch 57, all KV on the GPU. Offloaded, the link "
            "lets no batch decode more than 23.28.",
        ),
        (
            LLAMA3_8B,
            A100_PCIE,
            500_000,
            Terms(),
            "With the cache as it is, most tokens a second are 0.3815: batch 14, prefetch. Offloaded, the link lets no "
            "batch decode more than 0.3815.",
        ),
        (
            LLAMA3_8B,
            A100_PCIE,
            8192,
            Terms(resident_tokens=8192),
            "With the cache as it is, most tokens a second are 8326: batch 57, all KV on the GPU.",
        ),
        (LLAMA2_13B, RTX4090, 512, Terms(), "No batch fits."),
        (LLAMA3_8B, replace(A100_PCIE, host_capacity_gb=64), 500_000, Terms(), "No batch fits."),
        (LLAMA3_8B, NO_CAPACITY, 512, Terms(), "Which batches fit is not known."),
        (LLAMA3_8B, replace(NO_CAPACITY, host_capacity_gb=64), 512, Terms(), "Which batches fit is not known."),
    ],
)
def test_which_batch_decodes_most_tokens_a_second(model, hw, ctx_len, terms, sentence):
    assert answers.throughput(*made(model, hw, ctx_len, terms=terms)) == sentence


def test_which_batches_fit_a_card_of_unknown_capacity_is_not_known_where_the_host_does_not_hold_the_one_asked_for():
    plan, outlook = made(LLAMA3_8B, replace(NO_CAPACITY, host_capacity_gb=64), 8192, batch=60)
    assert plan.fit is Fit.HOST  # 59 sequences would fit it
    assert answers.throughput(plan, outlook) == "Which batches fit is not known."


@pytest.mark.parametrize(
    ("model", "hw", "ctx_len", "generate", "of_plan", "sentence"),
    [
        (
            *(LLAMA3_8B, A100_PCIE, 8192, 512, {}),
            "To generate 512 tokens from 8192 tokens on takes 3.51 s (steps of 6.85 to 6.85 ms, 146.1 tokens a second) "
            "with all KV on the GPU; offloaded, 22.79 s (steps of 43.16 to 45.84 ms, 22.47 tokens a second) with "
            "prefetch, and 26.18 s on demand.",
        ),
        (
            *(LLAMA3_8B, A100_PCIE, 500_000, 1, {"batch": 2}),
            "To generate 1 token from 500000 tokens on takes 5.24 s (steps of 5243.1 to 5243.1 ms, 0.3815 tokens a "
            "second) with prefetch, and 5.25 s on demand.",
        ),
        (
            *(LLAMA3_8B, NO_CAPACITY, 8192, 512, {}),
            "To generate 512 tokens from 8192 tokens on takes 22.79 s (steps of 43.16 to 45.84 ms, 22.47 tokens a "
            "second) with prefetch, and 26.18 s on demand.",
        ),
        (
            *(LLAMA3_8B, A100_PCIE, 8192, 512, {"terms": Terms(resident_tokens=10**4, kv_read=True)}),
            "To generate 512 tokens from 8192 tokens on takes 3.78 s (steps of 7.37 to 7.41 ms, 135.3 tokens a "
            "second).",
        ),
        (
            *(LLAMA3_8B, A100_PCIE, 500_000, 512, {"terms": Terms(resident_tokens=10**6)}),
            "To generate 512 tokens from 500000 tokens on would take, were there room, 3.51 s (steps of 6.85 to 6.85 "
            "ms, 146.1 tokens a second).",
        ),
        (
            *(LLAMA3_8B, A100_PCIE, 10**7, 512, {}),
            "To generate 512 tokens from 10000000 tokens on would take, were there room, 26844.34 s (steps of "
            "52\u202f429 to 52\u202f432 ms, 0.01907 tokens a second) with prefetch, and 26847.74 s on demand.",
        ),
        (
            *(LLAMA3_8B, replace(A100_PCIE, host_capacity_gb=64), 500_000, 512, {}),
            "To generate 512 tokens from 500000 tokens on would take, were there room, 1342.97 s (steps of 2621.7 to "
            "2624.3 ms, 0.3812 tokens a second) with prefetch, and 1346.37 s on demand.",
        ),
        (
            *(LLAMA2_13B, RTX4090, 4096, 512, {"depth": 3}),
            "To generate 512 tokens from 4096 tokens on would take, were there room, 73.33 s (steps of 134.85 to "
            "151.59 ms, 6.982 tokens a second) with prefetch, and 85.90 s on demand.",
        ),
    ],
)
def test_what_a_generation_takes(model, hw, ctx_len, generate, of_plan, sentence):
    assert answers.generated(*made(model, hw, ctx_len, generate=generate, **of_plan)) == sentence


@pytest.mark.parametrize(
    ("model", "ctx_len", "sentence"),
    [
        (
            LLAMA3_8B,
            8192,
            "Now a crossover of 1306 tokens and a step of 43.16 ms; with an HBM rate 20 % lower or higher, 1633 tokens "
            "or 1089 tokens and 43.22 or 43.13 ms; with a link rate 20 % lower or higher, 1045 tokens or 1567 tokens "
            "and 53.90 or 36.01 ms.",
        ),
        (
            WINDOWS_ALONE,
            512,
            "Now no crossover and a step of 0.51 ms; with an HBM rate 20 % lower or higher, none or none and 0.63 or "
            "0.42 ms; with a link rate 20 % lower or higher, none or none and 0.51 or 0.50 ms.",
        ),
    ],
)
def test_which_rate_moves_crossover_and_step(model, ctx_len, sentence):
    assert answers.sensitivity(*made(model, A100_PCIE, ctx_len), crossover_ctx(model, A100_PCIE)) == sentence


def test_where_the_maps_lines_come_from():
    assert answers.link_sources() == (
        "What prefetch saves, over context and link rate. Lines: this card's link, and PCIe 3 x16 12 GB/s (measured: "
        "github.com/ZaidQureshi/bam issue 54, into a V100); PCIe 4 x16 25 GB/s (measured: github.com/ZaidQureshi/bam "
        "issue 54, into an A100); PCIe 5 x16 56.35 GB/s (measured: github.com/tinygrad/open-gpu-kernel-modules issue "
        "29, into RTX 5090 cards); PCIe 6 x16 111 GB/s (estimated: 0.88 of the nominal 126 GB/s, the share that an "
        "H100 reaches of PCIe 5's 63); NVLink-C2C 346 GB/s (measured: github.com/NVIDIA/nvbandwidth issue 23, into a "
        "GH200; nominal 450 each way)."
    )


@pytest.mark.parametrize(
    ("model", "hw", "ctx_len", "terms", "sentence"),
    [
        (
            *(LLAMA3_8B, A100_PCIE, 8192, Terms()),
            "At 8192 tokens nothing beats keeping the cache as it is: all KV on the GPU, 6.85 ms a step.",
        ),
        (
            *(LLAMA3_8B, A100_PCIE, 8192, Terms(kv_read=True)),
            "At 8192 tokens the fastest way that fits is: 4-bit cache on the GPU, 6.99 ms a step.",
        ),
        (
            *(LLAMA3_8B, A100_PCIE, 8192, Terms(kv_read=True, kv_dtype="q4_0")),
            "At 8192 tokens nothing beats keeping the cache as it is: all KV on the GPU, 6.99 ms a step.",
        ),
        (  # a smaller cache is faster, but not to the hundredth
            *(LLAMA3_8B, A100_PCIE, 1, Terms(kv_read=True)),
            "At 1 token nothing beats keeping the cache as it is: all KV on the GPU, 6.85 ms a step.",
        ),
        (
            *(LLAMA3_8B, NO_CAPACITY, 8192, Terms()),
            "At 8192 tokens the fastest way looked at is: prefetch, 4-bit cache, 12.29 ms a step; what fits is not "
            "known.",
        ),
        (
            *(LLAMA3_8B, A100_PCIE, 500_000, Terms()),
            "At 500000 tokens the fastest way that fits is: 8-bit cache on the GPU, 6.85 ms a step.",
        ),
        (
            *(LLAMA2_13B, RTX4090, 4096, Terms()),
            "At 4096 tokens the fastest way that fits is: weights streamed, 6.53 GB of them on the host, 261.78 ms a "
            "step.",
        ),
        (LLAMA3_8B, A100_PCIE, 10**8, Terms(), "At 100000000 tokens no way to serve a step fits."),
    ],
)
def test_which_way_is_fastest(model, hw, ctx_len, terms, sentence):
    assert answers.ranking(make_plan(model, hw, ctx_len, terms=terms)) == sentence


NOT_KNOWN = "What fits is not known, so keeping all KV on the GPU and streaming weights are left out."
ALL_FITS = "All of it fits, so streaming weights is left out."
NOT_ALL_FITS = "Ways that do not fit on the GPU, such as keeping all KV there, are left out."
NOR_ON_THE_HOST = "Ways that do not fit on the GPU or in the host's memory, such as keeping all KV there, are left out."
NO_WINDOW = "No layer has a window that could stay on the GPU alone."
NO_HOST = (
    "Attention on the host is left out: the card's file does not say how fast the host reads its memory, and what "
    "share of that attention reaches."
)


@pytest.mark.parametrize(
    ("model", "hw", "ctx_len", "sentences"),
    [
        (LLAMA3_8B, A100_PCIE, 8192, (ALL_FITS, NO_WINDOW, NO_HOST)),
        (LLAMA3_8B, A100_PCIE, 500_000, (NOT_ALL_FITS, NO_WINDOW, NO_HOST)),
        (LLAMA2_13B, RTX4090, 512, (NOT_ALL_FITS, NO_WINDOW, NO_HOST)),
        (LLAMA3_8B, replace(A100_PCIE, host_capacity_gb=66), 500_000, (NOR_ON_THE_HOST, NO_WINDOW, NO_HOST)),
        (LLAMA3_8B, replace(A100_PCIE, host_capacity_gb=64), 500_000, (NOR_ON_THE_HOST, NO_WINDOW, NO_HOST)),
        (LLAMA3_8B, replace(A100_PCIE, host_capacity_gb=64), 8192, (ALL_FITS, NO_WINDOW, NO_HOST)),
        (LLAMA3_8B, replace(NO_CAPACITY, host_capacity_gb=64), 8192, (NOT_KNOWN, NO_WINDOW, NO_HOST)),
        (LLAMA3_8B, NO_CAPACITY, 8192, (NOT_KNOWN, NO_WINDOW, NO_HOST)),
        (LLAMA3_8B, replace(A100_PCIE, host_gb_s=40), 8192, (ALL_FITS, NO_WINDOW, NO_HOST)),
        (LLAMA3_8B, replace(A100_PCIE, host_efficiency=0.25), 8192, (ALL_FITS, NO_WINDOW, NO_HOST)),
        (LLAMA3_8B, replace(A100_PCIE, **WITH_HOST), 8192, (ALL_FITS, NO_WINDOW)),
        (INTERLEAVED_62, replace(NO_CAPACITY, **WITH_HOST), 8192, (NOT_KNOWN,)),
    ],
)
def test_which_ways_are_left_out(model, hw, ctx_len, sentences):
    assert answers.left_out(make_plan(model, hw, ctx_len), model, hw) == " ".join(sentences)


def test_what_fits_a_card_of_unknown_capacity_is_not_known_where_the_host_is_too_small():
    hw = replace(NO_CAPACITY, host_capacity_gb=1)
    plan = make_plan(LLAMA3_8B, hw, 8192)
    assert plan.fit is Fit.HOST
    assert answers.left_out(plan, LLAMA3_8B, hw).startswith("What fits")
    assert "that fits" not in answers.ranking(plan)


def test_what_first_order_leaves_out_of_a_resident_step_is_said_until_it_is_counted():
    plan = make_plan(LLAMA3_8B, A100_PCIE, 8192)
    assert answers.reads_left_out(plan, LLAMA3_8B, A100_PCIE) == (
        "These figures leave attention's own read of the cache out. With it, the LM head and what the card's file "
        "states, a step at 8192 tokens takes 7.89 ms with all KV on the GPU: TERMS=refined counts them."
    )
    counted = make_plan(LLAMA3_8B, A100_PCIE, 8192, terms=Terms(kv_read=True))
    assert answers.reads_left_out(counted, LLAMA3_8B, A100_PCIE) == ""
