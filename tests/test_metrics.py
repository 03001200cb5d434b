import json

import pytest

from kvprefetch.catalog import HARDWARE, MODELS, find
from kvprefetch.metrics import as_json, from_json, measure
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


def test_the_plan_is_what_the_verdict_speaks_of():
    plan = measure(Request(find(MODELS, "llama3.1-8b"), find(HARDWARE, "rtx4090"), ctx_len=100_000)).plan
    assert (plan.choice, plan.fit, plan.resident_ctx, plan.resident_batch) == ("asked for", "offload fits", 54351, 0)
    assert f"{plan.prefetch_ms:.2f} ms" in plan.verdict[1]
    assert f"({plan.ways[0].total_ms:.2f} ms, " in plan.verdict[2]
    printed = [round(way.total_ms, 2) for way in plan.ways]
    assert printed == sorted(printed)
