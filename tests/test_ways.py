from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stacks import INTERLEAVED_62, WINDOWS_ALONE

from kvprefetch import A100_PCIE, LLAMA2_13B, LLAMA3_8B, RTX4090, HardwareProfile, Layer, ModelConfig, compare
from kvprefetch.capacity import usable_bytes
from kvprefetch.configs import FIRST_ORDER, Terms
from kvprefetch.layers import KV_BYTES
from kvprefetch.plan import make_plan

NO_CAPACITY = replace(A100_PCIE, hbm_capacity_gb=None)
WITH_HOST = {"host_gb_s": 40, "host_efficiency": 0.25}
ON_GPU, ON_DEMAND, ONE, TWO = "all KV on the GPU", "on demand", "prefetch, one layer ahead", "prefetch, 2 layers ahead"
OVERLAP, SLIDING, HOST = (
    "prefetch, overlapping the next token",
    "prefetch, sliding windows on the GPU",
    "attention on the host",
)
POLICIES = {ON_DEMAND, ONE, TWO, OVERLAP}
EIGHT, FOUR = ("8-bit cache on the GPU", "4-bit cache on the GPU")
EIGHT_OFF, FOUR_OFF = ("prefetch, 8-bit cache", "prefetch, 4-bit cache")
SMALLER = {"8-bit": "fp8", "4-bit": "q4_0"}


def ways_of(model, hw, ctx_len, batch=1, depth=1, terms=FIRST_ORDER, reserve=0.1):
    """By name. What a name says of its own figures is dropped: how many tokens stay, and how many GB are streamed."""
    found = make_plan(model, hw, ctx_len, batch=batch, depth=depth, terms=terms, reserve=reserve).ways
    return {
        "window" if "newest" in way.name else way.name.split(",")[0] if "streamed" in way.name else way.name: way
        for way in found
    }


# An A100 keeps 467 300 tokens of Llama-3-8B's cache in 16 bits, 934 600 in 8 and 1 661 511 in 4.
@pytest.mark.parametrize(
    ("model", "hw", "ctx_len", "depth", "terms", "names"),
    [
        (LLAMA3_8B, A100_PCIE, 8192, 1, FIRST_ORDER, POLICIES | {ON_GPU, EIGHT, FOUR}),
        (LLAMA3_8B, A100_PCIE, 500_000, 1, FIRST_ORDER, POLICIES | {"window", EIGHT, FOUR, "weights streamed"}),
        (LLAMA3_8B, A100_PCIE, 930_000, 1, FIRST_ORDER, POLICIES | {"window", EIGHT, FOUR}),  # 15.9 GB stay beside 14
        (LLAMA3_8B, A100_PCIE, 940_000, 1, FIRST_ORDER, POLICIES | {"window", EIGHT_OFF, FOUR}),
        (LLAMA3_8B, A100_PCIE, 1_700_000, 1, FIRST_ORDER, POLICIES | {"window", EIGHT_OFF, FOUR_OFF}),
        (LLAMA3_8B, NO_CAPACITY, 8192, 1, FIRST_ORDER, POLICIES | {EIGHT_OFF, FOUR_OFF}),
        (
            LLAMA3_8B,
            NO_CAPACITY,
            8192,
            3,
            FIRST_ORDER,
            POLICIES | {EIGHT_OFF, FOUR_OFF, "prefetch, 3 layers ahead", "prefetch, 4 layers ahead"},
        ),
        (LLAMA3_8B, NO_CAPACITY, 8192, 1, Terms(kv_dtype="int8"), POLICIES | {FOUR_OFF}),
        (LLAMA3_8B, NO_CAPACITY, 8192, 1, Terms(kv_dtype="q4_0"), POLICIES),
        (LLAMA3_8B, NO_CAPACITY, 8192, 1, Terms(kv_dtype="q4_0", cross_token_overlap=True), POLICIES - {OVERLAP}),
        (INTERLEAVED_62, NO_CAPACITY, 8192, 1, FIRST_ORDER, POLICIES | {SLIDING, EIGHT_OFF, FOUR_OFF}),
        (INTERLEAVED_62, NO_CAPACITY, 8192, 1, Terms(resident_windows=True), POLICIES | {EIGHT_OFF, FOUR_OFF}),
        (LLAMA3_8B, replace(NO_CAPACITY, **WITH_HOST), 8192, 1, Terms(kv_dtype="q4_0"), POLICIES | {HOST}),
        (LLAMA3_8B, replace(NO_CAPACITY, host_gb_s=40), 8192, 1, Terms(kv_dtype="q4_0"), POLICIES),
        (LLAMA3_8B, replace(NO_CAPACITY, host_efficiency=0.25), 8192, 1, Terms(kv_dtype="q4_0"), POLICIES),
        (
            LLAMA2_13B,
            replace(RTX4090, **WITH_HOST),
            512,
            1,
            FIRST_ORDER,
            {"weights streamed"},
        ),  # 26 GB on a 25.8 GB card
        (LLAMA2_13B, replace(RTX4090, hbm_capacity_gb=1), 512, 1, FIRST_ORDER, set()),
        (LLAMA3_8B, A100_PCIE, 10**7, 1, FIRST_ORDER, {ON_DEMAND, EIGHT_OFF, FOUR_OFF}),  # two buffers do not fit
        (LLAMA3_8B, A100_PCIE, 10**8, 1, FIRST_ORDER, set()),
        (LLAMA3_8B, A100_PCIE, 500_000, 40, FIRST_ORDER, {ON_DEMAND, ONE, TWO, EIGHT, FOUR}),  # 32 blocks hold all
        (WINDOWS_ALONE, A100_PCIE, 10**6, 1, FIRST_ORDER, POLICIES | {ON_GPU, SLIDING, EIGHT, FOUR}),
    ],
)
def test_the_ways_that_there_are(model, hw, ctx_len, depth, terms, names):
    assert set(ways_of(model, hw, ctx_len, depth=depth, terms=terms)) == names


