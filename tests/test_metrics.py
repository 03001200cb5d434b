import json
from dataclasses import fields, replace

import pytest
from stacks import WINDOWS_ALONE

from kvprefetch.catalog import HARDWARE, MODELS, find
from kvprefetch.metrics import EVERY, Planned, as_json, from_json, measure, planned
from kvprefetch.request import Request


def test_the_json_has_the_documented_keys_in_the_documented_order():
    request = Request(find(MODELS, "llama3-8b"), find(HARDWARE, "a100"), contexts=(1024, 512))
    text = as_json(measure(request))
    read = json.loads(text)
    assert list(read) == [
        *("model", "model_name", "hardware", "hardware_name", "batch", "depth", "params", "crossover_ctx", "peak_ctx"),
        *("sweep", "terms", "resident_tokens", "plan", "outlook"),
    ]
    assert list(read["sweep"][0]) == ["ctx_len", "ondemand_ms", "prefetch_ms", "reduction_pct", "speedup", "bound"]
    assert [row["ctx_len"] for row in read["sweep"]] == [512, 1024]
    assert text.endswith("}\n")
    assert (read["model"], read["hardware"], read["params"]) == ("llama3-8b", "a100", 6979321856)
    assert (read["crossover_ctx"], read["peak_ctx"]) == (1306, 1306)


def test_numbers_keep_full_precision():
    request = Request(find(MODELS, "llama3-8b"), find(HARDWARE, "a100"))
    metrics = measure(request)
    for row, read in zip(metrics.sweep, json.loads(as_json(metrics))["sweep"], strict=True):
        assert (row.ondemand_ms, row.speedup) == (read["ondemand_ms"], read["speedup"])


@pytest.mark.parametrize("hw", ["a100", "rtx4090"])
@pytest.mark.parametrize("model", ["llama2-13b", "mistral-7b-v0.1", "llama3.1-8b"])
def test_text_and_object_say_the_same(model, hw):
    metrics = measure(Request(find(MODELS, model), find(HARDWARE, hw), resident="auto", terms="refined"))
    assert from_json(as_json(metrics)) == metrics


def test_an_outlooks_keys_name_their_units():
    read = json.loads(as_json(measure(Request(find(MODELS, "llama3-8b"), find(HARDWARE, "a100")))))["outlook"]
    assert list(read) == [
        *("target_ms", "reaches", "balancing_pcie_gb_s", "stall_free_pcie_gb_s", "pcie_bound_batch", "hideable_bytes"),
        *("served", "link_ceiling_tokens_per_s", "resident_generation", "ondemand_generation", "prefetch_generation"),
        "swings",
    ]
    for policy in ("resident", "ondemand", "prefetch"):
        assert list(read[f"{policy}_generation"]) == ["tokens", "batch", "total_s", "first_s", "last_s"]
    assert [list(row) for row in read["served"]] == [["way", "batch", "is_largest", "step_ms"]] * 4


def test_a_plan_alone_is_the_plan_and_the_outlook_of_its_report():
    request = Request(find(MODELS, "llama3-8b"), find(HARDWARE, "a100"), ctx_len=500_000, depth=2)
    whole, alone = measure(request), planned(request)
    assert (alone.plan, alone.outlook) == (whole.plan, whole.outlook)
    assert [field.name for field in fields(Planned)] == ["plan", "outlook"]
    read = json.loads(as_json(alone))
    assert list(read) == ["plan", "outlook"]
    assert read == {name: json.loads(as_json(whole))[name] for name in ("plan", "outlook")}


@pytest.mark.parametrize(
    ("model", "changes", "resident_ctx"),
    [
        ("llama3-8b", {}, 467_300),
        ("llama3-8b", {"hbm_capacity_gb": 17.8445}, 0),
        ("llama3-8b", {"hbm_capacity_gb": None}, None),
        (WINDOWS_ALONE, {}, EVERY),
        (WINDOWS_ALONE, {"hbm_capacity_gb": None}, None),
    ],
)
def test_the_context_that_stays_is_a_number_every_one_or_not_known(model, changes, resident_ctx):
    entry, card = find(MODELS, "llama3-8b"), find(HARDWARE, "a100")
    entry = entry if isinstance(model, str) else replace(entry, config=model)
    metrics = measure(Request(entry, replace(card, config=replace(card.config, **changes)), ctx_len=777))
    assert metrics.plan.resident_ctx == resident_ctx
    assert (EVERY, json.loads(as_json(metrics))["plan"]["resident_ctx"]) == ("every", resident_ctx)
    assert from_json(as_json(metrics)) == metrics


def test_the_plan_is_what_the_verdict_speaks_of():
    plan = measure(Request(find(MODELS, "llama3.1-8b"), find(HARDWARE, "rtx4090"), ctx_len=100_000)).plan
    assert (plan.choice, plan.fit, plan.resident_ctx, plan.resident_batch) == ("asked for", "offload fits", 54351, 0)
    assert f"{plan.prefetch_ms:.2f} ms" in plan.verdict[1]
    assert f"({plan.ways[0].total_ms:.2f} ms, " in plan.verdict[2]
    printed = [round(way.total_ms, 2) for way in plan.ways]
    assert printed == sorted(printed)
