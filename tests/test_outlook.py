from dataclasses import fields, replace

import pytest
from stacks import INTERLEAVED_62, WINDOWS_ALONE

from kvprefetch import (
    A100_PCIE,
    LLAMA2_13B,
    LLAMA3_8B,
    RTX4090,
    HardwareProfile,
    InputError,
    Layer,
    ModelConfig,
)
from kvprefetch.capacity import usable_bytes
from kvprefetch.catalog import HARDWARE, MODELS, find, short_names
from kvprefetch.configs import FIRST_ORDER, Terms, refined
from kvprefetch.inverse import balancing_pcie, hideable_bytes, pcie_bound_batch, stall_free_pcie
from kvprefetch.outlook import Outlook, make_outlook
from kvprefetch.plan import Fit, make_plan
from kvprefetch.reach import reaches
from kvprefetch.request import Request
from kvprefetch.sensitivity import swings
from kvprefetch.throughput import generation, link_ceiling, served

NO_CAPACITY = replace(A100_PCIE, hbm_capacity_gb=None)
SMALL = Layer("full", 10**6, 2e6, kv_values=64)


@pytest.mark.parametrize(
    ("model", "hw", "ctx_len", "batch", "depth", "terms", "reserve"),
    [
        (LLAMA3_8B, A100_PCIE, 500_000, 1, 1, FIRST_ORDER, 0.1),
        (LLAMA3_8B, RTX4090, 4096, 4, 3, refined(RTX4090), 0.2),
        (INTERLEAVED_62, A100_PCIE, 2048, 2, 2, Terms(resident_tokens=500, copy_latency_us=10), 0.05),
        (WINDOWS_ALONE, NO_CAPACITY, 100, 3, 2, Terms(kv_dtype="fp8", cross_token_overlap=True), 0.1),
        (LLAMA2_13B, RTX4090, 512, 1, 2, Terms(lm_head=True), 0),
    ],
)
def test_an_outlook_holds_what_its_plan_comes_to(model, hw, ctx_len, batch, depth, terms, reserve):
    plan = make_plan(model, hw, ctx_len, batch=batch, depth=depth, terms=terms, reserve=reserve)
    usable = usable_bytes(hw, reserve)
    resident, ondemand, prefetch = generation(model, hw, ctx_len, 300, batch, depth, terms)
    expected = Outlook(
        target_ms=40,
        reaches=reaches(model, hw, 40, usable, batch, depth, terms),
        balancing_pcie_gb_s=balancing_pcie(model, hw, ctx_len, batch, terms),
        stall_free_pcie_gb_s=stall_free_pcie(model, hw, ctx_len, batch, depth, terms),
        pcie_bound_batch=pcie_bound_batch(model, hw, ctx_len, terms),
        hideable_bytes=hideable_bytes(model, hw, ctx_len, batch, terms),
        served=() if usable is None else served(model, hw, usable, ctx_len, batch, depth, terms),
        link_ceiling_tokens_per_s=link_ceiling(model, hw, ctx_len, terms),
        resident_generation=resident,
        ondemand_generation=ondemand,
        prefetch_generation=prefetch,
        swings=swings(model, hw, ctx_len, batch, depth, terms),
    )
    found = make_outlook(model, hw, plan, 40, 300)
    for field in fields(Outlook):
        assert getattr(found, field.name) == getattr(expected, field.name), field.name


BUILT_IN = [
    (model, card) for model in ("llama3-8b", "llama2-13b", "mistral-7b") for card in ("a100", "a100-gen3", "rtx4090")
]
CATALOGUE = {
    *BUILT_IN,
    *((model, "a100") for model in short_names(MODELS)),
    *(("llama3.1-8b", card) for card in short_names(HARDWARE)),
}


@pytest.mark.parametrize(("model", "hw"), sorted(CATALOGUE))
def test_every_pair_has_an_outlook(model, hw):
    request = Request(find(MODELS, model), find(HARDWARE, hw))
    outlook = request.outlook
    assert outlook.target_ms == 50
    resident, ondemand, prefetched = (
        outlook.resident_generation,
        outlook.ondemand_generation,
        outlook.prefetch_generation,
    )
    assert prefetched.total_s <= ondemand.total_s * (1 + 1e-9)
    assert resident.total_s <= prefetched.total_s * (1 + 1e-9)
    assert resident.tokens == ondemand.tokens == prefetched.tokens == 512
    on_gpu, on_demand, prefetch = (each.by_target for each in outlook.reaches)
    assert on_demand is None or prefetch is None or on_demand <= prefetch
    assert prefetch is None or on_gpu is None or prefetch <= on_gpu
    assert outlook.served or request.plan.fit not in (Fit.RESIDENT, Fit.OFFLOAD)


@pytest.mark.parametrize(
    ("model", "hw"),
    [
        (LLAMA3_8B, NO_CAPACITY),
        (INTERLEAVED_62, HardwareProfile("a link as fast as memory", 300, 300)),
        (replace(LLAMA3_8B, max_position_embeddings=None), HardwareProfile("slow", 1, 0.01)),
        (
            ModelConfig("one cache", hidden_size=8, vocab_size=10, layers=(Layer("mlp", 9, 9.0, 0), SMALL)),
            HardwareProfile("card", 1000, 25, host_capacity_gb=1, host_gb_s=50, host_efficiency=0.5),
        ),
    ],
)
@pytest.mark.parametrize("terms", [FIRST_ORDER, Terms(kv_read=True, copy_latency_us=50, cross_token_overlap=True)])
def test_a_card_without_a_capacity_has_an_outlook_without_limits_of_memory(model, hw, terms):
    outlook = make_outlook(model, hw, make_plan(model, hw, 3000, terms=terms), 50, 7)
    assert outlook.served == ()
    assert all(reach.cap != "GPU memory" for reach in outlook.reaches)
    assert outlook.prefetch_generation.tokens == 7
    limit, by_target = model.max_position_embeddings, outlook.reaches[0].by_target
    assert outlook.reaches[0].ctx_len == min((each for each in (limit, by_target) if each is not None), default=None)


def test_a_generation_beyond_the_longest_context_is_refused():
    plan = make_plan(LLAMA3_8B, NO_CAPACITY, 10**9)
    assert make_outlook(LLAMA3_8B, NO_CAPACITY, plan, 50, 1).prefetch_generation.tokens == 1
    with pytest.raises(InputError, match="ctx_len: got 1000000000; accepted: a whole number from 1 to 999999999"):
        make_outlook(LLAMA3_8B, NO_CAPACITY, plan, 50, 2)
