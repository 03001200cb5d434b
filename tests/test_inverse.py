from dataclasses import replace
from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from stacks import INTERLEAVED_62, WINDOWS_ALONE

from kvprefetch import A100_PCIE, LLAMA3_8B, HardwareProfile, InputError, Layer, ModelConfig, compare
from kvprefetch.configs import FIRST_ORDER, GB, Terms
from kvprefetch.inverse import balancing_pcie, hideable_bytes, longest_ctx, pcie_bound_batch, stall_free_pcie
from kvprefetch.layers import MOST_BATCH
from kvprefetch.roofline import layer_times, offloaded_bytes
from kvprefetch.schedule import timeline

WEIGHTS = 32 * 436_207_616  # B that Llama-3-8B's layers read in a step
HEAD = 2 * 128_256 * 4096  # B of its LM head
A_TOKEN = 131_072  # B of KV in all of them
ROUNDING = 1e-12  # of a step


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(-1, 60))
def test_the_longest_context_is_the_last_that_meets_the_target(rises, target):
    """Level stretches where nothing rises, and level from the last context on."""
    levels = np.array([*accumulate(rises)])
    found = longest_ctx(lambda n: levels[np.minimum(n, len(levels)) - 1], target)
    assert found == (None if levels[-1] <= target else (levels <= target).sum())


@pytest.mark.parametrize(
    ("target_ms", "longest"), [(0.99, 0), (1, 128), (1.99, 128), (2, 129), (10.5, 137), (21, 148), (22, None)]
)
def test_a_target_on_a_level_stretch_keeps_its_last_context(target_ms, longest):
    assert longest_ctx(lambda n: np.clip(n - 127.0, 1, 22), target_ms) == longest


layers = st.builds(
    lambda weights, values, window: Layer("any", weights, 2.0 * weights, values, window),
    st.integers(100, 10**4),
    st.sampled_from([0, 16, 64, 256]),
    st.sampled_from([None, None, 3, 17, 60]),
)
stacks = st.lists(layers, min_size=1, max_size=9).map(
    lambda stack: ModelConfig("any", hidden_size=8, vocab_size=10, layers=tuple(stack))
)
cards = st.builds(HardwareProfile, st.just("any"), st.integers(10, 500), st.integers(1, 100))
terms = st.builds(
    Terms,
    kv_dtype=st.sampled_from(["fp16", "q8_0"]),
    resident_tokens=st.sampled_from([0, 0, 5, 20]),
    resident_windows=st.booleans(),
    kv_read=st.booleans(),
    pcie_efficiency=st.sampled_from([1.0, 0.8]),
    attention_efficiency=st.sampled_from([1.0, 0.4]),
    copy_latency_us=st.sampled_from([0.0, 0.0, 1e-4, 1e-2]),
    layer_overhead_us=st.sampled_from([0.0, 1e-3]),
)
contexts, batches, depths = st.integers(1, 150), st.integers(1, 8), st.integers(1, 4)


def transfers(model, gb_s, ctx_len, batch, terms):
    """Seconds of each layer's copy over a link of any rate."""
    fetched = offloaded_bytes(model.layers, ctx_len, batch, terms)
    return fetched / (gb_s * GB * terms.pcie_efficiency) + (fetched > 0) * terms.copy_latency_us * 1e-6


@given(stacks, cards, contexts, batches, terms)
def test_at_the_balancing_rate_the_link_takes_as_long_as_the_engine_and_longer_below(model, hw, n, batch, terms):
    rate, engine = balancing_pcie(model, hw, n, batch, terms), layer_times(model.layers, hw, n, batch, terms).compute
    fetched = offloaded_bytes(model.layers, n, batch, terms)
    if rate is None:
        assert (fetched > 0).sum() * terms.copy_latency_us * 1e-6 >= engine.sum()
    elif rate == 0:
        assert not fetched.any()
    else:
        assert transfers(model, rate, n, batch, terms).sum() == pytest.approx(engine.sum(), rel=ROUNDING)
        assume(1e-2 < rate < 1e5)
        slower, faster = (
            compare(model, replace(hw, pcie_gb_s=rate * near), n, batch, terms=terms) for near in (0.999, 1.001)
        )
        assert (slower.bound, faster.bound) == ("pcie", "compute")


