from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stacks import INTERLEAVED_24, INTERLEAVED_62, WINDOWS_ALONE

from kvprefetch import (
    A100_PCIE,
    LLAMA2_13B,
    LLAMA3_8B,
    RTX4090,
    HardwareProfile,
    InputError,
    Layer,
    ModelConfig,
    compare,
)
from kvprefetch.capacity import fits, usable_bytes
from kvprefetch.configs import FIRST_ORDER, Terms
from kvprefetch.layers import MOST_BATCH, MOST_CTX
from kvprefetch.planner import sweep_columns
from kvprefetch.roofline import offloaded_bytes
from kvprefetch.throughput import MOST_GENERATED, Served, convex_sum, generation, link_ceiling, served

A_TOKEN = 131_072  # B of KV in all of Llama-3-8B's layers
FREE = 77_310_000_000 - 2 * 8_029_995_008  # B that it leaves of an A100 less a tenth
ALL_ON_GPU, PREFETCH = "all KV on the GPU", "prefetch"
EXACT = 1e-10  # relative: a sum of some hundred steps, each within a few ulp


@given(
    st.lists(st.tuples(st.integers(-50, 50), st.integers(-(10**4), 10**4)), min_size=1, max_size=6),
    st.integers(1, 200),
    st.integers(0, 300),
)
def test_the_sum_of_a_convex_step_is_the_plain_sum(lines, first, more):
    def step(n):
        return np.max([10**6 + slope * n + start for slope, start in lines], axis=0)

    plain = int(step(np.arange(first, first + more + 1)).sum())
    assert convex_sum(step, first, first + more) == pytest.approx(plain, rel=EXACT)


def test_a_long_generation_looks_at_few_of_its_contexts():
    looked_at = []

    def step(n):
        looked_at.extend(n.tolist())
        return np.maximum(5.0, n / 10**6)

    level, rising = 5 * (5 * 10**6), sum(range(5 * 10**6 + 1, 10**7 + 1)) / 10**6
    assert convex_sum(step, 1, 10**7) == pytest.approx(level + rising, rel=EXACT)
    assert len(looked_at) < 300


layers = st.builds(
    lambda weights, values, window: Layer("any", weights, 2.0 * weights, values, window),
    st.integers(100, 10**4),
    st.sampled_from([0, 16, 64, 256]),
    st.sampled_from([None, None, 3, 17, 60]),
)
stacks = st.lists(layers, min_size=1, max_size=7).map(
    lambda stack: ModelConfig("any", hidden_size=8, vocab_size=10, layers=tuple(stack))
)
cards = st.builds(HardwareProfile, st.just("any"), st.integers(10, 500), st.integers(1, 100))
terms = st.builds(
    Terms,
    kv_dtype=st.sampled_from(["fp16", "q4_0"]),
    resident_tokens=st.sampled_from([0, 0, 5, 40]),
    resident_windows=st.booleans(),
    kv_read=st.booleans(),
    lm_head=st.booleans(),
    copy_latency_us=st.sampled_from([0.0, 1e-3]),
    cross_token_overlap=st.booleans(),
)
batches, depths = st.integers(1, 8), st.integers(1, 4)


@given(stacks, cards, st.integers(1, 100), st.integers(1, 150), batches, depths, terms)
def test_a_generation_is_the_sum_of_its_steps(model, hw, ctx_len, generated, batch, depth, terms):
    steps = sweep_columns(model, hw, range(ctx_len, ctx_len + generated), batch, depth, terms)
    found = generation(model, hw, ctx_len, generated, batch, depth, terms)
    engine = [compare(model, hw, n, batch, depth, terms).engine_ms for n in range(ctx_len, ctx_len + generated)]
    for made, latencies in zip(found, (np.array(engine), steps.ondemand_ms, steps.prefetch_ms), strict=True):
        assert made.total_s == pytest.approx(latencies.sum() / 1e3, rel=EXACT)
        assert (made.first_s * 1e3, made.last_s * 1e3) == pytest.approx((latencies[0], latencies[-1]), rel=EXACT)
        assert made.tokens_per_s == pytest.approx(batch * 1e3 / latencies.mean(), rel=EXACT)
        assert (made.tokens, made.batch) == (generated, batch)


@pytest.mark.parametrize(
    ("model", "ctx_len", "generated", "terms"),
    [
        (LLAMA3_8B, 1000, 1000, FIRST_ORDER),  # over the crossover
        (LLAMA3_8B, 1, 1, FIRST_ORDER),
        (INTERLEAVED_24, 100, 3000, FIRST_ORDER),  # over the window
        (INTERLEAVED_24, 2000, 3000, Terms(cross_token_overlap=True, lm_head=True)),
        (INTERLEAVED_62, 500, 2000, Terms(copy_latency_us=20, resident_tokens=700)),
        (INTERLEAVED_62, 1024, 2, Terms(kv_read=True)),
        (WINDOWS_ALONE, 127, 500, Terms(resident_tokens=128)),
        (WINDOWS_ALONE, 120, 20, Terms(copy_latency_us=20, resident_tokens=127)),
    ],
)
def test_a_generation_on_a_real_stack_is_the_sum_of_its_steps(model, ctx_len, generated, terms):
    steps = sweep_columns(model, A100_PCIE, range(ctx_len, ctx_len + generated), 2, 2, terms)
    resident, ondemand, prefetch = generation(model, A100_PCIE, ctx_len, generated, 2, 2, terms)
    engine = (compare(model, A100_PCIE, n, 2, 2, terms).engine_ms for n in range(ctx_len, ctx_len + generated))
    assert resident.total_s == pytest.approx(sum(engine) / 1e3, rel=EXACT)
    assert ondemand.total_s == pytest.approx(steps.ondemand_ms.sum() / 1e3, rel=EXACT)
    assert prefetch.total_s == pytest.approx(steps.prefetch_ms.sum() / 1e3, rel=EXACT)


