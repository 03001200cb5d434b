"""What each term of first order's remainder does, against DESIGN's formulas worked out afresh in exact arithmetic."""

from dataclasses import fields, replace
from fractions import Fraction

import numpy as np
import pytest
from brute_force import brute_force_step
from hypothesis import assume, given
from hypothesis import strategies as st
from stacks import INTERLEAVED_24

from kvprefetch import A100_PCIE, LLAMA3_8B, HardwareProfile, Layer, ModelConfig, compare, crossover_ctx, peak_ctx
from kvprefetch.configs import FIRST_ORDER, Terms, refined
from kvprefetch.crossover import smallest_window
from kvprefetch.planner import sweep_columns
from kvprefetch.roofline import head_time, layer_times, resident_bytes
from kvprefetch.schedule import prefetch_step, steady_step
from kvprefetch.simulation import simulated_step

ROUNDING = 1e-12
A_VALUE = {"f32": Fraction(4), "fp16": Fraction(2), "int8": Fraction(1), "q8_0": Fraction(17, 16)}

rates = st.decimals("1.0", "999.9", places=1).map(float)
cards = st.builds(lambda hbm, pcie: HardwareProfile("any", hbm, pcie), rates, rates)
layers = st.builds(
    lambda weights, values, window: Layer("any", weights, 2.0 * weights, values, window),
    st.integers(1000, 10**5),
    st.sampled_from([0, 16, 64, 256]),
    st.sampled_from([None, None, 3, 17, 60]),
)


def model_of(stack):
    return ModelConfig("any", hidden_size=8, vocab_size=1000, layers=tuple(stack))


stacks = st.lists(layers, min_size=1, max_size=7).map(model_of)
uniform_stacks = st.builds(lambda layer, count: model_of([layer] * count), layers, st.integers(1, 8))
ctx_lens, batches, depths = st.integers(1, 200), st.integers(1, 16), st.integers(1, 4)
efficiencies = st.sampled_from([1.0, 1.0, 0.82, 0.39])
terms = st.builds(
    Terms,
    kv_dtype=st.sampled_from([*A_VALUE]),
    resident_tokens=st.sampled_from([0, 0, 5, 20]),
    resident_windows=st.booleans(),
    kv_read=st.booleans(),
    lm_head=st.booleans(),
    weight_efficiency=efficiencies,
    attention_efficiency=efficiencies,
    pcie_efficiency=efficiencies,
    copy_latency_us=st.sampled_from([0.0, 0.0, 0.1, 7.5]),
    layer_overhead_us=st.sampled_from([0.0, 0.0, 0.1, 3.3]),
    cross_token_overlap=st.booleans(),
)


def exact(figure):
    return Fraction(str(figure))


def exact_times(model, hw, ctx_len, batch, terms):
    """Nanoseconds of engine and of link in each layer."""
    compute, transfer = [], []
    for layer in model.layers:
        held = min(ctx_len, layer.window or ctx_len)
        kept = held if terms.resident_windows and layer.window else min(held, terms.resident_tokens)
        a_token = batch * layer.kv_values * A_VALUE[terms.kv_dtype]
        c = Fraction(layer.weight_bytes) / (exact(hw.hbm_gb_s) * exact(terms.weight_efficiency))
        if terms.kv_read:
            c += held * a_token / (exact(hw.hbm_gb_s) * exact(terms.attention_efficiency))
        compute.append(c + 1000 * exact(terms.layer_overhead_us))
        offloaded = (held - kept) * a_token
        latency = 1000 * exact(terms.copy_latency_us) if offloaded else 0
        transfer.append(offloaded / (exact(hw.pcie_gb_s) * exact(terms.pcie_efficiency)) + latency)
    return compute, transfer


SMALL = model_of([Layer("full", 500, 1000.0, 10), Layer("sliding", 500, 1000.0, 10, window=4)])  # head 16 000 B
SLOW = HardwareProfile("slow", 1, 0.5)


