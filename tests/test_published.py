"""Published figures: what, ours, theirs, tolerance, source. One place for all of them."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from stacks import INTERLEAVED_24, INTERLEAVED_62

from kvprefetch import (
    A100_PCIE,
    A100_PCIE_GEN3,
    LLAMA2_13B,
    LLAMA3_8B,
    MISTRAL_7B,
    RTX4090,
    ModelConfig,
    compare,
    crossover_ctx,
    peak_ctx,
)
from kvprefetch.capacity import free_bytes, usable_bytes
from kvprefetch.catalog import HARDWARE, MODELS, find, short_names
from kvprefetch.configs import Terms
from kvprefetch.huggingface import read_config
from kvprefetch.inverse import balancing_pcie, stall_free_pcie
from kvprefetch.layers import KV_BYTES, kv_bytes

DATA = Path(__file__).parent / "data"

# This planner's own published table: Llama-3-8B, A100 PCIe Gen4, batch 1, depth 1, printed precision.
GOLDEN = [
    (512, 9.53, 6.93, 27.3, 1.38, "compute"),
    (1024, 12.21, 7.01, 42.6, 1.74, "compute"),
    (2048, 17.58, 10.95, 37.7, 1.61, "pcie"),
    (4096, 28.32, 21.69, 23.4, 1.31, "pcie"),
    (8192, 49.80, 43.16, 13.3, 1.15, "pcie"),
    (16384, 92.75, 86.11, 7.2, 1.08, "pcie"),
    (32768, 178.64, 172.01, 3.7, 1.04, "pcie"),
]


@pytest.mark.parametrize(("ctx_len", "ondemand", "prefetch", "reduction", "speedup", "bound"), GOLDEN)
def test_the_golden_table(ctx_len, ondemand, prefetch, reduction, speedup, bound):
    c = compare(LLAMA3_8B, A100_PCIE, ctx_len=ctx_len)
    ours = (c.ondemand.total_ms, c.prefetch.total_ms, c.reduction_pct, c.speedup)
    assert [round(x, digits) for x, digits in zip(ours, (2, 2, 1, 2), strict=True)] == [
        ondemand,
        prefetch,
        reduction,
        speedup,
    ]
    assert c.bound == bound


def test_the_readme_shows_the_golden_table():
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    for ctx_len, ondemand, prefetch, reduction, speedup, bound in GOLDEN:
        assert f"| {ctx_len} | {ondemand:.2f} | {prefetch:.2f} | {reduction} % | {speedup:.2f}x | {bound} |" in readme
    assert "**1306 tokens**. There prefetch cuts the decode step by 48.4 %; at 32768 tokens it saves 3.7 %" in readme
    assert f"list {len(short_names(MODELS))} and {len(short_names(HARDWARE))} of them" in readme


def test_the_golden_crossover():
    assert crossover_ctx(LLAMA3_8B, A100_PCIE) == 1306


def test_the_golden_weights():
    assert LLAMA3_8B.layers[0].params == 218_103_808
    assert LLAMA3_8B.params == 6_979_321_856


# Interleaved stacks on the A100 profile, 16-bit weights: on-demand, depths 1 to 3, windows resident at depth 1, sum c,
# sum t, in ms; the stack's windows in MB, and one more block. This planner's own published table.
@pytest.mark.parametrize(
    ("model", "ctx_len", "published", "windows_mb", "block_mb"),
    [
        (INTERLEAVED_24, 4096, (7.12, 5.52, 4.28, 4.28, 4.15, 2.97, 4.15), 3, 8),
        (INTERLEAVED_62, 2048, (49.27, 28.11, 25.44, 25.44, 25.11, 25.11, 24.16), 436, 17),
        (INTERLEAVED_62, 8192, (69.40, 48.24, 44.84, 44.84, 28.06, 25.11, 44.29), 436, 67),
    ],
)
def test_the_interleaved_table(model, ctx_len, published, windows_mb, block_mb):
    by_depth = [compare(model, A100_PCIE, ctx_len, depth=depth) for depth in (1, 2, 3)]
    resident = compare(model, A100_PCIE, ctx_len, terms=Terms(resident_windows=True))
    ours = (
        by_depth[0].ondemand.total_ms,
        *(each.prefetch.total_ms for each in (*by_depth, resident)),
        1e3 * sum(by_depth[0].compute),
        1e3 * sum(by_depth[0].transfer),
    )
    assert tuple(round(ms, 2) for ms in ours) == published
    assert round(resident.prefetch.resident_bytes / 1e6) == windows_mb
    assert round(by_depth[0].prefetch.block_bytes / 1e6) == block_mb


def test_the_interleaved_crossover_peak_and_stall():
    """24 layers: crossover 2892, peak near 1510. 62 layers at 2048: compute-bound by sums, yet 3.0 ms of stall."""
    assert crossover_ctx(INTERLEAVED_24, A100_PCIE) == 2892
    assert peak_ctx(INTERLEAVED_24, A100_PCIE) == 1510
    c = compare(INTERLEAVED_62, A100_PCIE, 2048)
    assert (c.bound, round(c.stall_ms, 1)) == ("compute", 3.0)


# The built-ins' figures: their config.json as stored in mlc-ai/mlc-llm@79d603f, model_preset.py.
@pytest.mark.parametrize(
    ("model", "short_name", "figures"),
    [
        (LLAMA3_8B, "llama3-8b", (32, 4096, 32, 8, 128, 14336, 128256, False)),
        (LLAMA2_13B, "llama2-13b", (40, 5120, 40, 40, 128, 13824, 32000, False)),
        (MISTRAL_7B, "mistral-7b", (32, 4096, 32, 8, 128, 14336, 32768, False)),
    ],
)
def test_the_built_in_models_hold_the_published_figures(model, short_name, figures):
    assert model == find(MODELS, short_name).config
    assert figures == (
        model.num_hidden_layers,
        model.hidden_size,
        model.num_attention_heads,
        model.num_key_value_heads,
        model.head_dim,
        model.intermediate_size,
        model.vocab_size,
        model.tie_word_embeddings,
    )


@pytest.mark.parametrize(
    ("card", "short_name", "hbm", "pcie", "mib"),
    [
        (A100_PCIE, "a100", 2039, 25, 81920),
        (A100_PCIE_GEN3, "a100-gen3", 2039, 12, 81920),
        (RTX4090, "rtx4090", 1008, 25, 24564),
    ],
)
def test_the_built_in_cards_hold_the_published_figures(card, short_name, hbm, pcie, mib):
    """HBM and PCIe in GB/s as all results here use them; capacity as nvidia-smi prints it, in MiB."""
    assert card == find(HARDWARE, short_name).config
    assert (card.hbm_gb_s, card.pcie_gb_s) == (hbm, pcie)
    assert card.hbm_capacity_gb == pytest.approx(mib * 2**20 / 1e9, abs=0.005)


# Parameter counts that model cards and engines quote, within 1 %: our count leaves out the norms.
@pytest.mark.parametrize(
    ("model", "published", "source"),
    [
        (LLAMA3_8B, 8.03e9, "vendor's model card"),
        (LLAMA2_13B, 13.02e9, "vendor's model card"),
        (MISTRAL_7B, 7.25e9, "vendor's model card"),
    ],
)
def test_the_total_is_the_count_that_model_cards_quote(model, published, source):
    assert model.total_params == pytest.approx(published, rel=0.01), source


# KV caches that engines print, and parameter counts that vendors publish: every row that can be used, from
# tests/data/, whose heads say what each key means.
KV_SIZES = yaml.safe_load((DATA / "published_kv_sizes.yaml").read_text())
PARAMS = yaml.safe_load((DATA / "published_params.yaml").read_text())["rows"]


def covered(rows, key):
    """The rows to test, by their `key`."""
    return [pytest.param(row, id=str(row[key])) for row in rows if "not_covered" not in row]


def published_model(row):
    if "config" in row:
        return read_config(json.dumps(row["config"]).encode(), row["model"])
    return ModelConfig(name=row["model"], **row["catalogue"])


@pytest.mark.parametrize("row", covered(KV_SIZES["rows"], "id"))
def test_the_kv_cache_is_the_size_that_engines_print(row):
    pytest.importorskip("transformers")
    model = read_config(json.dumps(KV_SIZES["models"][row["model"]]).encode(), row["model"])
    layers = [layer for layer in model.layers if row.get("kind") in (None, layer.kind)]
    tokens, sequences, a_value = row["tokens"], row.get("sequences", 1), KV_BYTES[row["kv_dtype"]]
    ours = float(kv_bytes(tuple(layers), tokens, sequences, row["kv_dtype"]).sum())
    if "held" in row:  # the model's own need, which the engine pads
        assert ours == sum(math.prod(part) for part in row["held"]) * a_value
        assert ours < row["reported_bytes"]
    if "window_cells" in row:  # as many cells as the engine gives the windows, and its size comes out
        cells = [row["window_cells"] if layer.window else tokens * sequences for layer in layers]
        ours = sum(count * layer.kv_values for count, layer in zip(cells, layers, strict=True)) * a_value
    if row.get("with_state"):
        ours += sum(layer.state_bytes for layer in layers)
    if "state_mib" in row:
        assert sum(layer.state_bytes for layer in layers) == row["state_mib"] * 2**20
    if "not_reproduced" not in row:
        ours = ours / row.get("ranks", 1) + row.get("alignment_bytes", 0)
        tolerance = row.get("printed_to", 0) / 2 + row.get("within", 0) * row["reported_bytes"]
        assert abs(ours - row["reported_bytes"]) <= tolerance + bool(tolerance), row["source"]


@pytest.mark.parametrize("row", covered(PARAMS, "model"))
def test_parameters_are_those_that_vendors_publish(row):
    pytest.importorskip("transformers")
    model = published_model(row)
    if row["params_published"] is not None:
        tolerance = max(0.01 * row["params_published"], row.get("digit", 0) / 2)
        assert model.total_params == pytest.approx(row["params_published"], abs=tolerance, rel=0), row["basis"]
    if "active_params_published" in row:
        active = model.active_params + row["active_embeddings"] * model.vocab_size * model.hidden_size
        tolerance = max(0.01 * row["active_params_published"], row["active_digit"])
        assert active == pytest.approx(row["active_params_published"], abs=tolerance, rel=0), row["basis"]


@pytest.mark.parametrize(("rows", "count", "not_covered"), [(KV_SIZES["rows"], 65, 7), (PARAMS, 48, 3)])
def test_every_published_row_is_tested_or_says_why_not(rows, count, not_covered):
    assert len(rows) == count
    left_out = [row for row in rows if "not_covered" in row]
    assert len(left_out) == not_covered
    assert all(
        len(row["not_covered"]) > 20 and row["source"] and not {"config", "tokens"} & set(row) for row in left_out
    )
    assert {row.get("model") for row in KV_SIZES["rows"]} - {None} == set(KV_SIZES["models"])


CATALOGUE = yaml.safe_load((DATA / "catalogue_params.yaml").read_text())["models"]


@pytest.mark.parametrize("row", CATALOGUE, ids=lambda row: row["model"])
def test_the_catalogues_models_have_the_published_count(row):
    """Within 1 %: our count leaves out norms and biases."""
    total = find(MODELS, row["model"]).config.total_params
    if "not_covered" in row:
        pytest.skip(row["not_covered"])
    assert total == pytest.approx(row["total_params"], rel=0.01), row["source"]


def test_every_model_of_the_catalogue_has_a_published_count():
    """All but the two built-ins whose counts stand above."""
    assert {row["model"] for row in CATALOGUE} | {"llama3-8b", "mistral-7b"} == set(short_names(MODELS))


# The same pair with KV read and LM head: on-demand and prefetch in ms. This planner's own published table.
@pytest.mark.parametrize(
    ("ctx_len", "ondemand", "prefetch"),
    [(512, 10.08, 7.48), (1024, 12.80, 7.59), (2048, 18.23, 11.47), (8192, 50.84, 43.70), (32768, 181.27, 172.59)],
)
def test_the_refined_table(ctx_len, ondemand, prefetch):
    c = compare(LLAMA3_8B, A100_PCIE, ctx_len, terms=Terms(kv_read=True, lm_head=True))
    assert (round(c.ondemand.total_ms, 2), round(c.prefetch.total_ms, 2)) == (ondemand, prefetch)


def test_the_refined_crossover():
    assert crossover_ctx(LLAMA3_8B, A100_PCIE, terms=Terms(kv_read=True, lm_head=True)) == 1322


# Steps in ms at depths 1, 2, ... with cross-token overlap. This planner's own published figures.
@pytest.mark.parametrize(
    ("model", "ctx_len", "terms", "published"),
    [
        (INTERLEAVED_24, 4096, Terms(), {1: 5.510, 2: 4.152}),
        (INTERLEAVED_62, 2048, Terms(), {1: 27.770, 2: 25.109}),
        (INTERLEAVED_62, 8192, Terms(), {1: 47.902, 2: 44.373, 3: 44.292}),
        (LLAMA3_8B, 1400, Terms(kv_read=True, lm_head=True), {1: 7.830, 2: 7.601, 4: 7.451}),
    ],
)
def test_the_overlapped_steps(model, ctx_len, terms, published):
    overlapped = replace(terms, cross_token_overlap=True)
    steps = {depth: compare(model, A100_PCIE, ctx_len, depth=depth, terms=overlapped) for depth in published}
    assert {depth: round(step.prefetch.total_ms, 3) for depth, step in steps.items()} == published


def test_a_13b_model_in_16_bits_does_not_fit_an_rtx_4090():
    """26.03 GB of weights against 25.76 GB, the whole card."""
    assert round(LLAMA2_13B.total_bytes / 1e9, 2) == 26.03
    assert free_bytes(LLAMA2_13B, usable_bytes(RTX4090, reserve=0)) < 0


def test_the_links_that_the_interleaved_stack_needs():
    """62 layers at 2048, depth 1, in GB/s, rounded up: for sum t <= sum c, and for no stall beyond the fill."""
    links = (balancing_pcie(INTERLEAVED_62, A100_PCIE, 2048), stall_free_pcie(INTERLEAVED_62, A100_PCIE, 2048, depth=1))
    assert [math.ceil(100 * gb_s) / 100 for gb_s in links] == [24.06, 41.43]