def longest_wait(model, hw, gb_s, ctx_len, batch, depth, terms):
    """The longest wait after the first fetch, as a share of the step."""
    compute = layer_times(model.layers, hw, ctx_len, batch, terms).compute
    transfer = transfers(model, gb_s, ctx_len, batch, terms)
    moments = timeline(compute, transfer, depth)
    waits = moments.compute_start[1:] - moments.compute_end[:-1]
    return waits[np.flatnonzero(transfer)[0] :].max(initial=0) / moments.compute_end[-1]


@given(stacks, cards, contexts, batches, depths, terms)
def test_from_the_stall_free_rate_on_a_step_waits_for_its_first_fetch_alone(model, hw, n, batch, depth, terms):
    rate = stall_free_pcie(model, hw, n, batch, depth, terms)
    fetched = offloaded_bytes(model.layers, n, batch, terms)
    if not fetched.any():
        assert rate == 0
    elif rate is None:
        assert longest_wait(model, hw, 1e15, n, batch, depth, terms) > ROUNDING
    elif rate == 0:
        assert longest_wait(model, hw, 1e-3, n, batch, depth, terms) <= ROUNDING
        assert np.count_nonzero(fetched) == 1
    else:
        assert longest_wait(model, hw, rate * (1 + 1e-9), n, batch, depth, terms) <= ROUNDING
        assert longest_wait(model, hw, rate * (1 - 1e-4), n, batch, depth, terms) > ROUNDING


@given(stacks, cards, contexts, batches, depths, terms)
def test_a_link_without_stalls_carries_all_but_the_first_fetch_while_the_engine_computes(
    model, hw, n, batch, depth, terms
):
    rate = stall_free_pcie(model, hw, n, batch, depth, terms)
    deeper = stall_free_pcie(model, hw, n, batch, depth + 1, terms)
    assume(rate)
    carried = transfers(model, rate, n, batch, terms)
    first = np.flatnonzero(carried)[0]
    assert np.delete(carried, first).sum() <= layer_times(model.layers, hw, n, batch, terms).compute.sum() * (1 + 1e-12)
    assert deeper <= rate * (1 + ROUNDING)


@given(layers.filter(lambda layer: layer.kv_values), st.integers(2, 12), cards, contexts, batches, depths)
def test_in_a_uniform_stack_the_stall_free_rate_is_the_balancing_one(layer, count, hw, n, batch, depth):
    model = ModelConfig("uniform", hidden_size=8, vocab_size=10, layers=(layer,) * count)
    balancing = balancing_pcie(model, hw, n, batch)
    assert stall_free_pcie(model, hw, n, batch, depth) == pytest.approx(balancing, rel=ROUNDING)


# Bytes over seconds over what a link achieves of its rate, at 2048 tokens.
@pytest.mark.parametrize(
    ("terms", "rate"),
    [
        (FIRST_ORDER, 2048 * A_TOKEN * 2039 / WEIGHTS),
        (Terms(pcie_efficiency=0.8), 2048 * A_TOKEN * 2039 / WEIGHTS / 0.8),
        (Terms(kv_dtype="q4_0", resident_tokens=48), 2000 * A_TOKEN * 9 / 32 * 2039 / WEIGHTS),
        (Terms(copy_latency_us=100), 2048 * A_TOKEN / (WEIGHTS / 2039 - 32 * 100_000)),
        (Terms(copy_latency_us=213), 2048 * A_TOKEN / (WEIGHTS / 2039 - 32 * 213_000)),
        (Terms(copy_latency_us=214), None),  # a layer computes 213.93 µs
        (Terms(resident_tokens=2048), 0),
        (Terms(resident_tokens=2048, copy_latency_us=1e6), 0),
    ],
)
def test_the_rates_of_links_by_hand(terms, rate):
    expected = rate and pytest.approx(rate)
    assert balancing_pcie(LLAMA3_8B, A100_PCIE, 2048, terms=terms) == expected
    assert stall_free_pcie(LLAMA3_8B, A100_PCIE, 2048, depth=2, terms=terms) == expected