def test_the_ways_that_prefetch_take_what_compare_says():
    at, weights = (INTERLEAVED_62, replace(A100_PCIE, hbm_capacity_gb=65), 200_000), INTERLEAVED_62.total_bytes
    found = ways_of(*at)
    window = make_plan(*at).window
    eight, four = Terms(kv_dtype="fp8"), Terms(kv_dtype="q4_0")
    for name, terms, depth in (
        (ONE, FIRST_ORDER, 1),
        (TWO, FIRST_ORDER, 2),
        ("window", Terms(resident_tokens=window), 1),
        (SLIDING, Terms(resident_windows=True), 1),
        (OVERLAP, Terms(cross_token_overlap=True), 1),
        (EIGHT_OFF, eight, 1),
        (FOUR, replace(four, resident_tokens=200_000), 1),
    ):
        other, way = compare(*at, depth=depth, terms=terms), found[name]
        assert (way.total_ms, way.host_bytes) == (other.prefetch.total_ms, other.offloaded_bytes)
        assert way.gpu_bytes == weights + other.prefetch.gpu_kv_bytes
        assert way.limit == {"pcie": "link", "compute": "engine"}[other.bound]
    step = compare(*at)
    on_demand = found[ON_DEMAND]
    assert (on_demand.total_ms, on_demand.gpu_bytes) == (
        step.ondemand.total_ms,
        weights + step.ondemand.block_bytes,
    )
    assert on_demand.advice == "" and all(way.advice for name, way in found.items() if name != ON_DEMAND)
    assert found[FOUR].tokens_per_s == pytest.approx(1e3 / found[FOUR].total_ms)


@pytest.mark.parametrize(
    ("terms", "kept"),
    [
        (FIRST_ORDER, 465_120),
        (Terms(resident_tokens=465_119), 465_120),
        (Terms(resident_tokens=465_120), None),  # is the step that is planned
        (Terms(resident_tokens=480_000), 465_120),  # does not fit, and the smaller one does
    ],
)
def test_the_largest_window_is_a_way_of_its_own_unless_it_is_the_one_asked_for(terms, kept):
    names = [way.name for way in make_plan(LLAMA3_8B, A100_PCIE, 500_000, terms=terms).ways if "newest" in way.name]
    assert names == ([] if kept is None else [f"prefetch, newest {kept} tokens on the GPU"])


def test_a_window_of_nothing_and_one_of_everything_are_no_ways_of_their_own():
    for hw, ctx_len, window in ((replace(A100_PCIE, hbm_capacity_gb=17.8445), 3, 0), (A100_PCIE, 8192, 8192)):
        plan = make_plan(LLAMA3_8B, hw, ctx_len)
        assert plan.window == window
        assert not any("newest" in way.name for way in plan.ways)


@pytest.mark.parametrize(("capacity", "size"), [(0.55, "100 MB"), (3.9, "1.40 GB")])
def test_what_is_streamed_is_named_in_mb_or_from_one_gb_on_in_gb(capacity, size):
    """A quarter or less of the weights has no room, and two of four buffers take as much again."""
    model = DENSE if capacity < 1 else replace(DENSE, layers=(Layer("full", 5 * 10**8, 1e9, kv_values=1000),) * 4)
    hw = HardwareProfile("card", 100, 1, hbm_capacity_gb=capacity)
    ctx_len = 25_000 if capacity < 1 else 75_000
    way = ways_of(model, hw, ctx_len, reserve=0)["weights streamed"]
    assert (way.name, way.advice) == (
        f"weights streamed, {size} of them on the host",
        f"stream {size} of weights instead of the cache",
    )


