"""Every wording of every sentence on what it would take, how sure it is and what else could be done."""

from dataclasses import replace

import pytest
from stacks import INTERLEAVED_62, WINDOWS_ALONE

from kvprefetch import A100_PCIE, LLAMA2_13B, LLAMA3_8B, RTX4090, HardwareProfile, answers, crossover_ctx
from kvprefetch.configs import Terms
from kvprefetch.outlook import make_outlook
from kvprefetch.plan import make_plan

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
            "Most tokens a second: 8326.2, with batch 57 (all KV on the GPU). Offloaded, no batch decodes more than "
            "23.28 tokens a second: the link carries no more.",
        ),
        (
            LLAMA3_8B,
            A100_PCIE,
            500_000,
            Terms(),
            "Most tokens a second: 0.4, with batch 14 (prefetch). Offloaded, no batch decodes more than 0.38 tokens a "
            "second: the link carries no more.",
        ),
        (
            LLAMA3_8B,
            A100_PCIE,
            8192,
            Terms(resident_tokens=8192),
            "Most tokens a second: 8326.2, with batch 57 (all KV on the GPU).",
        ),
        (LLAMA2_13B, RTX4090, 512, Terms(), "No batch is known to fit, so there is no rate to state."),
        (LLAMA3_8B, NO_CAPACITY, 512, Terms(), "No batch is known to fit, so there is no rate to state."),
    ],
)
def test_which_batch_decodes_most_tokens_a_second(model, hw, ctx_len, terms, sentence):
    assert answers.throughput(made(model, hw, ctx_len, terms=terms)[1]) == sentence


@pytest.mark.parametrize(
    ("ctx_len", "generate", "batch", "sentence"),
    [
        (
            8192,
            512,
            1,
            "To generate 512 tokens from 8192 tokens on, offloaded, takes 22.79 s with prefetch and 26.18 s on demand. "
            "The first step takes 43.16 ms, the last 45.84 ms with prefetch, 22.47 tokens a second on average.",
        ),
        (
            500_000,
            1,
            2,
            "To generate 1 token from 500000 tokens on, offloaded, takes 5.24 s with prefetch and 5.25 s on demand. "
            "The first step takes 5\u202f243 ms, the last 5\u202f243 ms with prefetch, 0.38 tokens a second on "
            "average.",
        ),
    ],
)
def test_what_a_generation_takes(ctx_len, generate, batch, sentence):
    assert answers.generated(*made(LLAMA3_8B, A100_PCIE, ctx_len, generate=generate, batch=batch)) == sentence


@pytest.mark.parametrize(
    ("model", "ctx_len", "sentence"),
    [
        (
            LLAMA3_8B,
            8192,
            "From 1306 tokens and 43.16 ms: an HBM rate 20 % lower or higher makes the crossover 1633 tokens or 1089 "
            "tokens, and the step 43.22 or 43.13 ms; a link rate 20 % lower or higher makes the crossover 1045 tokens "
            "or 1567 tokens, and the step 53.90 or 36.01 ms.",
        ),
        (
            WINDOWS_ALONE,
            512,
            "From never and 0.51 ms: an HBM rate 20 % lower or higher makes the crossover never or never, and the step "
            "0.63 or 0.42 ms; a link rate 20 % lower or higher makes the crossover never or never, and the step 0.51 "
            "or 0.50 ms.",
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
    ("model", "hw", "ctx_len", "sentence"),
    [
        (
            LLAMA3_8B,
            A100_PCIE,
            8192,
            "At 8192 tokens nothing beats keeping the cache where it is: all KV on the GPU, 6.85 ms a step.",
        ),
        (
            LLAMA3_8B,
            A100_PCIE,
            500_000,
            "At 500000 tokens the fastest way that fits is: 8-bit cache on the GPU, 6.85 ms a step.",
        ),
        (
            LLAMA2_13B,
            RTX4090,
            4096,
            "At 4096 tokens the fastest way that fits is: weights streamed, 6.53 GB of them on the host, 261.8 ms a "
            "step.",
        ),
        (LLAMA3_8B, A100_PCIE, 10**8, "At 100000000 tokens no way to serve a step fits."),
    ],
)
def test_which_way_is_fastest(model, hw, ctx_len, sentence):
    assert answers.ranking(make_plan(model, hw, ctx_len)) == sentence


NOT_KNOWN = "What fits is not known, so keeping all KV on the GPU and streaming weights are left out."
ALL_FITS = "All of it fits, so streaming weights is left out."
NOT_ALL_FITS = "Ways that do not fit on the GPU, such as keeping all KV there, are left out."
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
        (LLAMA3_8B, NO_CAPACITY, 8192, (NOT_KNOWN, NO_WINDOW, NO_HOST)),
        (LLAMA3_8B, replace(A100_PCIE, host_gb_s=40), 8192, (ALL_FITS, NO_WINDOW, NO_HOST)),
        (LLAMA3_8B, replace(A100_PCIE, host_efficiency=0.25), 8192, (ALL_FITS, NO_WINDOW, NO_HOST)),
        (LLAMA3_8B, replace(A100_PCIE, **WITH_HOST), 8192, (ALL_FITS, NO_WINDOW)),
        (INTERLEAVED_62, replace(NO_CAPACITY, **WITH_HOST), 8192, (NOT_KNOWN,)),
    ],
)
def test_which_ways_are_left_out(model, hw, ctx_len, sentences):
    assert answers.left_out(make_plan(model, hw, ctx_len), model, hw) == " ".join(sentences)