@pytest.mark.parametrize(
    ("terms", "compute", "transfer", "head"),
    [
        ({}, [1000, 1000], [320, 160], 0),  # 8 and 4 tokens of 10 values, 2 B each, at 0.5 B/ns
        ({"kv_dtype": "f32"}, [1000, 1000], [640, 320], 0),
        ({"kv_dtype": "q4_0"}, [1000, 1000], [90, 45], 0),
        ({"resident_tokens": 3}, [1000, 1000], [200, 40], 0),
        ({"resident_tokens": 5}, [1000, 1000], [120, 0], 0),
        ({"resident_tokens": 9}, [1000, 1000], [0, 0], 0),
        ({"resident_windows": True}, [1000, 1000], [320, 0], 0),
        ({"resident_windows": True, "resident_tokens": 3}, [1000, 1000], [200, 0], 0),
        ({"kv_read": True}, [1160, 1080], [320, 160], 0),
        ({"kv_read": True, "resident_tokens": 9, "kv_dtype": "int8"}, [1080, 1040], [0, 0], 0),
        ({"kv_read": True, "attention_efficiency": 0.4}, [1400, 1200], [320, 160], 0),
        ({"attention_efficiency": 0.4}, [1000, 1000], [320, 160], 0),
        ({"lm_head": True}, [1000, 1000], [320, 160], 16_000),
        ({"lm_head": True, "weight_efficiency": 0.8}, [1250, 1250], [320, 160], 20_000),
        ({"weight_efficiency": 0.8, "kv_read": True}, [1410, 1330], [320, 160], 0),
        ({"pcie_efficiency": 0.8}, [1000, 1000], [400, 200], 0),
        ({"copy_latency_us": 7}, [1000, 1000], [7320, 7160], 0),
        ({"copy_latency_us": 7, "resident_tokens": 4}, [1000, 1000], [7160, 0], 0),
        ({"layer_overhead_us": 7}, [8000, 8000], [320, 160], 0),
        ({"cross_token_overlap": True}, [1000, 1000], [320, 160], 0),
    ],
)
def test_each_term_does_to_the_layers_what_its_formula_says(terms, compute, transfer, head):
    times = layer_times(SMALL.layers, SLOW, 8, 1, Terms(**terms))
    assert [ns * 1e-9 for ns in compute] == pytest.approx(times.compute.tolist(), rel=ROUNDING)
    assert [ns * 1e-9 for ns in transfer] == pytest.approx(times.transfer.tolist(), rel=ROUNDING)
    assert head_time(SMALL, SLOW, Terms(**terms)) == pytest.approx(head * 1e-9, rel=ROUNDING)


@given(stacks, cards, ctx_lens, batches, depths, terms)
def test_layers_steps_and_bound_under_any_terms_are_those_of_exact_arithmetic(model, hw, ctx_len, batch, depth, terms):
    c = compare(model, hw, ctx_len, batch, depth, terms)
    compute, transfer = exact_times(model, hw, ctx_len, batch, terms)
    head = 16_000 / (exact(hw.hbm_gb_s) * exact(terms.weight_efficiency)) if terms.lm_head else 0
    assert [1e9 * each for each in c.compute] == pytest.approx([float(each) for each in compute], rel=ROUNDING)
    assert [1e9 * each for each in c.transfer] == pytest.approx([float(each) for each in transfer], rel=ROUNDING)
    assert c.engine_ms == pytest.approx(float(sum(compute) + head) / 1e6, rel=ROUNDING)
    assert c.ondemand.total_ms == pytest.approx(float(sum(compute) + sum(transfer) + head) / 1e6, rel=ROUNDING)
    assert c.bound == ("pcie" if sum(transfer) > sum(compute) else "compute")
    engine = [float(each) for each in (*compute, *([head] if head else []))]
    link = [float(each) for each in (*transfer, *([0] if head else []))]
    simulated = simulated_step(engine, link, depth)
    if terms.cross_token_overlap:
        simulated = simulated_step(engine * 2, link * 2, depth) - simulated
    assert 1e9 * c.prefetch.total_s == pytest.approx(simulated, rel=1e-9)


@given(stacks, cards, batches, terms)
def test_the_crossover_under_any_terms_is_the_first_context_of_a_scan(model, hw, batch, terms):
    def sums(ctx_len):
        return [sum(each) for each in exact_times(model, hw, ctx_len, batch, terms)]

    scanned = range(1, 150)
    first = next((n for n in scanned if sums(n)[1] >= sums(n)[0]), None)
    found = crossover_ctx(model, hw, batch, terms)
    assert first == (found if found in scanned else None)
    if found is not None:
        assert sums(found)[1] >= sums(found)[0]
        assert found == 1 or sums(found - 1)[1] < sums(found - 1)[0]


@given(stacks, cards, batches, terms)
def test_bound_along_a_sweep_is_that_of_a_scan(model, hw, batch, terms):
    scanned = range(1, 90)
    sums = [[sum(each) for each in exact_times(model, hw, n, batch, terms)] for n in scanned]
    bound = sweep_columns(model, hw, scanned, batch, terms=terms).bound.tolist()
    assert bound == ["pcie" if sum_t > sum_c else "compute" for sum_c, sum_t in sums]


