from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stacks import WINDOWS_ALONE

from kvprefetch import A100_PCIE, LLAMA2_13B, LLAMA3_8B, RTX4090, HardwareProfile, Layer, ModelConfig
from kvprefetch.capacity import (
    fits,
    free_bytes,
    largest_depth,
    largest_offloaded_ctx,
    largest_resident_batch,
    largest_resident_ctx,
    largest_window,
    usable_bytes,
)
from kvprefetch.configs import FIRST_ORDER, Terms
from kvprefetch.layers import MOST_BATCH, MOST_CTX

A_VALUE = {"f32": Fraction(4), "fp16": Fraction(2), "fp8": Fraction(1), "q8_0": Fraction(34, 32)}
LONGEST = 30  # of the contexts that capacities are drawn from
SCANNED = range(1, 10 * LONGEST)


def bytes_on_gpu(model, ctx_len, batch, depth, terms):
    """Weights, state, resident KV and buffers, counted layer by layer."""
    total = Fraction(2 * 2 * model.vocab_size * model.hidden_size)  # embeddings and LM head, 16 bits
    rests = []
    for layer in model.layers:
        total += Fraction(layer.weight_bytes) + layer.experts * Fraction(layer.expert_bytes)
        total += batch * Fraction(layer.state_bytes)
        held = min(ctx_len, layer.window or ctx_len)
        kept = held if terms.resident_windows and layer.window else min(held, terms.resident_tokens)
        total += batch * kept * layer.kv_values * A_VALUE[terms.kv_dtype]
        rests += [batch * (held - kept) * layer.kv_values * A_VALUE[terms.kv_dtype]]
    fetching = [rest for rest in rests if rest]
    return total + min(depth + 1, len(fetching)) * max(fetching, default=0)


layers = st.builds(
    lambda weights, values, window, state, experts: Layer(
        "any", weights, 2.0 * weights, values, window, *((experts, 1, 3, 6.5) if experts else ()), state_bytes=state
    ),
    st.integers(1, 50),
    st.sampled_from([0, 1, 2, 3, 7, 40]),
    st.sampled_from([None, None, 3, 8, 20]),
    st.sampled_from([0.0, 0.0, 5.5]),
    st.sampled_from([0, 0, 4]),
)
stacks = st.lists(layers, min_size=1, max_size=6).map(
    lambda stack: ModelConfig("any", hidden_size=2, vocab_size=3, layers=tuple(stack))
)
ctx_lens, batches, depths = st.integers(1, LONGEST), st.integers(1, 3), st.integers(1, 4)
terms = st.builds(
    Terms,
    kv_dtype=st.sampled_from([*A_VALUE]),
    resident_tokens=st.sampled_from([0, 0, 2, 10]),
    resident_windows=st.booleans(),
)
beside = st.sampled_from([Fraction(0), Fraction(0), Fraction(-1, 100), Fraction(1), Fraction(9), Fraction(-(10**3))])


def everything_resident(ctx_len, kv_dtype):
    return Terms(kv_dtype=kv_dtype, resident_tokens=ctx_len)


@given(stacks, ctx_lens, batches, terms, beside)
def test_the_largest_resident_context_is_what_a_scan_finds(model, ctx_len, batch, terms, beside):
    def taken(n):
        return bytes_on_gpu(model, n, batch, 1, everything_resident(n, terms.kv_dtype))

    usable = taken(ctx_len) + beside
    found = largest_resident_ctx(model, usable, batch, terms.kv_dtype)
    scanned = sum(taken(n) <= usable for n in SCANNED)
    assert found == (None if scanned == len(SCANNED) else scanned)


@given(stacks, ctx_lens, batches, terms, beside)
def test_the_largest_resident_batch_is_what_a_scan_finds(model, ctx_len, batch, terms, beside):
    def taken(b):
        return bytes_on_gpu(model, ctx_len, b, 1, everything_resident(ctx_len, terms.kv_dtype))

    usable = taken(batch) + beside
    found = largest_resident_batch(model, usable, ctx_len, terms.kv_dtype)
    scanned = sum(taken(b) <= usable for b in range(1, 30))
    assert found == (MOST_BATCH if scanned == 29 else scanned)


@given(stacks, ctx_lens, batches, depths, terms, beside)
def test_what_fits_is_weights_state_resident_kv_and_buffers(model, ctx_len, batch, depth, terms, beside):
    usable = bytes_on_gpu(model, ctx_len, batch, depth, terms) + beside
    assert fits(model, usable, ctx_len, batch, depth, terms) == (beside >= 0)


