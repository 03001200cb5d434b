import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvprefetch import (
    A100_PCIE,
    LLAMA3_8B,
    HardwareProfile,
    InputError,
    Layer,
    ModelConfig,
    compare,
    crossover_ctx,
    load_model,
    peak_ctx,
    sweep,
)
from kvprefetch.configs import Terms
from kvprefetch.planner import DEFAULT_CONTEXTS, SweepRow, contexts_in_order, steps_at, sweep_columns
from kvprefetch.roofline import layer_times
from kvprefetch.simulation import simulated_step
from kvprefetch.verify import verify

ROUNDING = 1e-12

models = st.builds(
    lambda layers, hidden, kv_heads, group, ffn: ModelConfig(
        "any", layers, 8 * hidden, kv_heads * group, ffn, 1000, num_key_value_heads=kv_heads, head_dim=8
    ),
    st.integers(1, 40),
    st.integers(1, 64),
    st.integers(1, 8),
    st.integers(1, 4),
    st.integers(1, 2000),
)
rates = st.decimals("1.0", "999.9", places=1).map(float)
cards = st.builds(lambda hbm, pcie: HardwareProfile("any", hbm, pcie), rates, rates)
contexts, batches, depths = st.integers(1, 10**6), st.integers(1, 16), st.integers(1, 4)


def times_in_rationals(model, hw, ctx_len, batch):
    """sum c and sum t, worked out afresh from DESIGN's formulas in exact arithmetic."""
    attention = 2 * model.hidden_size * model.head_dim * (model.num_attention_heads + model.num_key_value_heads)
    weights = 2 * (attention + 3 * model.hidden_size * model.intermediate_size)
    cache = 2 * batch * ctx_len * model.num_key_value_heads * model.head_dim * 2
    layers = model.num_hidden_layers
    return layers * weights / Fraction(str(hw.hbm_gb_s)), layers * cache / Fraction(str(hw.pcie_gb_s))


@pytest.mark.parametrize("terms", [Terms(), Terms(kv_read=True, lm_head=True)])
def test_a_step_is_the_same_to_the_bit_however_many_are_asked_for(terms):
    contexts = np.geomspace(1, 10**6, 300).astype(int)
    for name in ("llama3-8b", "gemma3-27b", "deepseek-v3"):
        many = steps_at(load_model(name), A100_PCIE, contexts, 2, 1, terms)
        ones = [steps_at(load_model(name), A100_PCIE, contexts[k : k + 1], 2, 1, terms) for k in range(len(contexts))]
        for policy in ("engine", "ondemand", "prefetch"):
            assert getattr(many, policy).tolist() == [getattr(one, policy)[0] for one in ones], (name, policy)


@given(models, cards, batches)
def test_the_crossover_is_the_first_context_at_which_sum_t_reaches_sum_c(model, hw, batch):
    crossover = crossover_ctx(model, hw, batch)
    sum_c, sum_t = times_in_rationals(model, hw, crossover, batch)
    assert sum_t >= sum_c
    if crossover > 1:
        sum_c, sum_t = times_in_rationals(model, hw, crossover - 1, batch)
        assert sum_t < sum_c


def test_exact_ties_are_not_rounded_away():
    """Cards whose crossover is a whole number exactly; the ceiling of the float quotient misses some of them."""
    missed = 0
    for pcie in range(1, 400):
        model = ModelConfig("tie", 1, 8, 1, 8, 10, head_dim=8)  # W = 2·(256 + 192) = 896 B, K(1) = 32 B
        hw = HardwareProfile("tie", 0.7, pcie / 10)
        exact = Fraction(896, 32) * Fraction(pcie, 10) / Fraction(7, 10)
        if exact.denominator == 1:
            assert crossover_ctx(model, hw) == exact
            assert compare(model, hw, int(exact)).bound == "compute"
            assert compare(model, hw, int(exact) + 1).bound == "pcie"
            missed += math.ceil((pcie / 10 * 1e9) / 32 * (896 / (0.7 * 1e9))) != exact
    assert missed