@given(stacks, cards, st.integers(1, 100), batches, terms)
def test_the_smallest_computing_window_is_what_a_scan_finds(model, hw, ctx_len, batch, terms):
    def computes(resident_tokens):
        kept = replace(terms, resident_tokens=resident_tokens)
        sum_c, sum_t = (sum(each) for each in exact_times(model, hw, ctx_len, batch, kept))
        return sum_t <= sum_c

    found = smallest_window(model.layers, hw, ctx_len, batch, terms)
    assert found == next(r for r in range(ctx_len + 1) if computes(r))


def test_an_exact_tie_under_terms_is_the_crossover_and_still_compute_bound():
    """c = 1008/0.63 + n·24/0.42 ns, t = n·24/0.21 ns: both 3200 ns at n = 28."""
    layer = Layer("full", 500, 1008.0, 12)
    model, hw = model_of([layer] * 3), HardwareProfile("tie", 0.7, 0.3)
    terms = Terms(kv_read=True, weight_efficiency=0.9, attention_efficiency=0.6, pcie_efficiency=0.7)
    assert crossover_ctx(model, hw, terms=terms) == 28
    assert sweep_columns(model, hw, [27, 28, 29], terms=terms).bound.tolist() == ["compute", "compute", "pcie"]
    assert smallest_window(model.layers, hw, 28, 1, terms) == 0
    assert smallest_window(model.layers, hw, 29, 1, terms) == 1


@pytest.mark.parametrize("field", fields(Terms), ids=lambda field: field.name)
def test_the_default_of_each_term_given_by_name_is_first_order(field):
    assert Terms(**{field.name: field.default}) == FIRST_ORDER


@given(stacks, cards, ctx_lens, batches, depths)
def test_neutral_terms_give_the_same_bits_as_none(model, hw, ctx_len, batch, depth):
    """Section 3's formulas, in floats and in this order, are what default terms still compute."""
    times = layer_times(model.layers, hw, ctx_len, batch)
    held = np.minimum(float(ctx_len), [layer.window or np.inf for layer in model.layers])
    kv = batch * held * np.array([layer.kv_values * 2.0 for layer in model.layers])
    assert times.transfer.tolist() == (kv / (hw.pcie_gb_s * 1e9)).tolist()
    assert times.compute.tolist() == [layer.weight_bytes / (hw.hbm_gb_s * 1e9) for layer in model.layers]
    c = compare(model, hw, ctx_len, batch, depth)
    assert c == compare(model, hw, ctx_len, batch, depth, Terms(attention_efficiency=0.5))
    assert (c.prefetch.total_s, c.head) == (prefetch_step(times.compute, times.transfer, depth), 0.0)


ADDING = [
    ("kv_read", True),
    ("lm_head", True),
    ("weight_efficiency", 0.7),
    ("attention_efficiency", 0.3),
    ("pcie_efficiency", 0.6),
    ("copy_latency_us", 2.5),
    ("layer_overhead_us", 2.5),
]


@pytest.mark.parametrize(("name", "value"), ADDING)
@given(model=stacks, hw=cards, ctx_len=ctx_lens, batch=batches, depth=depths, terms=terms)
def test_what_first_order_leaves_out_only_adds_time(name, value, model, hw, ctx_len, batch, depth, terms):
    neutral = replace(terms, **{name: getattr(FIRST_ORDER, name)})
    without = compare(model, hw, ctx_len, batch, depth, neutral)
    with_it = compare(model, hw, ctx_len, batch, depth, replace(neutral, **{name: value}))
    assert with_it.ondemand.total_s >= without.ondemand.total_s * (1 - ROUNDING)
    assert with_it.prefetch.total_s >= without.prefetch.total_s * (1 - ROUNDING)
    concerned = {
        "kv_read": any(layer.kv_values for layer in model.layers),
        "attention_efficiency": terms.kv_read and any(layer.kv_values for layer in model.layers),
        "pcie_efficiency": any(without.transfer),
        "copy_latency_us": any(without.transfer),
    }
    assert (with_it.ondemand.total_s > without.ondemand.total_s) == concerned.get(name, True)


RELIEVING = [
    ("resident_tokens", 3),
    ("resident_tokens", 40),
    ("resident_windows", True),
    ("kv_dtype", "int8"),
    ("kv_dtype", "q8_0"),
    ("cross_token_overlap", True),
]


