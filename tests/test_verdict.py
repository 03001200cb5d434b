"""Every sentence of a verdict, with a pair that produces it."""

import re
from dataclasses import replace

import pytest
from stacks import INTERLEAVED_62, WINDOWS_ALONE

from kvprefetch import A100_PCIE, LLAMA2_13B, LLAMA3_8B, RTX4090, HardwareProfile, Layer, ModelConfig, verdict
from kvprefetch.configs import FIRST_ORDER, Terms
from kvprefetch.plan import Choice, make_plan

NO_CAPACITY = replace(A100_PCIE, hbm_capacity_gb=None)
SMALL_HOST = replace(A100_PCIE, host_capacity_gb=64)
ATTENTION = Layer("full", 10**9, 2e9, 4096)
RECURRENT = Layer("mamba", 10**9, 2e9, 0, state_bytes=1e8)
HYBRID = ModelConfig("hybrid", hidden_size=8, vocab_size=10, layers=(RECURRENT, ATTENTION) * 2)
ONE_LAYER = ModelConfig("one layer", hidden_size=8, vocab_size=10, layers=(ATTENTION,))
NO_CACHE = ModelConfig("no cache", hidden_size=8, vocab_size=10, layers=(replace(RECURRENT, state_bytes=0.0),))
FAT, THIN = Layer("fat", 1, 2.0, 10**7, window=1000), Layer("thin", 1, 2.0, 10**5)
FAT_AND_THIN = ModelConfig("fat and thin", hidden_size=1, vocab_size=1, layers=(FAT, THIN, THIN, THIN))
SMALL_CARD = HardwareProfile("small", 1000, 25, 10)
WINDOWED = Terms(resident_tokens=480_000)


def capacity(hw, gigabytes):
    return replace(hw, hbm_capacity_gb=gigabytes)


def sentences(model, hw, ctx_len, choice=Choice.ASKED, depth=1, terms=FIRST_ORDER, **changed):
    plan = make_plan(model, hw, ctx_len, choice, depth=depth, terms=terms, **changed)
    return verdict.verdict(plan, model, "the model", "the card")