def test_a_single_fetch_is_the_fill_whatever_the_link():
    model = replace(LLAMA3_8B, num_hidden_layers=1)
    assert stall_free_pcie(model, A100_PCIE, 10**6, terms=Terms(copy_latency_us=1e6)) == 0
    assert balancing_pcie(model, A100_PCIE, 1306) == pytest.approx(1306 * 4096 * 2039 / 436_207_616)


def test_an_interleaved_stack_needs_a_faster_link_than_its_sums_say():
    """Depth 1: a full layer's 2048 tokens land beside three sliding layers' 1024, its buffer free after the first."""
    a_layer, a_token = INTERLEAVED_62.layers[0].weight_bytes / 2039, 2 * 16 * 128 * 2
    assert stall_free_pcie(INTERLEAVED_62, A100_PCIE, 2048) == pytest.approx(2048 * a_token / a_layer)
    assert balancing_pcie(INTERLEAVED_62, A100_PCIE, 2048) == pytest.approx(
        (52 * 1024 + 10 * 2048) * a_token / (62 * a_layer)
    )


moe = st.builds(
    lambda weights, values, window, experts, used, size: Layer(
        "moe", weights, 2.0 * weights, values, window, experts, min(used, experts), size, 2.0 * size
    ),
    st.integers(1, 10**4),
    st.sampled_from([0, 8, 64]),
    st.sampled_from([None, 17]),
    st.integers(1, 16),
    st.integers(1, 16),
    st.integers(1, 10**4),
)
mixed = st.lists(st.one_of(layers, moe), min_size=1, max_size=4).map(
    lambda stack: ModelConfig("any", hidden_size=8, vocab_size=10, layers=tuple(stack))
)


@given(mixed, cards, contexts, terms)
def test_the_batch_from_which_the_link_is_the_bound_is_the_one_that_a_scan_finds(model, hw, n, terms):
    """sum t against sum c in rationals, worked out afresh; from that batch on, and for none before."""
    a_value = {"fp16": Fraction(2), "q8_0": Fraction(34, 32)}[terms.kv_dtype]
    held = [min(n, layer.window or n) for layer in model.layers]
    crossing = [
        0 if terms.resident_windows and layer.window else max(0, tokens - terms.resident_tokens)
        for layer, tokens in zip(model.layers, held, strict=True)
    ]
    fetched, cached = (
        a_value * sum(count * layer.kv_values for count, layer in zip(counts, model.layers, strict=True))
        for counts in (crossing, held)
    )
    fetching = sum(count * layer.kv_values > 0 for count, layer in zip(crossing, model.layers, strict=True))
    of_copies = (terms.copy_latency_us, terms.pcie_efficiency)
    of_engine = (terms.layer_overhead_us, terms.attention_efficiency)
    latency, link, overhead, reading = (Fraction(str(figure)) for figure in (*of_copies, *of_engine))

    def link_takes_as_long(batch):
        read = sum(
            Fraction(layer.weight_bytes)
            + Fraction(layer.expert_bytes)
            * (layer.experts and layer.experts * (1 - (1 - Fraction(layer.experts_per_token, layer.experts)) ** batch))
            for layer in model.layers
        )
        engine = read / hw.hbm_gb_s + len(model.layers) * overhead * 1000
        engine += terms.kv_read * batch * cached / (hw.hbm_gb_s * reading)
        return batch * fetched / (hw.pcie_gb_s * link) + fetching * latency * 1000 >= engine

    scanned = [batch for batch in range(1, 60) if link_takes_as_long(batch)]
    found = pcie_bound_batch(model, hw, n, terms)
    assert scanned == [*range(found, 60)] if scanned else found is None or found >= 60
    if found and found >= 60:
        assert link_takes_as_long(found) and not link_takes_as_long(found - 1)