@pytest.mark.parametrize(("name", "value"), RELIEVING)
@given(model=stacks, hw=cards, ctx_len=ctx_lens, batch=batches, depth=depths, terms=terms)
def test_what_takes_bytes_or_waits_away_never_adds_time(name, value, model, hw, ctx_len, batch, depth, terms):
    terms = replace(terms, **{name: getattr(FIRST_ORDER, name)})
    without = compare(model, hw, ctx_len, batch, depth, terms)
    with_it = compare(model, hw, ctx_len, batch, depth, replace(terms, **{name: value}))
    assert with_it.ondemand.total_s <= without.ondemand.total_s * (1 + ROUNDING)
    assert with_it.prefetch.total_s <= without.prefetch.total_s * (1 + ROUNDING)


@given(stacks, cards, ctx_lens, batches, depths, terms, st.integers(0, 200))
def test_the_resident_step_is_a_lower_bound_of_every_offloaded_one(model, hw, ctx_len, batch, depth, terms, window):
    resident = compare(model, hw, ctx_len, batch, depth, replace(terms, resident_tokens=ctx_len))
    offloaded = compare(model, hw, ctx_len, batch, depth, replace(terms, resident_tokens=window))
    assert resident.prefetch.total_ms == pytest.approx(resident.engine_ms, rel=ROUNDING)
    assert resident.engine_ms == offloaded.engine_ms <= offloaded.prefetch.total_ms * (1 + ROUNDING)
    assert offloaded.prefetch.total_ms <= offloaded.ondemand.total_ms * (1 + ROUNDING)


@given(stacks, cards, ctx_lens, batches, depths, terms)
def test_any_step_lies_between_its_bounds_and_more_depth_is_never_slower(model, hw, ctx_len, batch, depth, terms):
    c = compare(model, hw, ctx_len, batch, depth, terms)
    deeper = compare(model, hw, ctx_len, batch, depth + 1, terms)
    assert max(c.engine_ms, c.transfer_ms) == c.lower_bound_ms
    assert c.lower_bound_ms * (1 - ROUNDING) <= deeper.prefetch.total_ms <= c.prefetch.total_ms * (1 + ROUNDING)
    assert c.prefetch.total_ms <= c.upper_bound_ms * (1 + ROUNDING)
    assert c.upper_bound_ms == pytest.approx(c.engine_ms + c.transfer_ms, rel=ROUNDING)
    assert c.reduction <= 0.5 + ROUNDING


@given(stacks, cards, ctx_lens, batches, depths, terms)
def test_no_step_hides_more_than_is_hideable_and_the_lm_head_counts(model, hw, ctx_len, batch, depth, terms):
    c = compare(model, hw, ctx_len, batch, depth, terms)
    assert c.hidden_share <= c.hideable_share + ROUNDING
    engine, link = sum(c.compute) + c.head, sum(c.transfer)
    assert c.hideable_share == pytest.approx(1 if not link else min(1, engine / link), rel=ROUNDING)
    without = compare(model, hw, ctx_len, batch, depth, replace(terms, lm_head=False))
    assert c.hideable_share >= without.hideable_share * (1 - ROUNDING)


def test_the_share_that_can_be_hidden_by_hand():
    """6.846 ms of layers and 0.515 ms of LM head against 42.95 ms of the link."""
    layers_ms, head_ms = 32 * 436_207_616 / 2039e6, 2 * 128_256 * 4096 / 2039e6
    for terms, engine_ms in ((FIRST_ORDER, layers_ms), (Terms(lm_head=True), layers_ms + head_ms)):
        step = compare(LLAMA3_8B, A100_PCIE, 8192, terms=terms)
        assert step.hideable_share == pytest.approx(engine_ms / (8192 * 131_072 / 25e6))


@given(stacks, cards, batches, terms)
def test_with_kv_read_a_crossover_exists_only_where_the_link_is_slower_than_attention(model, hw, batch, terms):
    terms = replace(terms, kv_read=True, copy_latency_us=0.0)
    link = exact(hw.pcie_gb_s) * exact(terms.pcie_efficiency)
    attention = exact(hw.hbm_gb_s) * exact(terms.attention_efficiency)
    found = crossover_ctx(model, hw, batch, terms)
    if link >= attention:
        assert found is None
    elif any(layer.kv_values for layer in model.layers) and all(layer.window is None for layer in model.layers):
        assert found is not None


def test_with_kv_read_a_link_as_fast_as_attention_has_no_crossover_and_a_slower_one_has():
    """3200 B of weights at 200 B/ns are 16 ns; a token's 64 B take 64/99.92 - 64/100 ns longer on the slower link."""
    terms = Terms(kv_read=True, attention_efficiency=0.5, pcie_efficiency=0.8)
    for pcie, crossover in ((125, None), (124.9, 31_225)):
        hw = HardwareProfile("any", 200, pcie)
        assert crossover_ctx(model_of([Layer("full", 1, 3200.0, 32)]), hw, terms=terms) == crossover