@given(models, cards, batches, depths)
def test_the_peak_of_a_uniform_stack_is_at_the_crossover_or_just_before(model, hw, batch, depth):
    """q is the real crossover: n*-1 wins where (n*-1)·n* > q²; with one layer nothing can be saved anywhere."""
    peak, crossover = peak_ctx(model, hw, batch, depth), crossover_ctx(model, hw, batch)
    if model.num_hidden_layers == 1:
        assert compare(model, hw, peak, batch, depth).reduction == 0
        return
    sum_c, sum_t = times_in_rationals(model, hw, 1, batch)
    before_wins = crossover > 1 and (crossover - 1) * crossover > (sum_c / sum_t) ** 2
    best = compare(model, hw, crossover - 1 if before_wins else crossover, batch, depth).reduction
    assert crossover - peak in (0, 1)
    assert compare(model, hw, peak, batch, depth).reduction == pytest.approx(best, abs=ROUNDING)


layers = st.builds(
    lambda weights, values, window: Layer("any", weights, 2.0 * weights, values, window),
    st.integers(1, 10**6),
    st.sampled_from([0, 16, 64, 256]),
    st.sampled_from([None, None, 3, 17, 60]),
)
stacks = st.lists(layers, min_size=1, max_size=7).map(
    lambda stack: ModelConfig("any", hidden_size=8, vocab_size=10, layers=tuple(stack))
)
terms = st.builds(Terms, resident_tokens=st.sampled_from([0, 0, 5, 20]), resident_windows=st.booleans())


@given(stacks, cards, batches, terms)
def test_the_crossover_of_any_stack_is_what_a_scan_finds(model, hw, batch, terms):
    sum_c = sum(Fraction(layer.weight_bytes) for layer in model.layers) / Fraction(str(hw.hbm_gb_s))

    def sum_t(ctx_len):
        tokens = [
            0
            if terms.resident_windows and layer.window
            else max(0, min(ctx_len, layer.window or ctx_len) - terms.resident_tokens)
            for layer in model.layers
        ]
        values = sum(count * layer.kv_values for count, layer in zip(tokens, model.layers, strict=True))
        return 2 * batch * values / Fraction(str(hw.pcie_gb_s))

    scanned = range(1, 3000)
    found = crossover_ctx(model, hw, batch, terms)
    assert next((n for n in scanned if sum_t(n) >= sum_c), None) == (found if found in scanned else None)
    bounds = sweep_columns(model, hw, [1, 100, 2999], batch, terms=terms).bound
    assert bounds.tolist() == ["pcie" if sum_t(n) > sum_c else "compute" for n in (1, 100, 2999)]
    if found is None:
        assert not any(layer.kv_values for layer in model.layers if layer.window is None)


@given(stacks, cards, batches, depths, terms)
def test_the_peak_of_any_stack_is_what_a_scan_finds(model, hw, batch, depth, terms):
    peak = peak_ctx(model, hw, batch, depth, terms)
    if peak is None:
        assert not any(layer.kv_values for layer in model.layers)
        return
    scanned = sweep_columns(model, hw, range(1, 3000), batch, depth, terms).reduction_pct.max()
    assert compare(model, hw, peak, batch, depth, terms).reduction_pct >= scanned - 100 * ROUNDING


@given(stacks, cards, st.integers(1, 200), batches, depths, terms)
def test_any_stack_obeys_the_laws_of_all(model, hw, ctx_len, batch, depth, terms):
    c = compare(model, hw, ctx_len, batch, depth, terms)
    assert c.reduction <= 0.5 + ROUNDING
    assert c.lower_bound_ms <= c.prefetch.total_ms * (1 + ROUNDING)
    assert c.prefetch.total_ms <= c.upper_bound_ms * (1 + ROUNDING)
    assert c.prefetch.total_s == pytest.approx(simulated_step(c.compute, c.transfer, depth), rel=ROUNDING)
    deeper = compare(model, hw, ctx_len, batch, depth + 1, terms)
    assert deeper.prefetch.total_s <= c.prefetch.total_s * (1 + ROUNDING)
    alone = compare(model, hw, ctx_len, batch, depth)
    assert c.prefetch.total_s <= alone.prefetch.total_s * (1 + ROUNDING)
    assert c.ondemand.resident_bytes + sum(c.transfer) * hw.pcie_gb_s * 1e9 == pytest.approx(
        model.kv_bytes(ctx_len, batch)
    )


