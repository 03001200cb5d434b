from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stacks import INTERLEAVED_62, WINDOWS_ALONE

from kvprefetch import A100_PCIE, LLAMA2_13B, LLAMA3_8B, RTX4090, HardwareProfile, InputError, Layer, ModelConfig
from kvprefetch.capacity import fits, usable_bytes
from kvprefetch.configs import FIRST_ORDER, Terms
from kvprefetch.plan import Choice, Fit, make_plan, placements, planner_ctx
from kvprefetch.planner import compare

NO_CAPACITY = replace(A100_PCIE, hbm_capacity_gb=None)
NO_LIMIT = replace(LLAMA3_8B, max_position_embeddings=None)
FREE = 77_310_000_000 - 2 * 8_029_995_008  # B that Llama-3-8B leaves of an A100 less a tenth
A_TOKEN, A_BLOCK_TOKEN = 131_072, 4096  # B of all layers, of one
STAYS = FREE // A_TOKEN  # 467 300 tokens
ONE_BUFFER = (FREE - A_BLOCK_TOKEN * 500_000) // (A_TOKEN - A_BLOCK_TOKEN)  # R beside on-demand's buffer at 500 000
HOST = replace(A100_PCIE, host_capacity_gb=65.536)  # just what 500 000 tokens take


def limited(model, tokens):
    return replace(model, max_position_embeddings=tokens)