@pytest.mark.parametrize(
    ("model", "hw", "ctx_len", "terms", "batch"),
    [
        (LLAMA3_8B, A100_PCIE, 1306, FIRST_ORDER, 1),  # the real crossover of one sequence is 1305.74 tokens
        (LLAMA3_8B, A100_PCIE, 1305, FIRST_ORDER, 2),
        (LLAMA3_8B, A100_PCIE, 512, FIRST_ORDER, 3),
        (LLAMA3_8B, A100_PCIE, 1, FIRST_ORDER, 1306),
        (LLAMA3_8B, replace(A100_PCIE, pcie_gb_s=2039), 4096, Terms(kv_read=True), None),
        (LLAMA3_8B, replace(A100_PCIE, pcie_gb_s=2038), 4096, Terms(kv_read=True), 26 * 2038),
        (LLAMA3_8B, A100_PCIE, 4096, Terms(resident_tokens=4096), None),
        (WINDOWS_ALONE, replace(A100_PCIE, hbm_gb_s=0.1, pcie_gb_s=2000), 1, FIRST_ORDER, None),
    ],
)
def test_the_batch_from_which_the_link_is_the_bound_by_hand(model, hw, ctx_len, terms, batch):
    assert pcie_bound_batch(model, hw, ctx_len, terms) == batch
    if batch:
        for each, bound in ((batch, True), (batch - 1, False)):
            step = compare(model, hw, ctx_len, max(1, each), terms=terms)
            assert (step.transfer_ms >= step.compute_ms * (1 - 1e-9)) == (bound or batch == 1)


def test_the_largest_batch_is_still_looked_at():
    """One layer of 2·10^6 B and 2 B a sequence: equal at the largest batch there is, and beyond it with 2 B more."""
    hw = HardwareProfile("any", 100, 100)
    for params, batch in ((MOST_BATCH, MOST_BATCH), (MOST_BATCH + 1, None)):
        layer = Layer("any", params, 2.0 * params, kv_values=1)
        model = ModelConfig("any", hidden_size=1, vocab_size=1, layers=(layer,))
        assert pcie_bound_batch(model, hw, 1) == batch


@pytest.mark.parametrize(
    ("terms", "hidden"),
    [
        (FIRST_ORDER, WEIGHTS * 25 / 2039),
        (Terms(pcie_efficiency=0.8), WEIGHTS * 20 / 2039),
        (Terms(weight_efficiency=0.5), WEIGHTS * 50 / 2039),
        (Terms(copy_latency_us=100), WEIGHTS * 25 / 2039 / (1 + 32 * 100e-6 * 25e9 / (512 * A_TOKEN))),
        (Terms(copy_latency_us=100, resident_tokens=512), WEIGHTS * 25 / 2039),  # no copy, no latency
        (Terms(kv_read=True), (WEIGHTS + 512 * A_TOKEN) * 25 / 2039),
        (Terms(lm_head=True), (WEIGHTS + HEAD) * 25 / 2039),
        (Terms(lm_head=True, weight_efficiency=0.5, pcie_efficiency=0.8), (WEIGHTS + HEAD) * 40 / 2039),
        (
            Terms(lm_head=True, copy_latency_us=100),
            (WEIGHTS + HEAD) * 25 / 2039 / (1 + 32 * 100e-6 * 25e9 / (512 * A_TOKEN)),
        ),
    ],
)
def test_the_bytes_that_a_step_can_hide_by_hand(terms, hidden):
    assert hideable_bytes(LLAMA3_8B, A100_PCIE, 512, terms=terms) == pytest.approx(hidden)


@given(stacks, cards, contexts, batches, depths, terms, st.booleans())
def test_the_bytes_that_a_step_can_hide_are_its_hideable_share_of_what_is_carried(model, hw, n, b, depth, terms, head):
    terms = replace(terms, lm_head=head)
    step = compare(model, hw, n, b, depth, terms)
    carried = min(step.offloaded_bytes, hideable_bytes(model, hw, n, b, terms))
    assert carried == pytest.approx(step.hideable_share * step.offloaded_bytes, rel=1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ctx_len": 0}, "ctx_len: got 0; accepted: a whole number from 1 to 1000000000"),
        ({"ctx_len": 1.5}, "ctx_len: got 1.5"),
        ({"batch": 0}, "batch: got 0"),
        ({"depth": 0}, "depth: got 0"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    for ask in (balancing_pcie, stall_free_pcie, hideable_bytes, pcie_bound_batch):
        if set(arguments) <= set(ask.__annotations__):
            with pytest.raises(InputError, match=message):
                ask(LLAMA3_8B, A100_PCIE, **{"ctx_len": 512, **arguments})