@given(stacks, ctx_lens, batches, depths, terms, beside)
def test_the_largest_offloaded_context_is_what_a_scan_finds(model, ctx_len, batch, depth, terms, beside):
    usable = bytes_on_gpu(model, ctx_len, batch, depth, terms) + beside
    found = largest_offloaded_ctx(model, usable, batch, depth, terms)
    scanned = sum(bytes_on_gpu(model, n, batch, depth, terms) <= usable for n in SCANNED)
    assert found == (None if scanned == len(SCANNED) else scanned)


@given(stacks, ctx_lens, batches, depths, terms, ctx_lens, beside)
def test_the_largest_window_is_what_a_scan_finds(model, ctx_len, batch, depth, terms, window, beside):
    def taken(resident_tokens):
        return bytes_on_gpu(model, ctx_len, batch, depth, replace(terms, resident_tokens=resident_tokens))

    usable = taken(min(window, ctx_len)) + beside
    scanned = [r for r in range(ctx_len + 1) if taken(r) <= usable]
    assert largest_window(model, usable, ctx_len, batch, depth, terms) == max(scanned, default=None)


@given(stacks, ctx_lens, batches, depths, terms, st.integers(0, 7), beside)
def test_the_largest_depth_is_what_a_scan_finds(model, ctx_len, batch, most, terms, depth, beside):
    """Depth 0 is on-demand, whose one buffer every look-ahead has too."""
    usable = bytes_on_gpu(model, ctx_len, batch, depth, terms) + beside
    scanned = [d for d in range(most + 1) if bytes_on_gpu(model, ctx_len, batch, d, terms) <= usable]
    assert largest_depth(model, usable, ctx_len, batch, most, terms) == max(scanned, default=None)


@given(stacks, ctx_lens, batches, depths, terms, ctx_lens, beside)
def test_where_a_part_of_the_cache_fits_beside_buffers_on_demand_fits_too(
    model, ctx_len, batch, depth, terms, window, beside
):
    """So a plan without a resident window that fits no depth fits with no window either."""
    terms = replace(terms, resident_tokens=0)
    usable = bytes_on_gpu(model, ctx_len, batch, depth, replace(terms, resident_tokens=min(window, ctx_len))) + beside
    if largest_window(model, usable, ctx_len, batch, depth, terms) is not None:
        assert fits(model, usable, ctx_len, batch, 0, terms)


def test_the_windows_that_fit_need_not_be_one_range():
    """With R = 0 two buffers of 20·1000 B fill 40 000 B; more fits again once the small windows are full."""
    small, fat, full = (Layer("any", 1, 0.5, values, window) for values, window in ((10, 10), (1000, 20), (10, None)))
    model = ModelConfig("any", hidden_size=1, vocab_size=1, layers=(small,) * 100 + (fat,) + (full,) * 20)
    usable, terms = free_bytes(model, Fraction(0)) * -1 + 40_000, Terms(kv_dtype="fp8")
    fitting = [r for r in range(101) if fits(model, usable, 100, terms=replace(terms, resident_tokens=r))]
    assert fitting == [0, *range(13, 45)]
    assert largest_window(model, usable, 100, terms=terms) == 44
    assert largest_window(model, usable - 5_200, 100, terms=terms) == 19
    assert largest_window(model, usable - 5_201, 100, terms=terms) is None


def test_the_window_that_fits_can_be_the_one_at_which_another_layers_rest_becomes_the_largest():
    """Up to R = 11 the sliding layer's rest is the larger, 10·(20 - R) against 100 - R values: 323 B, the least."""
    sliding, full = Layer("sliding", 1, 0.5, 10, window=20), Layer("full", 1, 0.5, 1)
    model = ModelConfig("any", hidden_size=1, vocab_size=1, layers=(sliding, full, full, full))
    usable, terms = 323 - free_bytes(model, Fraction(0)), Terms(kv_dtype="fp8")
    assert largest_window(model, usable, 100, terms=terms) == 11
    assert largest_window(model, usable - 1, 100, terms=terms) is None