@pytest.mark.parametrize(
    ("model", "hw", "ctx_len", "choice", "terms", "sentence"),
    [
        (
            *(LLAMA3_8B, NO_CAPACITY, 8192, Choice.LIMIT, FIRST_ORDER),
            "Whether the model fits the card is not known: its file states no hbm_capacity_gb.",
        ),
        (
            *(LLAMA2_13B, RTX4090, 4096, Choice.LIMIT, FIRST_ORDER),
            "the model does not fit the card: its weights alone take 26.03 GB, more than the 23.18 GB that the card "
            "offers after a reserve of 10 %. Moving the cache to host memory is not enough; the latencies here leave "
            "that aside.",
        ),
        (
            *(LLAMA3_8B, A100_PCIE, 8192, Choice.LIMIT, FIRST_ORDER),
            "No offload is needed. At 8192 tokens, the longest the model was made for, weights and cache take 17.13 GB "
            "of the 77.31 GB that the card offers after a reserve of 10 %; the cache stays on the GPU up to 467300 "
            "tokens, and at this one up to batch 57.",
        ),
        (
            *(WINDOWS_ALONE, A100_PCIE, 777, Choice.LONGEST, FIRST_ORDER),
            "No offload is needed. At 777 tokens, the longest swept, weights and cache take 1.02 GB of the 77.31 GB "
            "that the card offers after a reserve of 10 %; the cache stays on the GPU at every context, and at this "
            "one up to batch 72\N{NARROW NO-BREAK SPACE}755.",
        ),
        (
            *(LLAMA3_8B, A100_PCIE, 467_301, Choice.FIRST, FIRST_ORDER),
            "The cache must be offloaded from 467301 tokens on; up to 467300 tokens it stays on the GPU, where the "
            "weights leave 61.25 GB of the 77.31 GB that the card offers after a reserve of 10 %.",
        ),
        (
            *(LLAMA3_8B, capacity(A100_PCIE, 17.8445), 3, Choice.ASKED, FIRST_ORDER),
            "The cache must be offloaded. At 3 tokens, it takes 0.00 GB and the weights leave 0.00 GB of the 16.06 GB "
            "that the card offers after a reserve of 10 %; not one token of it stays.",
        ),
        (
            *(LLAMA3_8B, A100_PCIE, 10**7, Choice.ASKED, FIRST_ORDER),
            "To prefetch one layer ahead does not fit. At 10000000 tokens, beyond the 8192 that the model was made "
            "for, the buffers take 81.92 GB, and the weights leave 61.25 GB of the 77.31 GB that the card offers "
            "after a reserve of 10 %; fetching on demand fits.",
        ),
        (
            *(LLAMA3_8B, A100_PCIE, 10**8, Choice.ASKED, FIRST_ORDER),
            "Not even offload fits. At 100000000 tokens, beyond the 8192 that the model was made for, what stays "
            "there and the buffers of the rest take 819.20 GB, and the weights leave 61.25 GB of the 77.31 GB that "
            "the card offers after a reserve of 10 %.",
        ),
        (
            *(HYBRID, SMALL_CARD, 10**6, Choice.ASKED, FIRST_ORDER),
            "Not even offload fits. At 1000000 tokens, what stays there and the buffers of the rest take 16.38 GB, and "
            "the weights and the recurrent state leave 0.80 GB of the 9.00 GB that the card offers after a reserve of "
            "10 %.",
        ),
        (
            *(LLAMA3_8B, A100_PCIE, 500_000, Choice.ASKED, WINDOWED),
            "The resident window does not fit. At 500000 tokens, beyond the 8192 that the model was made for, the "
            "newest 480000 tokens of every layer and the buffers of the rest take 63.08 GB, and the weights leave "
            "61.25 GB of the 77.31 GB that the card offers after a reserve of 10 %; at most 465120 tokens fit.",
        ),
        (
            *(FAT_AND_THIN, HardwareProfile("any", 1000, 25, 28), 10_000, Choice.ASKED, FIRST_ORDER),
            "To prefetch one layer ahead does not fit. At 10000 tokens, the buffers take 40.00 GB, and the weights "
            "leave 25.20 GB of the 25.20 GB that the card offers after a reserve of 10 %; fetching on demand fits.",
        ),
        (
            *(FAT_AND_THIN, HardwareProfile("any", 1000, 25, 21), 10_000, Choice.ASKED, Terms(resident_windows=True)),
            "Not even offload fits with the sliding layers' windows on the GPU. At 10000 tokens, what stays there "
            "and the buffers of the rest take 24.00 GB, and the weights leave 18.90 GB of the 18.90 GB that the card "
            "offers after a reserve of 10 %.",
        ),
        (
            *(LLAMA3_8B, SMALL_HOST, 500_000, Choice.ASKED, FIRST_ORDER),
            "The host's memory is too small. At 500000 tokens, beyond the 8192 that the model was made for, 65.54 GB "
            "of the cache are offloaded, and 64.00 GB of it can be pinned.",
        ),
        (
            *(LLAMA3_8B, replace(NO_CAPACITY, host_capacity_gb=1), 8192, Choice.LIMIT, FIRST_ORDER),
            "The host's memory is too small. At 8192 tokens, the longest the model was made for, 1.07 GB of the cache "
            "are offloaded, and 1.00 GB of it can be pinned.",
        ),
    ],
)
def test_does_it_fit(model, hw, ctx_len, choice, terms, sentence):
    assert sentences(model, hw, ctx_len, choice, terms=terms)[0] == sentence


def test_a_depth_that_does_not_fit_is_told_which_does():
    said = sentences(LLAMA3_8B, A100_PCIE, 500_000, depth=40)
    assert said[0] == (
        "To prefetch 40 layers ahead does not fit. At 500000 tokens, beyond the 8192 that the model was made for, "
        "the buffers take 65.54 GB, and the weights leave 61.25 GB of the 77.31 GB that the card offers after a "
        "reserve of 10 %; prefetch 28 layers ahead fits."
    )
    assert said[1] == (
        "A step takes 2628.29 ms on demand; with prefetch 40 layers ahead it would take 2621.65 ms, were there room, "
        "and with all KV on the GPU 6.85 ms."
    )
    assert sentences(LLAMA3_8B, A100_PCIE, 500_000, depth=29)[0].endswith("; prefetch 28 layers ahead fits.")
    assert sentences(LLAMA3_8B, A100_PCIE, 500_000, depth=28)[0].startswith("The cache must be offloaded.")
    assert sentences(LLAMA3_8B, A100_PCIE, 4_000_000, depth=5)[0].endswith("; prefetch 2 layers ahead fits.")
    assert sentences(LLAMA3_8B, A100_PCIE, 5_500_000, depth=5)[0].endswith("; prefetch one layer ahead fits.")


