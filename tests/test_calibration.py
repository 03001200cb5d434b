"""Calibration: planted figures are found again, and rows that leave one open are refused in one line."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kvprefetch import InputError, load_hardware, load_model
from kvprefetch.calibration import calibrate
from kvprefetch.calibrationrows import Policy, Row, read_task
from kvprefetch.configs import Terms
from kvprefetch.planner import compare
from kvprefetch.profile import profile, profile_yaml, summary

MODEL, CARD = load_model("llama3-8b"), load_hardware("a100")
CONTEXTS = (1024, 4096, 16384, 32768)
PLANTED = {"weight_efficiency": 0.8, "attention_efficiency": 0.4, "pcie_efficiency": 0.9, "copy_latency_us": 30.0}
HEAD = {"name": "Mine", "conditions": "an engine", "model": "llama3-8b", "card": "a100"}


def planted(policy, ctx_len, batch=1, **figures):
    """A row as the planner itself would time it, with these figures in force."""
    c = compare(MODEL, CARD, ctx_len, batch, terms=Terms(kv_read=True, lm_head=True, **figures))
    ms = {"resident": c.engine_ms, "on-demand": c.ondemand.total_ms, "copy": c.transfer_ms}[policy]
    return {"ctx_len": ctx_len, "policy": policy, "step_ms": float(ms), "batch": batch}


def rows(policies=("resident", "on-demand"), contexts=CONTEXTS, figures=PLANTED):
    return [planted(policy, ctx_len, **figures) for policy in policies for ctx_len in contexts]


@pytest.fixture
def task(tmp_path):
    def task(**changes):
        path = tmp_path / "My rows.yaml"
        path.write_text(yaml.safe_dump(HEAD | changes))
        return read_task(str(path))

    return task


def values(found):
    return {each.name: each.value for each in found.fitted}


def test_planted_figures_are_found_again(task):
    found = calibrate(task(rows=rows()))
    assert values(found) == pytest.approx(PLANTED, rel=1e-4)
    assert max(map(abs, found.residuals_pct)) < 1e-4
    assert not any(each.at_bound for each in found.fitted)


@given(
    weight=st.floats(0.3, 0.98),
    attention=st.floats(0.2, 0.98),
    pcie=st.floats(0.5, 0.98),
    latency=st.floats(5, 200),
)
def test_any_planted_figures_are_found_again(tmp_path_factory, weight, attention, pcie, latency):
    figures = dict(zip(PLANTED, (weight, attention, pcie, latency), strict=True))
    path = tmp_path_factory.getbasetemp() / "planted.yaml"
    path.write_text(yaml.safe_dump(HEAD | {"rows": rows(figures=figures)}))
    assert values(calibrate(read_task(str(path)))) == pytest.approx(figures, rel=1e-3)


def test_noise_moves_figures_by_about_their_standard_errors(task):
    noisy = rows(policies=("resident", "on-demand", "copy"))
    for row, noise in zip(noisy, np.random.default_rng(1).normal(0, 0.003, len(noisy)), strict=True):
        row["step_ms"] *= float(1 + noise)
    for each in calibrate(task(rows=noisy)).fitted:
        assert 0 < each.error and abs(each.value - PLANTED[each.name]) < 4 * each.error


def test_one_wrong_row_does_not_draw_the_line(task):
    wrong = rows(policies=("resident", "on-demand", "copy"))
    wrong[5]["step_ms"] *= 1.5
    found = calibrate(task(rows=wrong))
    assert values(found) == pytest.approx(PLANTED, rel=0.05)
    assert int(np.argmax(np.abs(found.residuals_pct))) == 5


def test_resident_rows_alone_say_what_the_engine_reads_and_nothing_of_the_link(task):
    assert values(calibrate(task(rows=rows(policies=("resident",))))) == pytest.approx(
        {name: PLANTED[name] for name in ("weight_efficiency", "attention_efficiency")}, rel=1e-4
    )


def test_copies_alone_can_stand_for_on_demand_rows(task):
    assert values(calibrate(task(rows=rows(policies=("resident", "copy"))))) == pytest.approx(PLANTED, rel=1e-4)


def test_layer_overhead_is_fitted_where_the_weights_share_is_held(task):
    overhead = {"weight_efficiency": 1.0, "layer_overhead_us": 50.0}
    fit = ["layer_overhead_us", "attention_efficiency"]
    found = calibrate(task(rows=rows(("resident",), figures=PLANTED | overhead), fit=fit))
    assert values(found) == pytest.approx({"attention_efficiency": 0.4, "layer_overhead_us": 50.0}, rel=1e-4)


def test_a_link_faster_than_stated_ends_at_its_bound_without_an_error(task):
    fast = rows(("resident", "copy"))
    for row in fast:
        row["step_ms"] *= 0.8 if row["policy"] == "copy" else 1
    found = {each.name: each for each in calibrate(task(rows=fast)).fitted}
    assert found["pcie_efficiency"].at_bound and found["pcie_efficiency"].error is None
    assert found["pcie_efficiency"].value == pytest.approx(1)
    assert found["weight_efficiency"].value == pytest.approx(0.8, rel=1e-3)
    assert "at its bound" in "".join(summary(calibrate(task(rows=fast))))


def test_tokens_a_second_and_counted_bytes_say_the_same_as_milliseconds(task):
    plain, counted = rows(), rows()
    for row in counted:
        row["tok_s"] = 1e3 * row["batch"] / row.pop("step_ms")
        row["moved_bytes"] = MODEL.kv_bytes(row["ctx_len"])
    assert values(calibrate(task(rows=counted))) == pytest.approx(values(calibrate(task(rows=plain))), rel=1e-6)


def test_attention_reads_the_cache_once_however_many_bytes_cross_the_link(task):
    """Whole pages cross, and some of them twice: the link carries three times the cache, and the engine reads it."""
    paged = rows()
    for row in paged:
        if row["policy"] == "on-demand":
            cache = MODEL.kv_bytes(row["ctx_len"])
            row["moved_bytes"] = 3 * cache
            row["step_ms"] += 2 * cache / (CARD.pcie_gb_s * 1e6 * PLANTED["pcie_efficiency"])
    found = calibrate(task(rows=paged))
    assert values(found) == pytest.approx(PLANTED, rel=1e-4)
    assert max(map(abs, found.residuals_pct)) < 1e-4


def test_the_size_of_the_weights_file_replaces_that_of_the_model(task):
    gb = (sum(layer.weight_bytes for layer in MODEL.layers) + MODEL.head_bytes) / 1e9
    halved = calibrate(task(rows=rows(), weights_gb=gb / 2))
    assert values(halved)["weight_efficiency"] == pytest.approx(PLANTED["weight_efficiency"] / 2, rel=1e-4)


REFUSED = [
    (
        {"rows": rows(("resident",), (4096,))},
        "weight_efficiency and attention_efficiency: these rows cannot tell them apart; accepted: resident rows at two",
    ),
    (
        {"rows": rows(("on-demand",))},
        "attention_efficiency and pcie_efficiency: these rows cannot tell them apart; accepted: resident rows, or copy",
    ),
    (
        {"rows": rows(("resident",)) + rows(("on-demand",), (4096,))},
        "pcie_efficiency and copy_latency_us: these rows cannot tell them apart; accepted: on-demand or copy rows at",
    ),
    (
        {"rows": rows(("resident",)), "fit": ["weight_efficiency", "layer_overhead_us"]},
        "weight_efficiency and layer_overhead_us: these rows cannot tell them apart; accepted: they share one",
    ),
    (
        {"rows": rows(("resident",)), "fit": ["pcie_efficiency"]},
        "pcie_efficiency: no row speaks of it; accepted: on-demand or copy rows",
    ),
    (
        {"rows": rows(("copy",)), "fit": ["weight_efficiency"]},
        "weight_efficiency: no row speaks of it; accepted: resident or on-demand rows",
    ),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=[message[:50] for _, message in REFUSED])
def test_rows_that_leave_a_figure_open_are_refused_in_one_line(task, changes, message):
    with pytest.raises(InputError) as error:
        calibrate(task(**changes))
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


def test_rows_too_noisy_to_determine_a_share_are_refused(task):
    noisy = rows(("resident",), (1000, 1200, 1400, 1600))
    for row, factor in zip(noisy, (1.1, 0.9, 1.1, 0.93), strict=True):
        row["step_ms"] *= factor
    with pytest.raises(InputError, match="which do not determine it; accepted: more rows"):
        calibrate(task(rows=noisy))


ROW = rows(("resident",), (1024,))[0]
BAD = [
    ({"rows": []}, "rows: got []; accepted: a list of rows"),
    ({"rows": [ROW | {"policy": "prefetch"}]}, "row 1: policy: got 'prefetch'; accepted: resident on-demand copy"),
    ({"rows": [ROW | {"tok_s": 3}]}, "row 1: step_ms or tok_s: one of them, and not both"),
    ({"rows": [ROW | {"step_ms": None}]}, "row 1: step_ms or tok_s: one of them, and not both"),
    ({"rows": [ROW | {"step_ms": "fast"}]}, "row 1: step_ms: got 'fast'; accepted: a number"),
    ({"rows": [ROW | {"context": 3}]}, "row 1: key: got 'context'"),
    ({"rows": [ROW], "fit": "weight_efficiency"}, "fit: got 'weight_efficiency'; accepted: a list of"),
    ({"rows": [ROW], "fit": ["hbm_gb_s"]}, "fit: got 'hbm_gb_s'; accepted: weight_efficiency"),
    (
        {"rows": [ROW], "fit": ["pcie_efficiency"] * 2},
        "fit: got ['pcie_efficiency', 'pcie_efficiency']; accepted: each",
    ),
    ({"rows": [ROW], "kv_dtype": "q9"}, "kv_dtype: got 'q9'"),
    ({"rows": [ROW], "model": "llama3-8c"}, "model: got 'llama3-8c'"),
    ({"rows": [ROW], "card": "a1000"}, "hw: got 'a1000'"),
    ({"rows": [ROW], "source": "me"}, "source: not a key; say in conditions how the rows were taken"),
    ({"rows": [ROW], "weights_gb": 0}, "weights_gb: got 0; accepted: a number from 0.001"),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_a_wrong_file_is_refused_in_one_line(task, changes, message):
    with pytest.raises(InputError) as error:
        task(**changes)
    text = str(error.value)
    assert text.startswith("measurements ") and message in text and "\n" not in text


def test_missing_keys_and_files_are_named(tmp_path):
    path = tmp_path / "rows.yaml"
    path.write_text("name: Mine\n")
    with pytest.raises(InputError, match="conditions: missing"):
        read_task(str(path))
    with pytest.raises(InputError, match="path: got 'no such file'; accepted: a file"):
        read_task(str(tmp_path / "none.yaml"))


def test_a_row_knows_its_policy():
    assert Row(4096, "copy", step_ms=1).policy is Policy.COPY


def test_the_profile_is_a_file_of_the_catalogue_that_names_its_own_measurements(task, tmp_path):
    found = calibrate(task(rows=rows()))
    path = tmp_path / "mine.yaml"
    path.write_text(profile_yaml(found))
    assert load_hardware(str(path)) == profile(found)
    assert profile(found).weight_efficiency == 0.8 and profile(found).hbm_gb_s == CARD.hbm_gb_s
    written = yaml.safe_load(path.read_text())
    assert written["sources"]["weight_efficiency"].startswith(
        "measured: fitted by kvprefetch calibrate to 8 rows of my"
    )
    assert "Llama-3-8B, an engine" in written["sources"]["copy_latency_us"]
    assert str(tmp_path) not in path.read_text()
    lines = list(summary(found))
    assert len(lines) == 1 + 4 + 2 + 8 and "standard error" in lines[1]


def test_the_example_in_the_readme_calibrates(tmp_path):
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    path = tmp_path / "rows.yaml"
    path.write_text(readme.split("**Calibrate a card.**")[1].split("```yaml\n")[1].split("```")[0])
    found = calibrate(read_task(str(path)))
    assert [each.name for each in found.fitted] == list(PLANTED)
    assert all(each.error for each in found.fitted) and max(map(abs, found.residuals_pct)) < 0.5


def test_the_command_prints_or_writes_the_profile(checkout, kvprefetch):
    (checkout / "rows.yaml").write_text(yaml.safe_dump(HEAD | {"rows": rows()}))
    printed = kvprefetch("calibrate", "--measurements", "rows.yaml")
    assert printed.returncode == 0, printed.stderr
    written = kvprefetch("calibrate", "--measurements", "rows.yaml", "--output", "card.yaml")
    assert written.stdout.startswith("Mine: fitted to 8 rows of rows-")
    assert (checkout / "card.yaml").read_text() == printed.stdout
    assert kvprefetch("crossover", "--model", "llama3-8b", "--hw", "card.yaml").returncode == 0
    itself = kvprefetch("calibrate", "--measurements", "rows.yaml", "--output", "./rows.yaml")
    assert itself.returncode == 2
    assert itself.stderr == "kvprefetch: output rows.yaml: the measurements lie there; accepted: another file\n"
    refused = kvprefetch("calibrate", "--measurements", "rows.yaml", "--output", "none/card.yaml")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert refused.stderr == "kvprefetch: output none/card.yaml: cannot be written: No such file or directory\n"