def test_a_middle_on_the_line_through_the_ends_does_not_make_a_bent_step_straight():
    """KV read grows by half from 101 tokens on, and as much again is fetched from 252 on, over half as many."""
    layers = (Layer("sliding", 100, 200.0, 100, window=101), Layer("full", 100, 200.0, 100))
    model = ModelConfig("bent", hidden_size=8, vocab_size=10, layers=layers)
    hw, terms = HardwareProfile("any", 100, 50), Terms(kv_read=True, resident_tokens=251)
    latencies = sweep_columns(model, hw, range(1, 302), terms=terms).ondemand_ms
    assert latencies[150] == pytest.approx((latencies[0] + latencies[300]) / 2, rel=1e-13)
    assert latencies.mean() != pytest.approx(latencies[150], rel=1e-2)
    assert generation(model, hw, 1, 301, terms=terms)[1].total_s == pytest.approx(latencies.sum() / 1e3, rel=EXACT)


def test_a_generation_by_hand():
    """On demand L·c + n·K/PCIe for n from 2048 to 3047: a thousand steps, 2547.5 tokens long on average."""
    resident, ondemand, prefetch = generation(LLAMA3_8B, A100_PCIE, 2048, 1000)
    engine, a_token = 32 * 436_207_616 / 2039e9, A_TOKEN / 25e9
    assert resident.total_s == pytest.approx(1000 * engine)
    assert (resident.first_s, resident.last_s) == pytest.approx((engine, engine))
    assert ondemand.total_s == pytest.approx(1000 * (engine + 2547.5 * a_token))
    assert prefetch.total_s == pytest.approx(1000 * (engine / 32 + 2547.5 * a_token))
    assert (prefetch.first_s, prefetch.last_s) == pytest.approx(
        (engine / 32 + 2048 * a_token, engine / 32 + 3047 * a_token)
    )
    assert ondemand.tokens_per_s == pytest.approx(1 / (engine + 2547.5 * a_token))


def test_the_longest_generation_ends_at_the_longest_context():
    ctx_len = MOST_CTX - MOST_GENERATED + 1
    resident, ondemand, prefetch = generation(LLAMA3_8B, A100_PCIE, ctx_len, MOST_GENERATED)
    last = compare(LLAMA3_8B, A100_PCIE, MOST_CTX)
    assert (resident.last_s, ondemand.last_s, prefetch.last_s) == pytest.approx(
        (last.engine_ms / 1e3, last.ondemand.total_s, last.prefetch.total_s)
    )
    with pytest.raises(InputError, match=f"ctx_len: got {ctx_len + 1}; accepted: a whole number from 1 to {ctx_len}"):
        generation(LLAMA3_8B, A100_PCIE, ctx_len + 1, MOST_GENERATED)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"generated": 0}, "generate: got 0; accepted: a whole number from 1 to 10000000"),
        ({"generated": MOST_GENERATED + 1}, "generate: got 10000001"),
        ({"generated": 2.5}, "generate: got 2.5"),
        ({"ctx_len": 0}, "ctx_len: got 0"),
        ({"batch": 0}, "batch: got 0"),
        ({"depth": 0}, "depth: got 0"),
    ],
)
def test_a_generation_out_of_range_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        generation(LLAMA3_8B, A100_PCIE, **{"ctx_len": 512, "generated": 10, **arguments})


@given(stacks, cards, st.integers(1, 100), st.integers(1, 10**4), depths, terms)
def test_no_batch_exceeds_the_ceiling_of_the_link_and_the_largest_comes_near(model, hw, ctx_len, batch, depth, terms):
    ceiling = link_ceiling(model, hw, ctx_len, terms)
    if ceiling is None:
        assert not offloaded_bytes(model.layers, ctx_len, 1, terms).any()
        return
    for b in (batch, MOST_BATCH):
        step = compare(model, hw, ctx_len, b, depth, terms)
        for policy in (step.prefetch, step.ondemand):
            assert b / policy.total_s <= ceiling * (1 + 1e-9)
    reached = (
        MOST_BATCH / compare(model, hw, ctx_len, MOST_BATCH, depth, replace(terms, kv_read=False)).prefetch.total_s
    )
    assert reached >= 0.9 * ceiling


