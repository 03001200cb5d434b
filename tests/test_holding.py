"""Every sentence on how much of the cache stays on the GPU, with a pair that produces it."""

from dataclasses import replace

import pytest
from stacks import WINDOWS_ALONE

from kvprefetch import A100_PCIE, LLAMA2_13B, LLAMA3_8B, RTX4090, HardwareProfile, Layer, ModelConfig, holding
from kvprefetch.configs import Terms
from kvprefetch.plan import Fit, make_plan

NO_CAPACITY = replace(A100_PCIE, hbm_capacity_gb=None)
NOT_EVEN_ONE_TOKEN = replace(A100_PCIE, hbm_capacity_gb=17.8445)


def planned(model=LLAMA3_8B, hw=A100_PCIE, ctx_len=500_000, **changed):
    return make_plan(model, hw, ctx_len, **changed)


UNKNOWN, WEIGHTS = planned(hw=NO_CAPACITY), planned(LLAMA2_13B, RTX4090, 4096)
RESIDENT, NOTHING, OFFLOAD = planned(ctx_len=8192), planned(ctx_len=10**8), planned()


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        (
            UNKNOWN,
            "The card's file states no hbm_capacity_gb, so how much of the cache could stay on the GPU is not known.",
        ),
        (WEIGHTS, "Nothing of the cache can stay on the GPU, which cannot hold the weights either."),
        (RESIDENT, "At 8192 tokens the whole cache stays on the GPU, and a step takes 6.85 ms."),
        (NOTHING, "At 100000000 tokens not even the buffers of an offloaded cache fit on the GPU."),
        (
            OFFLOAD,
            "At 500000 tokens the newest 465120 tokens of every layer fit on the GPU beside the buffers of the rest, "
            "and the prefetch step takes 183.09 ms.",
        ),
        (
            planned(hw=NOT_EVEN_ONE_TOKEN, ctx_len=3),
            "At 3 tokens the buffers of an offloaded cache fit on the GPU, and nothing of it beside them.",
        ),
        (
            planned(hw=replace(A100_PCIE, host_capacity_gb=64)),
            "At 500000 tokens the newest 465120 tokens of every layer fit on the GPU beside the buffers of the rest, "
            "and the prefetch step takes 183.09 ms.",
        ),
    ],
)
def test_how_much_of_the_cache_can_stay(plan, sentence):
    assert holding.how_much(plan) == sentence


@pytest.mark.parametrize("plan", [planned(ctx_len=10**7), planned(depth=40)])
def test_a_cache_that_fits_at_a_smaller_depth_is_not_said_to_have_no_room_for_buffers(plan):
    assert plan.fit is Fit.DEPTH and plan.window is None
    assert "not even the buffers" not in holding.how_much(plan)


def test_how_much_can_stay_on_a_card_of_unknown_capacity_is_not_known_whatever_the_host_holds():
    plan = planned(hw=replace(NO_CAPACITY, host_capacity_gb=64))
    assert plan.fit is Fit.HOST
    assert holding.how_much(plan) == holding.how_much(UNKNOWN)


def test_the_parts_of_the_memory_add_up():
    usable, weights, state, cache, left = holding.parts(planned(ctx_len=8192, batch=2).memory)
    assert (usable, weights, state) == (77.31e9, 2 * 8_029_995_008, 0)
    assert (cache, left) == (2 * 8192 * 131_072, usable - weights - cache)
    mamba = Layer("mamba", 50, 100.0, kv_values=0, state_bytes=512.0)
    hybrid = ModelConfig("hybrid", hidden_size=8, vocab_size=10, layers=(mamba, Layer("full", 50, 100.0, 8)))
    _, weights, state, cache, left = holding.parts(planned(hybrid, ctx_len=100, batch=3).memory)
    assert (state, cache, left) == (3 * 512, 3 * 100 * 8 * 2, 77.31e9 - weights - state - cache)
    assert holding.parts(OFFLOAD.memory)[-1] == OFFLOAD.memory.left < 0
    assert holding.PARTS == ("usable, after the reserve", "all weights", "recurrent state", "the whole cache", "left")
    assert len(holding.PARTS) == len(holding.parts(OFFLOAD.memory))