@pytest.mark.parametrize(
    ("capacity", "reserve", "usable"),
    [(85.90, 0.1, 77_310_000_000), (0.7, 0.1, 630_000_000), (80, 0, 80 * 10**9), (1.1, 0.3, 770_000_000)],
)
def test_usable_bytes_are_capacity_less_the_reserve_exactly(capacity, reserve, usable):
    assert usable_bytes(HardwareProfile("any", 1, 1, capacity), reserve) == usable


def test_the_default_reserve_is_a_tenth_and_an_unstated_capacity_is_none():
    assert usable_bytes(A100_PCIE) == usable_bytes(A100_PCIE, 0.1) == Fraction("77.31") * 10**9
    assert usable_bytes(replace(A100_PCIE, hbm_capacity_gb=None)) is None


def test_a_tie_fits_and_one_byte_less_does_not():
    """Llama-3-8B: 2·8 029 995 008 B of weights, 131 072 B of KV a token."""
    weights, a_token = 2 * 8_029_995_008, 131_072
    tie = Fraction(weights + 1000 * a_token)
    assert free_bytes(LLAMA3_8B, tie) == 1000 * a_token
    for usable, ctx_len in ((tie, 1000), (tie - Fraction(1, 10**9), 999)):
        assert largest_resident_ctx(LLAMA3_8B, usable) == ctx_len
        assert largest_resident_ctx(LLAMA3_8B, usable, kv_dtype="fp8") == 1000 + ctx_len
        assert largest_resident_batch(LLAMA3_8B, usable, 1000) == (ctx_len == 1000)
    blocks = Fraction(weights + 2 * 1000 * a_token // 32)
    assert largest_offloaded_ctx(LLAMA3_8B, blocks) == 1000
    assert largest_offloaded_ctx(LLAMA3_8B, blocks - 1) == 999
    assert fits(LLAMA3_8B, blocks, 1000)
    assert not fits(LLAMA3_8B, blocks, 1000, depth=2)
    assert [largest_depth(LLAMA3_8B, blocks, 1000, 1, most) for most in (0, 1, 5)] == [0, 1, 1]
    assert largest_depth(LLAMA3_8B, blocks - 1, 1000, 1, 5) == 0
    one = Fraction(weights + 1000 * a_token // 32)
    assert [largest_depth(LLAMA3_8B, usable, 1000, 1, 5) for usable in (one, one - 1)] == [0, None]
    assert largest_depth(LLAMA3_8B, tie, 1000, 1, 10_000) == 10_000  # no more than 32 buffers


def test_known_pairs():
    """61 250 009 984 B free of the A100; Llama-2-13B in 16 bits alone exceeds an RTX 4090."""
    assert largest_resident_ctx(LLAMA3_8B, usable_bytes(A100_PCIE)) == 61_250_009_984 // 131_072
    assert largest_resident_batch(LLAMA3_8B, usable_bytes(A100_PCIE), 8192) == 61_250_009_984 // (131_072 * 8192)
    assert free_bytes(LLAMA2_13B, usable_bytes(RTX4090, 0)) < 0
    assert largest_resident_ctx(LLAMA2_13B, usable_bytes(RTX4090, 0)) == 0
    assert largest_offloaded_ctx(LLAMA2_13B, usable_bytes(RTX4090, 0)) == 0
    assert largest_window(LLAMA2_13B, usable_bytes(RTX4090, 0), 1) is None


def test_windows_that_never_outgrow_the_card_stay_at_every_context():
    usable = usable_bytes(A100_PCIE)
    assert largest_resident_ctx(WINDOWS_ALONE, usable) is None
    assert largest_offloaded_ctx(WINDOWS_ALONE, usable) is None
    assert largest_window(WINDOWS_ALONE, usable, MOST_CTX) == MOST_CTX
    assert fits(WINDOWS_ALONE, usable, MOST_CTX, depth=3, terms=FIRST_ORDER)


def test_every_expert_and_the_state_of_every_sequence_take_memory():
    routed = Layer("full", 10, 20.0, 8, experts=8, experts_per_token=2, expert_params=100, expert_bytes=200.0)
    mamba = Layer("mamba", 50, 100.0, kv_values=0, state_bytes=512.0)
    model = ModelConfig("hybrid", hidden_size=8, vocab_size=100, tie_word_embeddings=True, layers=(routed, mamba))
    assert free_bytes(model, Fraction(10_000), batch=3) == 10_000 - (20 + 8 * 200) - 100 - 2 * 800 - 3 * 512
    assert largest_resident_ctx(model, Fraction(10_000), batch=3) == (10_000 - 4856) // (3 * 16)