@given(models, cards, contexts, batches, depths)
def test_a_uniform_stack_obeys_its_laws(model, hw, ctx_len, batch, depth):
    c = compare(model, hw, ctx_len, batch, depth)
    layers = model.num_hidden_layers
    assert c.reduction <= (layers - 1) / (2 * layers) + ROUNDING
    assert c.lower_bound_ms <= c.prefetch.total_ms * (1 + ROUNDING)
    assert c.prefetch.total_ms <= c.upper_bound_ms * (1 + ROUNDING)
    assert c.speedup == pytest.approx(1 / (1 - c.reduction))
    assert -ROUNDING <= c.hidden_share <= 1
    assert c.stall_ms >= 1e3 * c.transfer[0] * (1 - 1e-9) - c.lower_bound_ms * ROUNDING
    assert c.prefetch.total_s == pytest.approx(
        compare(model, hw, ctx_len, batch, depth + 1).prefetch.total_s, rel=1e-12
    )
    sum_c, sum_t = times_in_rationals(model, hw, ctx_len, batch)
    assert c.bound == ("pcie" if sum_t > sum_c else "compute")


@given(models, cards, st.lists(contexts, min_size=1, max_size=8), batches, depths)
def test_a_sweep_row_is_the_comparison_at_its_context(model, hw, ctx_lens, batch, depth):
    for row in sweep_columns(model, hw, ctx_lens, batch, depth).rows():
        c = compare(model, hw, row.ctx_len, batch, depth)
        assert row == SweepRow(c.ctx_len, c.ondemand.total_ms, c.prefetch.total_ms, c.reduction_pct, c.speedup, c.bound)


def test_the_gpu_holds_one_block_on_demand_and_one_more_a_layer_of_depth():
    for depth, blocks in ((1, 2), (2, 3), (31, 32), (40, 32)):
        c = compare(LLAMA3_8B, A100_PCIE, 4096, batch=2, depth=depth)
        assert (c.ondemand.kv_blocks, c.prefetch.kv_blocks) == (1, blocks)
        assert c.prefetch.gpu_kv_bytes == blocks * 2 * 4096 * 2 * 8 * 128 * 2


def test_a_stack_that_caches_nothing_never_waits():
    model = ModelConfig("mlp", hidden_size=8, vocab_size=10, layers=(Layer("mlp", 100, 200.0, kv_values=0),) * 2)
    c = compare(model, A100_PCIE, 100)
    assert crossover_ctx(model, A100_PCIE) is None
    assert peak_ctx(model, A100_PCIE) is None
    assert (c.bound, c.hidden_share, c.reduction, c.stall_ms) == ("compute", 1.0, 0.0, 0.0)
    assert (c.ondemand.kv_blocks, c.prefetch.gpu_kv_bytes) == (0, 0.0)


def test_routed_experts_are_read_as_the_batch_touches_them():
    expert = Layer("moe", 10, 20.0, 8, experts=8, experts_per_token=2, expert_params=100, expert_bytes=200.0)
    for batch, touched in ((1, 2), (2, 3.5), (10**6, 8)):
        times = layer_times((expert,), A100_PCIE, 1, batch)
        assert times.compute[0] == pytest.approx((20 + touched * 200) / 2039e9)


def test_layer_times_are_work_over_rate():
    times = layer_times(LLAMA3_8B.layers, A100_PCIE, np.array([512, 1024]), batch=3)
    assert times.compute.shape == times.transfer.shape == (2, 32)
    assert times.compute[0, 0] == 436207616 / 2039e9
    assert times.transfer[1, 31] == 3 * 1024 * 4096 / 25e9


def test_the_public_sweep_is_a_frame_with_the_columns_of_metrics_json():
    frame = sweep(LLAMA3_8B, A100_PCIE, [1024, 512, 512])
    assert list(frame.columns) == ["ctx_len", "ondemand_ms", "prefetch_ms", "reduction_pct", "speedup", "bound"]
    assert frame["ctx_len"].tolist() == [512, 1024]