def test_state_beyond_what_the_weights_leave_leaves_nothing():
    room, _, limit = sentences(HYBRID, capacity(SMALL_CARD, 8.95), 1, reserve=0, batch=5)
    assert "the weights and the recurrent state leave 0.00 GB of the 8.95 GB" in room
    assert limit == f"The card's memory is the limit: with the cache offloaded 0 tokens fit at most. {NO_CHANGE}"


@pytest.mark.parametrize(
    ("model", "hw", "ctx_len", "depth", "terms", "sentence"),
    [
        (
            *(LLAMA3_8B, NO_CAPACITY, 8192, 1, FIRST_ORDER),
            "A step takes 49.80 ms on demand and 43.16 ms, 13.3 % less, with prefetch one layer ahead; with all KV on "
            "the GPU it would take 6.85 ms.",
        ),
        (
            *(LLAMA3_8B, NO_CAPACITY, 467_301, 1, FIRST_ORDER),
            "A step takes 2456.85 ms on demand and 2450.22 ms, 0.3 % less, with prefetch one layer ahead; with all KV "
            "on the GPU it would take 6.85 ms.",
        ),
        (
            *(LLAMA2_13B, RTX4090, 4096, 3, FIRST_ORDER),
            "A step would take, were there room, 159.39 ms on demand and 134.85 ms, 15.4 % less, with prefetch 3 "
            "layers ahead; with all KV on the GPU it would take 25.17 ms.",
        ),
        (
            *(ONE_LAYER, NO_CAPACITY, 1000, 1, FIRST_ORDER),
            "A step takes 1.31 ms on demand and 1.31 ms, no less, with prefetch one layer ahead; with all KV on the "
            "GPU it would take 0.98 ms.",
        ),
        (
            *(LLAMA3_8B, A100_PCIE, 500_000, 1, WINDOWED),
            "With the newest 480000 tokens of every layer on the GPU, a step would take, were there room, 111.70 ms on "
            "demand and 105.07 ms, 5.9 % less, with prefetch one layer ahead; with all KV on the GPU it would take "
            "6.85 ms.",
        ),
        (
            *(LLAMA3_8B, A100_PCIE, 500_000, 1, Terms(resident_tokens=465_120)),
            "With the newest 465120 tokens of every layer on the GPU, a step takes 189.72 ms on demand and 183.09 ms, "
            "3.5 % less, with prefetch one layer ahead; with all KV on the GPU it would take 6.85 ms.",
        ),
        (
            *(LLAMA3_8B, SMALL_HOST, 500_000, 1, FIRST_ORDER),
            "A step would take, were there room, 2628.29 ms on demand and 2621.65 ms, 0.3 % less, with prefetch one "
            "layer ahead; with all KV on the GPU it would take 6.85 ms.",
        ),
        (
            *(LLAMA3_8B, A100_PCIE, 10**7, 1, FIRST_ORDER),
            "A step takes 52435.65 ms on demand; with prefetch one layer ahead it would take 52429.01 ms, were there "
            "room, and with all KV on the GPU 6.85 ms.",
        ),
        (
            *(LLAMA3_8B, A100_PCIE, 10**8, 1, FIRST_ORDER),
            "A step would take, were there room, 524294.85 ms on demand and 524288.21 ms, no less, with prefetch one "
            "layer ahead; with all KV on the GPU it would take 6.85 ms.",
        ),
        (
            *(LLAMA3_8B, A100_PCIE, 8192, 1, Terms(lm_head=True)),
            "A step takes 7.36 ms with the cache on the GPU; offloaded it would take 50.31 ms on demand and 43.68 ms "
            "with prefetch.",
        ),
        (
            *(LLAMA3_8B, A100_PCIE, 512, 1, Terms(resident_tokens=512)),
            "A step takes 6.85 ms with the cache on the GPU, and nothing crosses the link.",
        ),
        (
            *(LLAMA3_8B, A100_PCIE, 500_000, 1, Terms(resident_tokens=500_000)),
            "A step would take 6.85 ms with the cache on the GPU, and nothing crosses the link.",
        ),
        (
            *(LLAMA2_13B, RTX4090, 4096, 1, Terms(resident_tokens=4096)),
            "A step would take 25.17 ms with the cache on the GPU, and nothing crosses the link.",
        ),
        (
            *(NO_CACHE, A100_PCIE, 512, 1, FIRST_ORDER),
            "A step takes 0.98 ms with the cache on the GPU, and nothing crosses the link.",
        ),
    ],
)
def test_which_policy_and_by_how_much(model, hw, ctx_len, depth, terms, sentence):
    assert sentences(model, hw, ctx_len, depth=depth, terms=terms)[1] == sentence