@pytest.mark.parametrize(
    ("plan", "stays", "window"),
    [
        (UNKNOWN, ("not known", "the card's file states no capacity"), ("–", "–")),
        (WEIGHTS, ("never", "the weights alone do not fit"), ("–", "–")),
        (RESIDENT, ("up to 467300 tokens", "batch 1, reserve 10 %"), ("all", "6.85")),
        (NOTHING, ("up to 467300 tokens", "batch 1, reserve 10 %"), ("–", "–")),
        (OFFLOAD, ("up to 467300 tokens", "batch 1, reserve 10 %"), ("465120", "183.09")),
        (planned(batch=2, reserve=0.125), ("up to 225458 tokens", "batch 2, reserve 12.5 %"), ("207155", "3070.92")),
        (planned(WINDOWS_ALONE, ctx_len=777), ("at every context", "batch 1, reserve 10 %"), ("all", "0.49")),
    ],
)
def test_up_to_which_context_the_cache_stays_and_with_which_window(plan, stays, window):
    assert (holding.stays(plan), holding.window(plan)) == (stays, window)


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        (
            planned(ctx_len=512),
            "At 512 tokens the engine is busy at least as long as the link, whatever stays on the GPU.",
        ),
        (
            RESIDENT,
            "For 8192 tokens to be compute-bound, the newest 6887 tokens of every layer would have to stay: 0.90 GB.",
        ),
        (
            planned(hw=NO_CAPACITY, ctx_len=1306),
            "For 1306 tokens to be compute-bound, the newest 1 token of every layer would have to stay: 0.00 GB.",
        ),
        (
            OFFLOAD,
            "For 500000 tokens to be compute-bound, the newest 498695 tokens of every layer would have to stay: 65.36 "
            "GB, where 465120 tokens fit.",
        ),
    ],
)
def test_the_window_that_would_make_the_context_compute_bound(plan, sentence):
    assert holding.compute_bound_window(plan) == sentence


READING = (
    r"“Can hide” is $\min(1, \text{engine} / \sum t)$, the share of the transfer that no schedule can hide more than: "
    "the bytes that the link carries while the engine computes, over all that it must carry."
)


@pytest.mark.parametrize(
    ("plan", "shift"),
    [
        (RESIDENT, ""),
        (NOTHING, ""),
        (UNKNOWN, ""),
        (planned(hw=NOT_EVEN_ONE_TOKEN, ctx_len=3), ""),  # R = 0 is the largest that fits
        (OFFLOAD, " With the newest 465120 tokens on the GPU the crossover moves from 1306 tokens to 466426 tokens."),
        (
            planned(terms=Terms(resident_tokens=9)),
            " With the newest 465120 tokens on the GPU the crossover moves from 1306 tokens to 466426 tokens.",
        ),
    ],
)
def test_how_to_read_the_table_of_windows(plan, shift):
    assert holding.windows_reading(plan, LLAMA3_8B, A100_PCIE) == READING + shift


def test_what_the_window_that_fits_does_where_there_is_no_crossover_or_none_is_left():
    fast = replace(A100_PCIE, pcie_gb_s=2500)
    reads = planned(hw=fast, ctx_len=2_000_000, terms=Terms(kv_read=True))
    assert holding.windows_reading(reads, LLAMA3_8B, fast) == (
        READING + " With the newest 365120 tokens on the GPU the crossover stays away."
    )
    sliding = ModelConfig("any", hidden_size=1, vocab_size=1, layers=(Layer("any", 100, 200.0, 100, window=101),) * 200)
    small = HardwareProfile("any", 100, 5000, hbm_capacity_gb=0.003)
    windows = planned(sliding, small, 200, reserve=0)
    assert holding.windows_reading(windows, sliding, small) == (
        READING + " With the newest 73 tokens on the GPU the crossover of 50 tokens is gone: the link is never the "
        "bound."
    )


@pytest.mark.parametrize(
    ("host_gb", "sentence"),
    [
        (None, "The offloaded part takes 65.54 GB of pinned host memory; how much the host has is not stated."),
        (66, "The offloaded part takes 65.54 GB of pinned host memory, which fits the 66.00 GB there is."),
        (65.536, "The offloaded part takes 65.54 GB of pinned host memory, which fits the 65.54 GB there is."),
        (64, "The offloaded part takes 65.54 GB of pinned host memory, which does not fit the 64.00 GB there is."),
    ],
)
def test_how_much_host_memory_it_takes(host_gb, sentence):
    assert holding.host_memory(planned(hw=replace(A100_PCIE, host_capacity_gb=host_gb))) == sentence