@given(st.integers(1, 12), st.floats(0, 9), st.floats(0, 9), depths)
def test_the_steady_step_of_a_uniform_stack_is_that_of_its_slower_resource(count, compute, transfer, depth):
    steady = steady_step([compute] * count, [transfer] * count, depth)
    assert steady == pytest.approx(count * max(compute, transfer), rel=1e-9, abs=1e-9)


ticks = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)), min_size=1, max_size=6)


@given(ticks, depths)
def test_the_steady_step_is_what_a_second_pass_adds_to_the_first(pairs, depth):
    compute, transfer = (list(each) for each in zip(*pairs, strict=True))
    steady = steady_step(compute, transfer, depth)
    assert steady == brute_force_step(compute * 2, transfer * 2, depth) - brute_force_step(compute, transfer, depth)
    assert steady == simulated_step(compute * 2, transfer * 2, depth) - simulated_step(compute, transfer, depth)


def test_the_steady_step_takes_arrays_and_broadcasts_them():
    transfer = np.array([[1.0, 2.0], [5.0, 0.0]])
    assert steady_step([3.0, 4.0], transfer).tolist() == [7.0, 7.0]
    assert steady_step(np.full(2, 3.0), np.full((3, 1, 2), 4.0)).tolist() == [[8.0]] * 3


@given(uniform_stacks, cards, batches, depths, terms)
def test_the_peak_of_a_uniform_stack_under_terms_is_what_a_scan_finds(model, hw, batch, depth, terms):
    check_peak(model, hw, batch, depth, terms)


@given(stacks, cards, batches, depths, terms)
def test_the_peak_of_any_stack_without_overlap_is_what_a_scan_finds(model, hw, batch, depth, terms):
    check_peak(model, hw, batch, depth, replace(terms, cross_token_overlap=False))


def check_peak(model, hw, batch, depth, terms):
    peak = peak_ctx(model, hw, batch, depth, terms)
    if peak is None:
        assert not any(layer.kv_values for layer in model.layers)
        return
    scanned = sweep_columns(model, hw, range(1, 600), batch, depth, terms).reduction_pct.max()
    assume(scanned > 0.1)
    assert compare(model, hw, peak, batch, depth, terms).reduction_pct >= scanned - 1e-9


@pytest.mark.parametrize("batch", [1, 64, 1024])
def test_the_peak_with_kv_read_is_at_or_just_before_the_crossover(batch):
    terms = refined(A100_PCIE)
    crossover = crossover_ctx(LLAMA3_8B, A100_PCIE, batch, terms)
    assert crossover - peak_ctx(LLAMA3_8B, A100_PCIE, batch, 1, terms) in (0, 1)


def test_depth_is_a_speed_knob_of_a_uniform_stack_only_with_head_and_overlap():
    def by_depth(**changed):
        terms = Terms(kv_read=True, **changed)
        return [compare(LLAMA3_8B, A100_PCIE, 1400, depth=depth, terms=terms).prefetch.total_ms for depth in (1, 2, 4)]

    assert by_depth(lm_head=True) == pytest.approx([by_depth(lm_head=True)[0]] * 3, rel=ROUNDING)
    assert by_depth(cross_token_overlap=True) == pytest.approx([by_depth(cross_token_overlap=True)[0]] * 3, rel=1e-9)
    one, two, four = by_depth(lm_head=True, cross_token_overlap=True)
    assert one > two > four


def test_resident_bytes_are_what_the_link_does_not_carry():
    kept = resident_bytes(SMALL.layers, np.array([2, 8]), 3, Terms(resident_tokens=3, kv_dtype="int8"))
    assert kept.tolist() == [[60, 60], [90, 90]]
    assert resident_bytes(SMALL.layers, 8, 1, Terms(resident_windows=True)).tolist() == [0, 80]


def test_a_resident_step_has_no_blocks_and_holds_all_kv():
    c = compare(INTERLEAVED_24, A100_PCIE, 4096, terms=Terms(resident_tokens=4096))
    assert (c.prefetch.kv_blocks, c.ondemand.kv_blocks, c.offloaded_bytes) == (0, 0, 0.0)
    assert c.prefetch.gpu_kv_bytes == INTERLEAVED_24.kv_bytes(4096)
    assert (c.hideable_share, c.hidden_share, c.reduction) == (1.0, 1.0, 0.0)