GB = 10**9
DENSE = ModelConfig(  # four layers of 100 MB and 2000 B of cache a token
    "dense", hidden_size=1, vocab_size=1, layers=(Layer("full", 5 * 10**7, 1e8, kv_values=1000),) * 4
)


@pytest.mark.parametrize(
    ("depth", "terms", "total_ms"),
    [
        (1, FIRST_ORDER, 4 * 25 + 1),
        (2, FIRST_ORDER, 4 * 50 + 1),
        (1, Terms(pcie_efficiency=0.5), 4 * 50 + 1),
        (1, Terms(copy_latency_us=1000), 4 * 26 + 1),
        (1, Terms(layer_overhead_us=1000), 4 * 25 + 2),
        (1, Terms(kv_read=True), 4 * 25 + 1 + 0.5),
    ],
)
def test_streamed_weights_of_a_dense_model_by_hand(depth, terms, total_ms):
    """0.6 GB of weights and cache on a card of 0.55 GB; the buffers of d + 1 of 4 layers take as much again."""
    hw = HardwareProfile("card", 100, 1, hbm_capacity_gb=0.55)
    way = ways_of(DENSE, hw, 25_000, depth=depth, terms=terms, reserve=0)["weights streamed"]
    moved = 0.05e9 / (1 - (depth + 1) / 4)
    assert way.host_bytes == pytest.approx(moved, rel=1e-6)
    assert way.total_ms == pytest.approx(total_ms, rel=1e-6)
    assert way.name == f"weights streamed, {moved / 1e6:.0f} MB of them on the host"
    assert way.advice == f"stream {moved / 1e6:.0f} MB of weights instead of the cache"
    assert (way.gpu_bytes, way.limit) == (0.55e9, "link")


MOE = ModelConfig(  # two layers of 10 MB, and 4 experts of 50 MB of which a token uses one
    "moe",
    hidden_size=1,
    vocab_size=1,
    layers=(Layer("moe", 5 * 10**6, 1e7, 1000, None, 4, 1, 25 * 10**6, 5e7),) * 2,
)


@pytest.mark.parametrize(
    ("batch", "touched", "limit"),
    [(1, 1, "link"), (2, 1.75, "link"), (40, 4 * (1 - 0.75**40), "link"), (1, 1, "engine")],
)
def test_streamed_experts_are_fetched_on_demand_and_only_those_that_are_touched(batch, touched, limit):
    """0.42 GB of weights; 0.1 GB too much, over 1 - 1/2, leaves half of the 0.4 GB of experts on the host."""
    pcie = {"link": 1, "engine": 60}[limit]
    cached = 1000 * 4000 * batch
    hw = HardwareProfile("card", 100, pcie, hbm_capacity_gb=(0.42e9 + cached - 0.1e9 + 4) / GB)
    found = ways_of(MOE, hw, 1000, batch=batch, reserve=0)
    engine, fetched = 2 * (1e7 + touched * 5e7) / 100e9, 0.2e9 * touched / 4 / (pcie * 1e9)
    assert found["weights streamed"].total_ms == pytest.approx(1e3 * (engine + fetched), rel=1e-6)
    assert found["weights streamed"].host_bytes == pytest.approx(0.2e9, rel=1e-6)
    assert found["weights streamed"].limit == limit
    assert found["weights streamed"].rests_on == "experts are fetched on demand: routing is not known ahead"


@pytest.mark.parametrize(
    ("terms", "batch", "engine_ms", "reading_ms", "limit"),
    [
        (FIRST_ORDER, 1, 6.8458282, 8192 * 131_072 / 10e6, "host memory"),
        (FIRST_ORDER, 2, 6.8458282, 2 * 8192 * 131_072 / 10e6, "host memory"),
        (Terms(kv_read=True, attention_efficiency=0.4), 1, 6.8458282, 8192 * 131_072 / 10e6, "host memory"),
        (Terms(lm_head=True, kv_dtype="fp8"), 1, 6.8458282 + 0.5152918, 8192 * 65_536 / 10e6, "host memory"),
        (Terms(resident_tokens=8192), 1, 6.8458282, 8192 * 131_072 / 10e6, "host memory"),
        (Terms(layer_overhead_us=10_000), 1, 326.8458282, 8192 * 131_072 / 10e6, "engine"),
    ],
)
def test_attention_on_the_host_by_hand(terms, batch, engine_ms, reading_ms, limit):
    """The host reads 10 of its 40 GB/s, and the engine waits for it in each layer; it reads no cache itself."""
    way = ways_of(LLAMA3_8B, replace(A100_PCIE, **WITH_HOST), 8192, batch=batch, terms=terms)[HOST]
    assert way.total_ms == pytest.approx(engine_ms + reading_ms, rel=1e-7)
    assert way.host_bytes == pytest.approx(reading_ms * 1e7)
    assert (way.gpu_bytes, way.limit) == (2 * 8_029_995_008, limit)
    assert way.rests_on == "the host reads at 0.25 of 40 GB/s, and each layer waits for it"