NO_CHANGE = "Of the changes looked at, none would shorten the step."
OVERLAPPED = Terms(cross_token_overlap=True)
SMALLEST = Terms(cross_token_overlap=True, kv_dtype="q4_0")


@pytest.mark.parametrize(
    ("model", "hw", "ctx_len", "terms", "sentence"),
    [
        (
            *(LLAMA2_13B, RTX4090, 4096, FIRST_ORDER),
            "The card's memory is the limit. Weights of 8 bits would take 13.02 GB and fit.",
        ),
        (
            *(LLAMA2_13B, capacity(RTX4090, 12), 4096, FIRST_ORDER),
            "The card's memory is the limit. Weights of 4 bits would take 6.51 GB and fit.",
        ),
        (
            *(replace(LLAMA2_13B, weight_dtype="fp8"), capacity(RTX4090, 12), 4096, FIRST_ORDER),
            "The card's memory is the limit. Weights of 4 bits would take 6.51 GB and fit.",
        ),
        (
            *(LLAMA2_13B, capacity(RTX4090, 4), 4096, FIRST_ORDER),
            "The card's memory is the limit. Not even weights of 4 bits (6.51 GB) would fit.",
        ),
        (
            *(LLAMA3_8B, A100_PCIE, 8192, FIRST_ORDER),
            "The engine's reads of GPU memory are the limit, and the link is not used.",
        ),
        (
            *(LLAMA3_8B, A100_PCIE, 10**8, FIRST_ORDER),
            f"The card's memory is the limit: with the cache offloaded 7476807 tokens fit at most. {NO_CHANGE}",
        ),
        (
            *(FAT_AND_THIN, HardwareProfile("any", 1000, 25, 22), 10_000, FIRST_ORDER),
            "The card's memory is the limit: with the cache offloaded 494 tokens fit at most. It would help most to ",
        ),
        (
            *(LLAMA3_8B, A100_PCIE, 10**7, FIRST_ORDER),
            "The card's memory is the limit. It would help most to ",
        ),
        (LLAMA3_8B, A100_PCIE, 10**7, Terms(kv_dtype="q4_0"), "The link is the limit: computing can hide 0.046 % of "),
        (
            *(LLAMA3_8B, A100_PCIE, 3 * 10**7, Terms(kv_dtype="q4_0", cross_token_overlap=True)),
            f"The card's memory is the limit. {NO_CHANGE}",
        ),
        (LLAMA3_8B, A100_PCIE, 500_000, WINDOWED, "The card's memory is the limit. It would help most to "),
        (LLAMA3_8B, SMALL_HOST, 500_000, FIRST_ORDER, "The host's memory is the limit. It would help most to "),
        (
            *(LLAMA3_8B, replace(NO_CAPACITY, host_capacity_gb=0.1), 8192, SMALLEST),
            f"The host's memory is the limit. {NO_CHANGE}",
        ),
        (
            *(LLAMA3_8B, A100_PCIE, 8192, Terms(kv_read=True)),
            "The engine's reads of GPU memory are the limit, and the link is not used. It would help most to ",
        ),
        (
            *(LLAMA3_8B, A100_PCIE, 8192, Terms(kv_read=True, kv_dtype="q4_0")),
            "The engine's reads of GPU memory are the limit, and the link is not used.",
        ),
        (
            *(LLAMA3_8B, NO_CAPACITY, 8192, FIRST_ORDER),
            "The link is the limit: computing can hide 16 % of what crosses it. It would help most to ",
        ),
        (
            *(LLAMA3_8B, A100_PCIE, 467_301, FIRST_ORDER),
            "The link is the limit: computing can hide 0.28 % of what crosses it. It would help most to ",
        ),
        (
            *(LLAMA3_8B, NO_CAPACITY, 8192, SMALLEST),
            f"The link is the limit: computing can hide 57 % of what crosses it. {NO_CHANGE}",
        ),
        (
            *(LLAMA3_8B, NO_CAPACITY, 512, FIRST_ORDER),
            "The engine is the limit, and waits for the link 0.08 ms of each step. It would help most to ",
        ),
        (
            *(LLAMA3_8B, NO_CAPACITY, 512, OVERLAPPED),
            f"The engine is the limit, and does not wait for the link. {NO_CHANGE}",
        ),
        (  # by the sums of the layers the link is the bound, and the LM head hides the rest of what crosses it
            *(LLAMA3_8B, NO_CAPACITY, 1306, Terms(lm_head=True, cross_token_overlap=True)),
            f"The engine is the limit, and does not wait for the link. {NO_CHANGE}",
        ),
        (
            *(LLAMA3_8B, NO_CAPACITY, 3, FIRST_ORDER),
            "The engine is the limit, and does not wait for the link. Of the changes looked at, none would shorten the "
            "step.",
        ),
    ],
)
def test_what_limits_the_step(model, hw, ctx_len, terms, sentence):
    said = sentences(model, hw, ctx_len, terms=terms)[2]
    assert said.startswith(sentence)
    if sentence.endswith(("used.", NO_CHANGE, "most.")):
        assert said == sentence