@pytest.mark.parametrize(
    ("terms", "ceiling"),
    [
        (FIRST_ORDER, 25e9 / (4096 * A_TOKEN)),
        (Terms(pcie_efficiency=0.5, kv_dtype="fp8"), 25e9 / (4096 * A_TOKEN)),
        (Terms(resident_tokens=4000), 25e9 / (96 * A_TOKEN)),
        (Terms(resident_tokens=4096), None),
    ],
)
def test_the_ceiling_by_hand(terms, ceiling):
    assert link_ceiling(LLAMA3_8B, A100_PCIE, 4096, terms) == (ceiling and pytest.approx(ceiling))


# Batches: Llama-3-8B's free bytes over 8192 tokens' KV, in all layers or in two blocks; the host's over the former.
@pytest.mark.parametrize(
    ("hw", "ctx_len", "batch", "rows"),
    [
        (A100_PCIE, 8192, 2, [(ALL_ON_GPU, 2), (ALL_ON_GPU, 57), (PREFETCH, 2), (PREFETCH, 912)]),
        (A100_PCIE, 8192, 57, [(ALL_ON_GPU, 57), (PREFETCH, 57), (PREFETCH, 912)]),
        (A100_PCIE, 8192, 58, [(ALL_ON_GPU, 57), (PREFETCH, 58), (PREFETCH, 912)]),
        (A100_PCIE, 8192, 913, [(ALL_ON_GPU, 57), (PREFETCH, 912)]),
        (A100_PCIE, 500_000, 1, [(PREFETCH, 1), (PREFETCH, 14)]),
        (replace(A100_PCIE, host_capacity_gb=65), 500_000, 1, []),  # one sequence takes 65.54 GB of the host
        (replace(A100_PCIE, host_capacity_gb=64), 8192, 60, [(ALL_ON_GPU, 57), (PREFETCH, 59)]),
        (A100_PCIE, 10**8, 1, []),  # not even two blocks
    ],
)
def test_only_batches_that_fit_are_served(hw, ctx_len, batch, rows):
    assert (FREE // (8192 * A_TOKEN), FREE // (8192 * 8192), 64 * 10**9 // (8192 * A_TOKEN)) == (57, 912, 59)
    largest = {(ALL_ON_GPU, 57), (PREFETCH, 14 if ctx_len == 500_000 else 59 if hw.host_capacity_gb else 912)}
    found = served(LLAMA3_8B, hw, usable_bytes(hw), ctx_len, batch)
    assert [(row.way, row.batch) for row in found] == rows
    for row in found:
        assert row.is_largest is ((row.way, row.batch) in largest)
        step = compare(LLAMA3_8B, hw, ctx_len, row.batch)
        assert row.step_ms == (step.engine_ms if row.way == ALL_ON_GPU else step.prefetch.total_ms)


def test_nothing_is_served_where_the_weights_do_not_fit():
    assert served(LLAMA2_13B, RTX4090, usable_bytes(RTX4090), 512) == ()


def test_tokens_a_second_are_the_batch_over_the_step():
    assert Served("any", 8, True, 20).tokens_per_s == 400


moe = st.builds(
    lambda layer, experts, used, size: replace(
        layer, experts=experts, experts_per_token=min(used, experts), expert_params=size, expert_bytes=2.0 * size
    ),
    layers,
    st.integers(1, 16),
    st.integers(1, 16),
    st.integers(1, 10**4),
)
mixed = st.lists(st.one_of(layers, moe), min_size=1, max_size=5).map(
    lambda stack: ModelConfig("any", hidden_size=8, vocab_size=10, layers=tuple(stack))
)


@settings(max_examples=50)
@given(mixed, cards, st.integers(1, 100), depths, terms, st.integers(0, 10**6), st.sampled_from([None, 0.001]))
def test_the_largest_batch_fits_no_more_and_decodes_most(model, hw, ctx_len, depth, terms, beside_weights, host):
    hw, usable = replace(hw, host_capacity_gb=host), Fraction(model.total_bytes) + beside_weights
    resident = replace(terms, resident_tokens=ctx_len)
    found = {row.way: row for row in served(model, hw, usable, ctx_len, MOST_BATCH, depth, terms) if row.is_largest}
    crossing = float(offloaded_bytes(model.layers, ctx_len, 1, terms).sum())
    for name, kept, room in ((ALL_ON_GPU, resident, None), (PREFETCH, terms, host and host * 1e9)):
        best = found.get(name)
        largest = best.batch if best else 0
        for batch, fitting in ((largest, True), (largest + 1, False)):
            if 0 < batch <= MOST_BATCH:
                on_host = room is None or batch * crossing <= room
                assert (fits(model, usable, ctx_len, batch, depth, kept) and on_host) is fitting
        for batch in {1, largest // 3, largest // 2, largest - 1} - {0, -1} if best else ():
            step = compare(model, hw, ctx_len, batch, depth, terms)
            latency = step.engine_ms if name == ALL_ON_GPU else step.prefetch.total_ms
            assert batch / latency * 1e3 <= best.tokens_per_s * (1 + 1e-9)