dense = st.builds(
    lambda weights, values, window, state: Layer(
        "any", weights, 2.0 * weights, values, window, state_bytes=float(state)
    ),
    st.integers(1, 10**5),
    st.sampled_from([0, 64, 256, 1024]),
    st.sampled_from([None, None, 100, 300]),
    st.sampled_from([0, 0, 1000]),
)
moe = st.builds(
    lambda layer, experts, used, size: replace(
        layer, experts=experts, experts_per_token=min(used, experts), expert_params=size, expert_bytes=2.0 * size
    ),
    dense,
    st.integers(1, 16),
    st.integers(1, 16),
    st.integers(1, 10**4),
)
stacks = st.lists(st.one_of(dense, moe), min_size=1, max_size=6).map(
    lambda stack: ModelConfig("any", hidden_size=8, vocab_size=10, layers=tuple(stack))
)
cards = st.builds(  # a host that reads no faster than the GPU's attention
    HardwareProfile,
    st.just("any"),
    st.integers(50, 500),
    st.integers(1, 60),
    st.floats(0.001, 0.01),
    host_gb_s=st.sampled_from([None, 20]),
    host_efficiency=st.sampled_from([0.27, 1.0]),
)
terms = st.builds(
    Terms,
    kv_dtype=st.sampled_from(["fp16", "fp8", "q4_0"]),
    resident_tokens=st.sampled_from([0, 0, 50]),
    resident_windows=st.booleans(),
    kv_read=st.booleans(),
    lm_head=st.booleans(),
    attention_efficiency=st.sampled_from([1.0, 0.4]),
    copy_latency_us=st.sampled_from([0.0, 0.5]),
    cross_token_overlap=st.booleans(),
)


@given(stacks, cards, st.integers(1, 3000), st.integers(1, 3), st.integers(1, 4), terms)
def test_every_way_fits_the_ranking_is_in_order_and_no_way_beats_the_engine_alone(
    model, hw, ctx_len, batch, depth, terms
):
    plan = make_plan(model, hw, ctx_len, batch=batch, depth=depth, terms=terms, reserve=0)
    printed = [round(way.total_ms, 2) for way in plan.ways]
    assert printed == sorted(printed)
    assert len({way.name for way in plan.ways}) == len(plan.ways)
    weights = model.total_bytes + batch * sum(layer.state_bytes for layer in model.layers)
    for way in plan.ways:
        assert way.gpu_bytes <= float(usable_bytes(hw, 0)) * (1 + 1e-12)
        assert way.gpu_bytes >= weights * (1 - 1e-12) or "streamed" in way.name
        assert way.rests_on and way.batch == batch
        (kv_dtype,) = [each for bits, each in SMALLER.items() if bits in way.name] or [terms.kv_dtype]
        engine = compare(model, hw, ctx_len, batch, depth, replace(terms, kv_dtype=kv_dtype)).engine_ms
        assert way.total_ms >= engine * (1 - 1e-12)
        if way.name in (ON_GPU, EIGHT, FOUR):
            assert way.total_ms == pytest.approx(engine, rel=1e-12)
            assert way.host_bytes == 0


@given(
    st.builds(Layer, st.just("any"), st.just(1), st.integers(10**6, 10**8), st.integers(64, 4096)),
    *(st.integers(2, 40), st.integers(1, 10**5), st.integers(1, 3), st.integers(0, 100)),
)
def test_weights_streamed_take_as_long_as_the_largest_window_in_a_uniform_stack(layer, count, ctx_len, depth, share):
    """The same bytes cross the link, but for the window's whole number of tokens."""
    model = ModelConfig("uniform", hidden_size=1, vocab_size=1, layers=(layer,) * count)
    cached = model.kv_bytes(ctx_len)
    room = Fraction(model.total_bytes) + Fraction(cached) * share / 100
    hw = HardwareProfile("any", 100, 10, hbm_capacity_gb=float(room / GB))
    found = ways_of(model, hw, ctx_len, depth=depth, reserve=0)
    if {"window", "weights streamed"} <= set(found):
        window, streamed = (found[name].total_ms for name in ("window", "weights streamed"))
        a_token_ms = count * layer.kv_values * KV_BYTES["fp16"] / 10e9 * 1e3
        assert streamed * (1 - 1e-9) <= window <= streamed * (1 + 1e-9) + a_token_ms


def test_weights_and_window_do_not_part_on_a_real_pair():
    found = ways_of(LLAMA3_8B, A100_PCIE, 500_000)
    assert found["weights streamed"].total_ms == pytest.approx(found["window"].total_ms, rel=1e-4)