@pytest.mark.parametrize(
    ("model", "hw", "ctx_len", "depth", "terms", "advice"),
    [
        (
            *(LLAMA3_8B, A100_PCIE, 500_000, 1, FIRST_ORDER),
            "store the cache in 8 bits, all of which stays on the GPU (6.85 ms, 2614.81 less), then to ",
        ),
        (
            *(LLAMA3_8B, SMALL_HOST, 500_000, 1, FIRST_ORDER),
            "store the cache in 8 bits, all of which stays on the GPU (6.85 ms, 2614.81 less), then to stream 4.57 GB "
            "of weights instead of the cache (183.08 ms, 2438.57 less), then to keep the newest 465120 tokens of every "
            "layer on the GPU (183.09 ms, 2438.57 less).",
        ),
        (
            *(LLAMA3_8B, A100_PCIE, 10**7, 1, FIRST_ORDER),
            "store the cache in 4 bits (14745.81 ms, 37683.20 less), then to store the cache in 8 bits (26214.61 ms, "
            "26214.40 less).",
        ),
        (
            *(LLAMA3_8B, A100_PCIE, 500_000, 1, WINDOWED),
            "store the cache in 8 bits, all of which stays on the GPU (6.85 ms, 98.23 less).",
        ),
        (
            *(LLAMA3_8B, A100_PCIE, 8192, 1, Terms(kv_read=True)),
            "store the cache in 4 bits, all of which stays on the GPU (6.99 ms, 0.38 less), then to store the cache in "
            "8 bits, all of which stays on the GPU (7.11 ms, 0.26 less).",
        ),
        (
            *(LLAMA3_8B, A100_PCIE, 467_301, 1, FIRST_ORDER),
            "keep the newest 467300 tokens of every layer on the GPU (6.85 ms, 2443.37 less)",
        ),
        (
            *(LLAMA3_8B, NO_CAPACITY, 512, 2, FIRST_ORDER),
            "let the next token's first fetches overlap this token's end (6.85 ms, 0.08 less).",
        ),
        (INTERLEAVED_62, NO_CAPACITY, 2048, 1, FIRST_ORDER, "keep the sliding layers' windows on the GPU (25.11 ms, "),
        (
            *(INTERLEAVED_62, NO_CAPACITY, 8192, 1, Terms(kv_dtype="q4_0", resident_tokens=1023)),
            "look 2 layers ahead (",
        ),
        (LLAMA3_8B, NO_CAPACITY, 8192, 1, FIRST_ORDER, "store the cache in 4 bits (12.29 ms, 30.87 less), then to "),
        (
            *(LLAMA3_8B, NO_CAPACITY, 8192, 1, Terms(kv_dtype="fp8", cross_token_overlap=True)),
            "store the cache in 4 bits (12.08 ms, 9.40 less).",
        ),
    ],
)
def test_what_would_help_most(model, hw, ctx_len, depth, terms, advice):
    said = sentences(model, hw, ctx_len, depth=depth, terms=terms)[2]
    assert said.partition(" It would help most to ")[2].startswith(advice)


def test_a_share_near_all_is_spelled_as_a_number():
    """At the crossover computing hides all but a thousandth of what crosses the link."""
    assert re.search(r"computing can hide [\d.]+ % of what crosses it", sentences(LLAMA3_8B, NO_CAPACITY, 1306)[2])