def test_contexts_are_put_in_order_and_each_is_kept_once():
    assert contexts_in_order([4, 1, 4, 2]).tolist() == [1, 2, 4]
    assert contexts_in_order(np.array([9, 3], dtype=np.uint64)).dtype == int
    assert contexts_in_order(iter(DEFAULT_CONTEXTS)).tolist() == list(DEFAULT_CONTEXTS)


@pytest.mark.parametrize(
    ("ctx_lens", "message"),
    [
        ([], "contexts: got 'none'; accepted: one or more whole numbers"),
        ([0], "contexts: got 0"),
        ([512, -1], "contexts: got -1"),
        ([512, 1.5], "contexts: got 1.5"),
        ([512, "1024"], "contexts: got '1024'"),
        ([512, None], "contexts: got None"),
        ([True], "contexts: got True"),
        ([10**9 + 1], "contexts: got 1000000001; accepted: a whole number from 1 to 1000000000"),
        (np.array([0, 5]), "contexts: got "),
        (np.array([1.0]), "contexts: got "),
        ("512", "contexts: got '512'; accepted: several whole numbers"),
        (b"ab", "contexts: got b'ab'"),
        (np.array(5), "contexts: got"),
        (np.array([[5]]), "contexts: got"),
        (512, "contexts: got 512; accepted: several whole numbers"),
    ],
)
def test_contexts_that_cannot_be_swept_are_refused(ctx_lens, message):
    with pytest.raises(InputError, match=message):
        sweep_columns(LLAMA3_8B, A100_PCIE, ctx_lens)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ctx_len": 0}, "ctx_len: got 0"),
        ({"ctx_len": "512"}, "ctx_len: got '512'"),
        ({"batch": 0}, "batch: got 0; accepted: a whole number from 1 to 1000000"),
        ({"batch": 2.5}, "batch: got 2.5"),
        ({"depth": 0}, "depth: got 0; accepted: a whole number from 1 to 10000"),
        ({"depth": 10**5}, "depth: got 100000"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        compare(LLAMA3_8B, A100_PCIE, **{"ctx_len": 512, **arguments})
    if "batch" in arguments:
        for ask in (crossover_ctx, peak_ctx):
            with pytest.raises(InputError, match=message):
                ask(LLAMA3_8B, A100_PCIE, **arguments)


def test_figures_of_any_real_type_are_taken_by_their_decimal_text():
    exact = HardwareProfile("any", 2039, 25.1)
    for hw in (
        HardwareProfile("any", np.float64(2039), np.float64(25.1)),
        HardwareProfile("any", Fraction(2039), 25.1),
    ):
        assert crossover_ctx(LLAMA3_8B, hw) == crossover_ctx(LLAMA3_8B, exact)
        assert compare(LLAMA3_8B, hw, 4096).prefetch == compare(LLAMA3_8B, exact, 4096).prefetch


@pytest.mark.parametrize(
    ("model", "hw", "terms", "message"),
    [
        ("llama3-8b", A100_PCIE, Terms(), "model: got 'llama3-8b'; accepted: a ModelConfig; load_model"),
        (LLAMA3_8B, "a100", Terms(), "hw: got 'a100'; accepted: a HardwareProfile"),
        (A100_PCIE, LLAMA3_8B, Terms(), "model: got HardwareProfile"),
        (LLAMA3_8B, A100_PCIE, None, "terms: got None; accepted: a Terms"),
    ],
)
def test_one_given_for_another_is_refused(model, hw, terms, message):
    for ask in (
        lambda: compare(model, hw, 512, terms=terms),
        lambda: crossover_ctx(model, hw, terms=terms),
        lambda: peak_ctx(model, hw, terms=terms),
        lambda: sweep_columns(model, hw, [512], terms=terms),
    ):
        with pytest.raises(InputError, match=message):
            ask()


def test_an_exact_tie_beyond_the_precision_of_doubles_is_found_and_verified():
    model = ModelConfig("tie", 3137, 4992383, 1213, 3777282, 10, head_dim=1557)
    hw = HardwareProfile("tie", 100, 100)
    assert all(check.holds for check in verify(model, hw, [512, crossover_ctx(model, hw)]))
