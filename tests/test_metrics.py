import json

from kvprefetch.catalog import HARDWARE, MODELS, find
from kvprefetch.metrics import measure
from kvprefetch.request import Request


def test_the_json_has_the_documented_keys_in_the_documented_order():
    request = Request(find(MODELS, "llama3-8b"), find(HARDWARE, "a100"), contexts=(1024, 512))
    text = measure(request).to_json()
    read = json.loads(text)
    assert list(read) == [
        *("model", "model_name", "hardware", "hardware_name", "batch", "depth", "params", "crossover_ctx", "peak_ctx"),
        "sweep",
    ]
    assert list(read["sweep"][0]) == ["ctx_len", "ondemand_ms", "prefetch_ms", "reduction_pct", "speedup", "bound"]
    assert [row["ctx_len"] for row in read["sweep"]] == [512, 1024]
    assert text.endswith("}\n")
    assert (read["model"], read["hardware"], read["params"]) == ("llama3-8b", "a100", 6979321856)
    assert (read["crossover_ctx"], read["peak_ctx"]) == (1306, 1306)


def test_numbers_keep_full_precision():
    request = Request(find(MODELS, "llama3-8b"), find(HARDWARE, "a100"))
    metrics = measure(request)
    for row, read in zip(metrics.sweep, json.loads(metrics.to_json())["sweep"], strict=True):
        assert (row.ondemand_ms, row.speedup) == (read["ondemand_ms"], read["speedup"])