@pytest.mark.parametrize(
    ("model", "hw", "batch", "kv_dtype", "planned"),
    [
        (NO_LIMIT, A100_PCIE, 1, "fp16", (STAYS + 1, Choice.FIRST)),
        (NO_LIMIT, A100_PCIE, 1, "fp8", (FREE * 2 // A_TOKEN + 1, Choice.FIRST)),
        (NO_LIMIT, A100_PCIE, 16, "fp16", (FREE // 16 // A_TOKEN + 1, Choice.FIRST)),
        (LLAMA3_8B, A100_PCIE, 1, "fp16", (8192, Choice.LIMIT)),
        (limited(LLAMA3_8B, STAYS), A100_PCIE, 1, "fp16", (STAYS, Choice.LIMIT)),
        (limited(LLAMA3_8B, STAYS + 1), A100_PCIE, 1, "fp16", (STAYS + 1, Choice.FIRST)),
        (LLAMA2_13B, RTX4090, 1, "fp16", (4096, Choice.LIMIT)),  # the weights do not fit
        (limited(LLAMA2_13B, None), RTX4090, 1, "fp16", (777, Choice.LONGEST)),
        (WINDOWS_ALONE, A100_PCIE, 1, "fp16", (777, Choice.LONGEST)),  # windows never outgrow the card
        (limited(WINDOWS_ALONE, 5000), A100_PCIE, 1, "fp16", (5000, Choice.LIMIT)),
        (LLAMA3_8B, NO_CAPACITY, 1, "fp16", (8192, Choice.LIMIT)),
        (NO_LIMIT, NO_CAPACITY, 1, "fp16", (777, Choice.LONGEST)),
        (LLAMA3_8B, replace(A100_PCIE, hbm_capacity_gb=17.8445), 1, "fp16", (1, Choice.FIRST)),  # 59 984 B are left
    ],
)
def test_the_planners_context(model, hw, batch, kv_dtype, planned):
    assert planner_ctx(model, usable_bytes(hw), batch, kv_dtype, 777) == planned


@pytest.mark.parametrize(
    ("model", "hw", "ctx_len", "depth", "terms", "fit", "window"),
    [
        (LLAMA3_8B, NO_CAPACITY, 8192, 1, FIRST_ORDER, Fit.UNKNOWN, None),
        (LLAMA2_13B, RTX4090, 1, 1, FIRST_ORDER, Fit.WEIGHTS, None),
        (LLAMA3_8B, A100_PCIE, STAYS, 1, FIRST_ORDER, Fit.RESIDENT, STAYS),
        (LLAMA3_8B, A100_PCIE, STAYS, 40, Terms(resident_tokens=10), Fit.RESIDENT, STAYS),
        (LLAMA3_8B, A100_PCIE, STAYS + 1, 1, FIRST_ORDER, Fit.OFFLOAD, STAYS),
        (LLAMA3_8B, A100_PCIE, 500_000, 1, FIRST_ORDER, Fit.OFFLOAD, (FREE - 8192 * 500_000) // (A_TOKEN - 8192)),
        (LLAMA3_8B, A100_PCIE, 500_000, 3, FIRST_ORDER, Fit.OFFLOAD, (FREE - 16_384 * 500_000) // (A_TOKEN - 16_384)),
        (LLAMA3_8B, A100_PCIE, 500_000, 40, FIRST_ORDER, Fit.DEPTH, None),  # 32 blocks hold everything
        (LLAMA3_8B, A100_PCIE, 500_000, 28, FIRST_ORDER, Fit.OFFLOAD, (FREE - 29 * 4096 * 500_000) // (3 * 4096)),
        (LLAMA3_8B, A100_PCIE, 500_000, 29, FIRST_ORDER, Fit.DEPTH, None),
        (LLAMA3_8B, A100_PCIE, 500_000, 1, Terms(resident_tokens=465_120), Fit.OFFLOAD, 465_120),
        (LLAMA3_8B, A100_PCIE, 500_000, 1, Terms(resident_tokens=465_121), Fit.WINDOW, 465_120),
        (LLAMA3_8B, A100_PCIE, 500_000, 1, Terms(resident_tokens=ONE_BUFFER), Fit.WINDOW, 465_120),
        (LLAMA3_8B, A100_PCIE, 500_000, 1, Terms(resident_tokens=ONE_BUFFER + 1), Fit.WINDOW, 465_120),
        (LLAMA3_8B, A100_PCIE, 500_000, 1, Terms(resident_tokens=500_000), Fit.WINDOW, 465_120),
        (LLAMA3_8B, A100_PCIE, FREE // 8192, 1, FIRST_ORDER, Fit.OFFLOAD, 0),
        (LLAMA3_8B, A100_PCIE, FREE // 8192 + 1, 1, FIRST_ORDER, Fit.DEPTH, None),
        (LLAMA3_8B, A100_PCIE, FREE // 4096, 1, FIRST_ORDER, Fit.DEPTH, None),
        (LLAMA3_8B, A100_PCIE, FREE // 4096 + 1, 1, FIRST_ORDER, Fit.NOTHING, None),
        (WINDOWS_ALONE, A100_PCIE, 10**9, 1, FIRST_ORDER, Fit.RESIDENT, 10**9),
    ],
)
def test_how_a_plan_and_the_cards_memory_go_together(model, hw, ctx_len, depth, terms, fit, window):
    plan = make_plan(model, hw, ctx_len, depth=depth, terms=terms)
    assert (plan.fit, plan.window) == (fit, window)
    assert plan.step == compare(model, hw, ctx_len, 1, depth, terms)
    filled = None if window is None else compare(model, hw, ctx_len, 1, depth, replace(terms, resident_tokens=window))
    assert plan.filled == filled


@pytest.mark.parametrize(
    ("hw", "ctx_len", "terms", "fit"),
    [
        (HOST, 500_000, FIRST_ORDER, Fit.OFFLOAD),
        (HOST, 500_001, FIRST_ORDER, Fit.HOST),
        (HOST, 500_001, Terms(resident_tokens=1), Fit.OFFLOAD),
        (HOST, 500_001, Terms(kv_dtype="fp8"), Fit.RESIDENT),
        (replace(HOST, host_capacity_gb=0.001), STAYS, FIRST_ORDER, Fit.RESIDENT),
        (replace(HOST, hbm_capacity_gb=None), 500_000, FIRST_ORDER, Fit.UNKNOWN),
        (replace(HOST, hbm_capacity_gb=None), 500_001, FIRST_ORDER, Fit.HOST),
        (replace(HOST, hbm_capacity_gb=16), 500_001, FIRST_ORDER, Fit.WEIGHTS),
        (HOST, 10**8, FIRST_ORDER, Fit.HOST),  # the card's memory does not hold the buffers either
    ],
)
def test_the_hosts_memory_bounds_what_is_offloaded(hw, ctx_len, terms, fit):
    assert make_plan(LLAMA3_8B, hw, ctx_len, terms=terms).fit is fit


def test_only_what_fits_as_asked_runs_and_what_is_not_known_is_taken_to():
    assert {fit for fit in Fit if fit.runs} == {Fit.UNKNOWN, Fit.RESIDENT, Fit.OFFLOAD}


@pytest.mark.parametrize(
    ("ctx_len", "depth", "deepest"),
    [
        (500_000, 40, 28),  # 29 buffers of 2.048 GB in 61.25 GB
        (500_000, 28, 28),
        (500_000, 3, 3),
        (8192, 10_000, 10_000),
        (FREE // 8192, 7, 1),
        (FREE // 8192 + 1, 7, 0),
        (FREE // 4096, 1, 0),
        (FREE // 4096 + 1, 1, None),
    ],
)
def test_the_deepest_look_ahead_that_fits(ctx_len, depth, deepest):
    plan = make_plan(LLAMA3_8B, A100_PCIE, ctx_len, depth=depth)
    assert plan.memory.deepest == deepest
    assert (plan.fit is Fit.DEPTH) == (deepest is not None and deepest < depth)


@pytest.mark.parametrize(
    ("hw", "ctx_len", "terms", "resident"),
    [
        (A100_PCIE, 8192, FIRST_ORDER, True),
        (A100_PCIE, 8192, Terms(kv_read=True, lm_head=True), True),
        (A100_PCIE, 500_000, FIRST_ORDER, False),
        (A100_PCIE, 10**8, FIRST_ORDER, False),
        (NO_CAPACITY, 8192, FIRST_ORDER, False),
        (HOST, 500_001, FIRST_ORDER, False),
    ],
)
def test_the_step_to_beat_is_the_engines_where_all_stays_and_else_prefetch(hw, ctx_len, terms, resident):
    plan = make_plan(LLAMA3_8B, hw, ctx_len, terms=terms)
    assert plan.planned_ms == (plan.step.engine_ms if resident else plan.step.prefetch.total_ms)
    assert all(change.total_ms < plan.planned_ms for change in plan.changes)


def test_what_beats_a_resident_cache_is_a_smaller_one_where_its_reads_count():
    assert make_plan(LLAMA3_8B, A100_PCIE, 8192).changes == ()
    counted = make_plan(LLAMA3_8B, A100_PCIE, 8192, terms=Terms(kv_read=True))
    assert [change.name for change in counted.changes] == ["4-bit cache on the GPU", "8-bit cache on the GPU"]


def test_the_memory_of_a_plan():
    memory = make_plan(LLAMA3_8B, A100_PCIE, 8192, batch=2).memory
    kv = 2 * 8192 * A_TOKEN
    found = (memory.usable, memory.weights, memory.state, memory.kv, memory.left)
    assert found == (77.31e9, 77.31e9 - FREE, 0, kv, FREE - kv)
    assert (memory.free, memory.needed) == (FREE, 77.31e9 - FREE + kv)
    assert (memory.resident_ctx, memory.resident_batch) == (FREE // (2 * A_TOKEN), FREE // (8192 * A_TOKEN))
    assert memory.offloaded_ctx == FREE // (2 * 2 * A_BLOCK_TOKEN)
    assert memory.deepest == 1
    assert make_plan(LLAMA3_8B, A100_PCIE, 500_000).memory.left == FREE - 500_000 * A_TOKEN < 0
    assert make_plan(LLAMA3_8B, A100_PCIE, 8192, reserve=0.5).memory.usable == 42.95e9
    assert make_plan(LLAMA3_8B, NO_CAPACITY, 8192).memory is None
    mamba = Layer("mamba", 50, 100.0, kv_values=0, state_bytes=512.0)
    hybrid = ModelConfig("hybrid", hidden_size=8, vocab_size=10, layers=(mamba, mamba))
    assert make_plan(hybrid, A100_PCIE, 8192, batch=3).memory.state == 2 * 3 * 512


@pytest.mark.parametrize(
    ("ctx_len", "terms", "window"),
    [
        (1305, FIRST_ORDER, 0),  # the real crossover is 1305.74 tokens
        (1306, FIRST_ORDER, 1),
        (4096, FIRST_ORDER, 4096 - 1305),
        (4096, Terms(kv_dtype="fp8"), 4096 - 2611),
        (4096, Terms(resident_tokens=17), 4096 - 1305),
        (4096, Terms(layer_overhead_us=1e6), 0),
    ],
)
def test_the_window_that_makes_a_context_compute_bound(ctx_len, terms, window):
    plan = make_plan(LLAMA3_8B, A100_PCIE, ctx_len, terms=terms)
    assert plan.computing_window == window
    assert plan.computing_bytes == window * A_TOKEN * (0.5 if terms.kv_dtype == "fp8" else 1)
    with_it = compare(LLAMA3_8B, A100_PCIE, ctx_len, terms=replace(terms, resident_tokens=window))
    assert with_it.bound == "compute"


def test_windows_count_what_layers_hold_of_them():
    plan = make_plan(INTERLEAVED_62, A100_PCIE, 131_072)
    assert plan.computing_window > 1024
    assert plan.computing_bytes == (52 * 1024 + 10 * plan.computing_window) * 2 * 16 * 128 * 2


def test_the_hosts_capacity_is_in_bytes_or_not_known():
    assert make_plan(LLAMA3_8B, replace(A100_PCIE, host_capacity_gb=64), 512).host_capacity == 64e9
    assert make_plan(LLAMA3_8B, A100_PCIE, 512).host_capacity is None


def test_under_a_window_that_fills_the_card_more_depth_can_be_slower():
    one, three = (make_plan(LLAMA3_8B, A100_PCIE, 500_000, depth=depth) for depth in (1, 3))
    assert three.window < one.window
    assert three.filled.prefetch.total_ms > one.filled.prefetch.total_ms * 1.05


def test_a_cache_of_8_bits_that_then_fits_stays_on_the_card():
    plan = make_plan(LLAMA3_8B, A100_PCIE, 600_000)
    (change,) = (change for change in plan.changes if change.advice.startswith("store the cache in 8 bits"))
    assert change.advice == "store the cache in 8 bits, all of which stays on the GPU"
    assert change.total_ms == pytest.approx(plan.step.engine_ms, rel=1e-12)


def test_a_cache_of_8_bits_that_does_not_fit_is_offloaded_all_the_same():
    plan = make_plan(LLAMA3_8B, A100_PCIE, 1_000_000)
    (change,) = (change for change in plan.changes if change.advice == "store the cache in 8 bits")
    assert change.total_ms == compare(LLAMA3_8B, A100_PCIE, 1_000_000, terms=Terms(kv_dtype="fp8")).prefetch.total_ms


layers = st.builds(
    lambda weights, values, window: Layer("any", weights, 2.0 * weights, values, window),
    st.integers(1, 10**5),
    st.sampled_from([0, 64, 256, 1024]),
    st.sampled_from([None, None, 100, 300]),
)
stacks = st.lists(layers, min_size=1, max_size=6).map(
    lambda stack: ModelConfig("any", hidden_size=8, vocab_size=10, layers=tuple(stack))
)
cards = st.builds(HardwareProfile, st.just("any"), st.integers(50, 500), st.integers(1, 60), st.floats(0.001, 0.01))
terms = st.builds(
    Terms,
    kv_dtype=st.sampled_from(["fp16", "fp8", "q4_0"]),
    resident_tokens=st.sampled_from([0, 0, 50]),
    resident_windows=st.booleans(),
    kv_read=st.booleans(),
    cross_token_overlap=st.booleans(),
)


@given(stacks, cards, st.integers(1, 3000), st.integers(1, 3), st.integers(1, 4), terms)
def test_every_change_fits_and_saves_and_the_first_saves_most(model, hw, ctx_len, batch, depth, terms):
    plan = make_plan(model, hw, ctx_len, batch=batch, depth=depth, terms=terms, reserve=0)
    totals = [change.total_ms for change in plan.changes]
    shown = [round(total, 2) for total in totals]
    assert shown == sorted(shown)
    assert all(total < plan.planned_ms for total in totals)
    assert plan.planned_ms <= plan.step.prefetch.total_ms * (1 + 1e-12)
    assert all(change.gpu_bytes <= plan.memory.usable * (1 + 1e-9) for change in plan.changes)
    assert all(change.advice for change in plan.changes)
    usable = usable_bytes(hw, 0)
    if plan.window is not None:
        assert fits(model, usable, ctx_len, batch, depth, replace(terms, resident_tokens=plan.window))
    assert (plan.fit is Fit.RESIDENT) == (plan.window == ctx_len)
    resident_ctx = plan.memory.resident_ctx
    assert (plan.fit is Fit.RESIDENT) == (resident_ctx is None or ctx_len <= resident_ctx)
    assert (plan.fit is Fit.RESIDENT) == (batch <= plan.memory.resident_batch)
    assert (plan.fit is Fit.WEIGHTS) == (Fraction(model.total_bytes) > usable)
    if plan.fit not in (Fit.WEIGHTS, Fit.RESIDENT):
        deepest = plan.memory.deepest
        assert (plan.fit is Fit.OFFLOAD) == (deepest == depth)
        assert (plan.fit is Fit.DEPTH) == (deepest is not None and deepest < depth)
        assert (plan.fit is Fit.NOTHING) == (deepest is None and plan.window is None)


def test_the_greatest_depth_can_be_planned():
    assert make_plan(LLAMA3_8B, A100_PCIE, 8192, depth=10_000).fit is Fit.RESIDENT
    assert make_plan(LLAMA3_8B, A100_PCIE, 10**6, depth=10_000).fit is Fit.DEPTH
    assert make_plan(LLAMA3_8B, A100_PCIE, 10**8, depth=10_000).fit is Fit.NOTHING


def test_a_window_that_was_not_asked_for_is_not_what_does_not_fit():
    """Two buffers of the fat layer's 1000 values exceed the card, which holds it whole beside those of the rest."""
    fat, thin = Layer("fat", 1, 2.0, 10**6, window=10), Layer("thin", 1, 2.0, 10**4)
    model = ModelConfig("any", hidden_size=1, vocab_size=1, layers=(fat, thin, thin, thin))
    plan = make_plan(model, HardwareProfile("any", 100, 10, 0.025), 100, reserve=0)
    assert plan.window == 49
    assert plan.fit is Fit.DEPTH  # one buffer holds it too
    assert plan.memory.deepest == 0


def test_placements_are_those_of_each_context_the_plans_own_and_the_first_that_must_offload():
    plan = make_plan(LLAMA3_8B, A100_PCIE, 8192, Choice.LIMIT, depth=2, terms=Terms(kv_read=True), reserve=0.2)
    first = plan.memory.resident_ctx + 1
    placed = placements(LLAMA3_8B, A100_PCIE, [4096, 512, 8192], plan)
    assert [each.ctx_len for each in placed] == [512, 4096, 8192, first]
    assert [each.fit for each in placed] == [Fit.RESIDENT] * 3 + [Fit.OFFLOAD]
    for each in placed:
        alone = make_plan(LLAMA3_8B, A100_PCIE, each.ctx_len, depth=2, terms=plan.terms, reserve=0.2)
        assert vars(each).items() <= vars(alone).items()
    for model, hw in ((LLAMA2_13B, RTX4090), (WINDOWS_ALONE, A100_PCIE), (LLAMA3_8B, NO_CAPACITY)):
        assert [each.ctx_len for each in placements(model, hw, [512], make_plan(model, hw, 100))] == [100, 512]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ctx_len": 0}, "ctx_len: got 0"),
        ({"batch": 0}, "batch: got 0"),
        ({"depth": 0}, "depth: got 0"),
        ({"terms": None}, "terms: got None; accepted: a Terms"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        make_plan(LLAMA3_8B, A100_PCIE, **{"ctx_len": 512, **arguments})
