from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stacks import INTERLEAVED_62, WINDOWS_ALONE

from kvprefetch import A100_PCIE, LLAMA2_13B, LLAMA3_8B, RTX4090, HardwareProfile, Layer, ModelConfig, compare
from kvprefetch.capacity import fits, usable_bytes
from kvprefetch.configs import FIRST_ORDER, Terms
from kvprefetch.planner import sweep_columns
from kvprefetch.reach import LEAST_TARGET, MOST_TARGET, Reach, reaches
from kvprefetch.roofline import head_time, layer_times, offloaded_bytes

NO_LIMIT = replace(LLAMA3_8B, max_position_embeddings=None)
NO_CAPACITY = replace(A100_PCIE, hbm_capacity_gb=None)
FREE = 77_310_000_000 - 2 * 8_029_995_008  # B that Llama-3-8B leaves of an A100 less a tenth
A_TOKEN, A_BLOCK_TOKEN = 131_072, 4096  # B of all layers, of one
LIMIT, GPU, HOST, TARGET = "the model's own limit", "GPU memory", "host memory", "the target"


# Llama-3-8B on an A100 computes 6.8458 ms; a token's KV crosses the link in 5.24288 µs. On demand 50 ms are kept
# up to (50 - 6.8458) / 0.00524288 = 8231 tokens, with prefetch up to (50 - 6.8458 / 32) / 0.00524288 = 9495.
@pytest.mark.parametrize(
    ("model", "hw", "target_ms", "depth", "reached"),
    [
        (LLAMA3_8B, A100_PCIE, 50, 1, [(None, 8192, LIMIT), (8231, 8192, LIMIT), (9495, 8192, LIMIT)]),
        (NO_LIMIT, A100_PCIE, 50, 1, [(None, FREE // A_TOKEN, GPU), (8231, 8231, TARGET), (9495, 9495, TARGET)]),
        (NO_LIMIT, NO_CAPACITY, 50, 1, [(None, None, "nothing"), (8231, 8231, TARGET), (9495, 9495, TARGET)]),
        (LLAMA3_8B, NO_CAPACITY, 10, 1, [(None, 8192, LIMIT), (601, 601, TARGET), (1866, 1866, TARGET)]),
        (LLAMA3_8B, A100_PCIE, 6.84, 1, [(0, 0, TARGET)] * 3),  # less than the engine takes
        (LLAMA3_8B, A100_PCIE, 6.846, 1, [(None, 8192, LIMIT), (0, 0, TARGET), (1, 1, TARGET)]),
        (
            NO_LIMIT,
            A100_PCIE,
            MOST_TARGET,
            3,
            [
                (None, FREE // A_TOKEN, GPU),
                (None, FREE // A_BLOCK_TOKEN, GPU),  # one buffer
                (None, FREE // (4 * A_BLOCK_TOKEN), GPU),
            ],
        ),
        (
            LLAMA3_8B,
            replace(A100_PCIE, host_capacity_gb=1),
            50,
            1,
            [(None, 8192, LIMIT), *[(target, 10**9 // A_TOKEN, HOST) for target in (8231, 9495)]],
        ),
        (LLAMA2_13B, RTX4090, MOST_TARGET, 1, [(None, 0, GPU)] * 3),  # the weights do not fit
        (WINDOWS_ALONE, A100_PCIE, MOST_TARGET, 1, [(None, None, "nothing")] * 3),
        (WINDOWS_ALONE, A100_PCIE, LEAST_TARGET, 1, [(0, 0, TARGET)] * 3),
    ],
)
def test_how_far_a_target_reaches_and_what_stops_it(model, hw, target_ms, depth, reached):
    found = reaches(model, hw, target_ms, usable_bytes(hw), depth=depth)
    policies = ("all KV on the GPU", "on demand", "prefetch")
    assert found == tuple(Reach(policy, *each) for policy, each in zip(policies, reached, strict=True))


def test_the_lm_head_counts_with_all_kv_on_the_gpu_too():
    """6.8458 ms of layers and 0.5153 ms of head."""
    for target_ms, by_target in ((7.361, 0), (7.362, None)):
        found = reaches(LLAMA3_8B, A100_PCIE, target_ms, None, terms=Terms(lm_head=True))
        assert found[0].by_target == by_target


def test_a_target_on_the_plateau_of_full_windows_is_kept_by_every_longer_context():
    """Four sliding layers are all there is: from 128 tokens on the step stays level."""
    full = compare(WINDOWS_ALONE, NO_CAPACITY, 128).prefetch.total_ms
    for target_ms, ctx_len in ((full * (1 + 1e-9), None), (full * (1 - 1e-9), 127)):
        assert reaches(WINDOWS_ALONE, NO_CAPACITY, target_ms, None)[2].by_target == ctx_len


@pytest.mark.parametrize("terms", [FIRST_ORDER, Terms(resident_windows=True), Terms(lm_head=True, kv_read=True)])
@pytest.mark.parametrize("batch", [1, 3])
def test_the_longest_context_keeps_the_target_and_the_next_does_not(batch, terms):
    for policy, latency in (("on demand", "ondemand"), ("prefetch", "prefetch")):
        (reach,) = (
            each for each in reaches(INTERLEAVED_62, A100_PCIE, 60, None, batch, 2, terms) if each.policy == policy
        )
        steps = (compare(INTERLEAVED_62, A100_PCIE, reach.ctx_len + n, batch, 2, terms) for n in (0, 1))
        now, then = (getattr(step, latency).total_ms for step in steps)
        assert now <= 60 < then


layers = st.builds(
    lambda weights, values, window, state: Layer(
        "any", weights, 2.0 * weights, values, window, state_bytes=float(state)
    ),
    st.integers(100, 10**4),
    st.sampled_from([0, 16, 64, 256]),
    st.sampled_from([None, None, 3, 17, 60]),
    st.sampled_from([0, 0, 100]),
)
stacks = st.builds(
    lambda layers, limit: ModelConfig(
        "any", hidden_size=8, vocab_size=10, layers=tuple(layers), max_position_embeddings=limit
    ),
    st.lists(layers, min_size=1, max_size=6),
    st.sampled_from([None, None, 1, 70]),
)
cards = st.builds(
    HardwareProfile,
    st.just("any"),
    st.integers(10, 500),
    st.integers(1, 100),
    st.just(1),
    st.sampled_from([None, None, 0.001]),
)
terms = st.builds(
    Terms,
    kv_dtype=st.sampled_from(["fp16", "fp8"]),
    resident_tokens=st.sampled_from([0, 0, 5, 20]),
    resident_windows=st.booleans(),
    kv_read=st.booleans(),
    lm_head=st.booleans(),
    copy_latency_us=st.sampled_from([0.0, 1e-3]),
    cross_token_overlap=st.booleans(),
)
SCANNED = np.arange(1, 100)


def first_missed(kept):
    return next((n for n, keeps in zip(SCANNED.tolist(), kept, strict=True) if not keeps), None)


@given(
    *(stacks, cards, st.integers(1, 80), st.floats(0.5, 2), st.sampled_from([1, 50]), st.integers(1, 3), terms),
    st.one_of(st.none(), st.integers(0, 10**5)),
)
def test_every_reach_is_what_a_scan_finds_and_the_cap_named_is_the_one_that_stops_it(
    model, hw, near, share, batch, depth, terms, beside_weights
):
    lines = sweep_columns(model, hw, SCANNED, batch, depth, terms)
    target_ms = share * lines.prefetch_ms[near - 1]
    usable = None if beside_weights is None else Fraction(model.total_bytes) + beside_weights
    engine = layer_times(model.layers, hw, SCANNED, batch, terms).compute.sum(-1) + head_time(model, hw, terms)
    cached = offloaded_bytes(model.layers, SCANNED, batch, terms).sum(-1)
    on_host = first_missed(cached <= (hw.host_capacity_gb or 1) * 1e9)
    limit = model.max_position_embeddings
    beyond_limit = limit and first_missed(SCANNED <= limit)

    def beyond_gpu(depth, kept=lambda n: terms):
        if usable is not None:
            return first_missed(fits(model, usable, n, batch, depth, kept(n)) for n in SCANNED.tolist())

    of_policy = (
        (engine * 1e3, None, beyond_gpu(depth, lambda n: replace(terms, resident_tokens=n))),
        (lines.ondemand_ms, on_host, beyond_gpu(0)),
        (lines.prefetch_ms, on_host, beyond_gpu(depth)),
    )
    found = reaches(model, hw, target_ms, usable, batch, depth, terms)
    for reach, (latency, host, gpu) in zip(found, of_policy, strict=True):
        missed = {TARGET: first_missed(latency <= target_ms * (1 + 1e-13)), GPU: gpu, HOST: host, LIMIT: beyond_limit}
        scanned = {cap: ctx_len for cap, ctx_len in missed.items() if ctx_len is not None}
        if scanned:
            assert (reach.ctx_len, scanned[reach.cap]) == (min(scanned.values()) - 1, min(scanned.values()))
        else:
            assert reach.ctx_len is None or reach.ctx_len >= SCANNED[-1]
        if TARGET in scanned:
            assert reach.by_target == scanned[TARGET] - 1
