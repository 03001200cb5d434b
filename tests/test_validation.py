"""Predictions against published measurements: every row within the tolerance that its document states."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from html_rules import broken_rules

from kvprefetch import A100_PCIE, LLAMA3_8B, InputError, captions, charts, load_hardware, misses
from kvprefetch import validationprose as sentences
from kvprefetch.accuracy import WHERE, accuracies, accuracy, clouds, of_way, side_by_side, signed
from kvprefetch.configs import FIRST_ORDER, Terms, refined
from kvprefetch.diagnosis import one_buffers, streaming
from kvprefetch.measured import Kind, Way
from kvprefetch.measurements import documents
from kvprefetch.plan import Fit, make_plan
from kvprefetch.publish import up_to_date
from kvprefetch.schedule import ondemand_step, prefetch_step
from kvprefetch.validation import one_buffer_step, predict, predictions, spread
from kvprefetch.validationpage import ValidationPage, as_json

NO_TWO_SHARES = "first order (the card's file does not state both shares of its HBM rate)"
PAPERS = {paper.slug: paper for paper in documents()}


def named(each):
    return f"{each.document.slug}: {each.row.name}, {each.row.kind}, {each.way}"


@pytest.mark.parametrize("each", predictions(), ids=named)
def test_a_row_is_predicted_within_the_tolerance_that_its_document_states(each):
    assert abs(each.error_pct) <= each.within_pct


def test_no_tolerance_is_wider_than_its_rows_need():
    """So that a change that makes the model less true turns red: the worst row is within 5 points of its limit."""
    for paper in PAPERS.values():
        for kind, way in paper.within_pct:
            errors = [abs(e.error_pct) for e in predict(paper) if (e.row.kind, e.way) == (kind, way)]
            assert errors, (paper.slug, kind, way)
            assert paper.within_pct[kind, way] - max(errors) < 5, (paper.slug, kind, way)


# Medians as this project states them, in per cent: a change for the worse turns red, one for the better is welcome.
@pytest.mark.parametrize(
    ("kind", "way", "rows", "most"),
    [
        (Kind.RESIDENT, Way.REFINED, 3, 7.2),
        (Kind.RESIDENT, Way.FIRST_ORDER, 8, 26.8),
        (Kind.ONDEMAND, Way.LAW, 20, 1.3),
        (Kind.ONDEMAND, Way.REFINED, 15, 2.6),
        (Kind.ONDEMAND, Way.FIRST_ORDER, 20, 15.4),
        (Kind.NEVER_WAITING, Way.LAW, 3, 2.0),
        (Kind.NEVER_WAITING, Way.REFINED, 3, 3.5),
        (Kind.NEVER_WAITING, Way.FIRST_ORDER, 3, 19.3),
        (Kind.ONE_AHEAD, Way.LAW, 5, 13.2),
        (Kind.ONE_AHEAD, Way.REFINED, 11, 12.4),
        (Kind.ONE_AHEAD, Way.FIRST_ORDER, 11, 24.4),
    ],
)
def test_the_median_error_of_each_kind_and_way(kind, way, rows, most):
    found = accuracy(predictions(), kind, way)
    assert len(found.errors_pct) >= rows
    assert found.median_pct <= most


def test_the_readme_states_the_medians():
    said = " ".join((Path(__file__).parent.parent / "README.md").read_text().split())
    law, refined_, first = (accuracy(predictions(), Kind.ONDEMAND, way).median_pct for way in Way)
    ahead = accuracy(predictions(), Kind.ONE_AHEAD, Way.REFINED)
    resident = [accuracy(predictions(), Kind.RESIDENT, way).median_pct for way in (Way.REFINED, Way.FIRST_ORDER)]
    assert f"miss a step by {law:.1f} % in the median, the whole planner by {refined_:.1f} %" in said
    assert f"efficiencies and {first:.1f} % without them" in said
    assert "GPU by {:.1f} % with them, and without them it is predicted {:.1f} % too fast".format(*resident) in said
    assert f"by {ahead.median_pct:.1f} % in the median and {-ahead.worst_pct:.0f} % at worst." in said


def test_kinds_are_judged_apart_and_only_where_something_was_predicted():
    found = [(each.kind, each.way) for each in accuracies(predictions())]
    assert len(found) == 11 and (Kind.RESIDENT, Way.LAW) not in found
    assert found == sorted(found, key=lambda pair: (list(Kind).index(pair[0]), list(Way).index(pair[1])))


def test_refined_terms_are_not_judged_on_rows_that_gave_the_card_its_efficiencies():
    judged = {each.document.slug for each in of_way(predictions(), Way.REFINED)}
    assert judged == {"kv-offload-measurements", "kv-transport-pipelining"}
    assert PAPERS["dense-kv-hypotheses"].gives == ("weight_efficiency", "attention_efficiency")


def test_measured_times_are_spread_evenly_and_the_last_layer_of_each_group_fetches():
    paper = PAPERS["kv-offload-measurements"]
    row = next(row for row in paper.rows if row.kind is Kind.ONDEMAND)
    compute, transfer = spread(paper, row)
    assert compute.sum() == pytest.approx(row.compute_ms / 1e3) and transfer.sum() == pytest.approx(row.link_s)
    assert np.flatnonzero(transfer).tolist() == list(range(3, 64, 4))
    assert spread(paper, replace(row, compute_ms=None)) is None


def test_a_pageable_row_is_predicted_with_the_rate_of_its_memory():
    rows = [each for each in predictions() if "13k" in each.row.name and each.row.kind is Kind.ONDEMAND]
    pinned, pageable = (
        next(e for e in rows if e.row.name.startswith(n) and e.way is Way.REFINED) for n in ("pi", "pa")
    )
    carried = 13128 * 34816
    assert pageable.step_s - pinned.step_s == pytest.approx(carried / 12.63e9 - carried / 24.61e9)


def test_one_buffer_lies_between_the_pipeline_and_on_demand():
    compute, transfer = np.array([2.0, 1.0, 2.0, 1.0]), np.array([0.0, 3.0, 0.0, 3.0])
    assert one_buffer_step(compute, transfer) == 3 + 1 + 3 + 1
    assert prefetch_step(compute, transfer, 1) < 8 < ondemand_step(compute, transfer)
    assert all(each.alone_s >= each.ideal_s * (1 - 1e-12) for each in one_buffers())


def test_a_line_through_resident_steps_finds_the_shares_that_the_card_states():
    found = streaming(PAPERS["dense-kv-hypotheses"])
    card = load_hardware("rtx4070")
    assert found.weights == pytest.approx(card.weight_efficiency, abs=0.002)
    assert found.attention == pytest.approx(card.attention_efficiency, abs=0.005)
    assert round(streaming(PAPERS["kv-offload-measurements"]).weights, 2) == 0.82


@pytest.mark.parametrize(
    ("terms", "way", "words"),
    [
        (FIRST_ORDER, Way.FIRST_ORDER, "first order missed"),
        (refined(load_hardware("rtx4070")), Way.REFINED, "refined terms missed"),
        (replace(refined(load_hardware("rtx4070")), kv_read=False), Way.FIRST_ORDER, "first order missed"),
        (Terms(kv_read=True), Way.FIRST_ORDER, f"{NO_TWO_SHARES} missed"),
        (Terms(kv_read=True, weight_efficiency=0.8), Way.FIRST_ORDER, f"{NO_TWO_SHARES} missed"),
        (Terms(kv_read=True, attention_efficiency=0.4), Way.FIRST_ORDER, f"{NO_TWO_SHARES} missed"),
        (Terms(kv_read=True, weight_efficiency=0.8, attention_efficiency=0.4), Way.REFINED, "refined terms missed"),
    ],
)
@pytest.mark.parametrize(
    ("ctx_len", "fit", "kinds"),
    [
        (8192, Fit.RESIDENT, [Kind.RESIDENT]),
        (500_000, Fit.OFFLOAD, [Kind.RESIDENT, Kind.ONDEMAND, Kind.ONE_AHEAD]),
        (10**8, Fit.NOTHING, [Kind.RESIDENT, Kind.ONDEMAND, Kind.ONE_AHEAD]),
    ],
)
def test_a_report_is_told_how_accurate_its_kind_of_prediction_has_been(terms, way, words, ctx_len, fit, kinds):
    plan = make_plan(LLAMA3_8B, A100_PCIE, ctx_len, terms=terms)
    assert plan.fit is fit
    said = sentences.track_record(plan)
    assert said.startswith(
        "How accurate this kind of prediction has been: against published measurements, all of one card "
        f"({load_hardware('rtx4070').name}), {words} the step "
    )
    assert "](../validation/report.html)" in said
    for kind in Kind:
        assert (f" {WHERE[kind]} by " in said) == (kind in kinds)
    for kind in kinds:
        assert f"{WHERE[kind]} by {accuracy(predictions(), kind, way).median_pct:.1f}\N{NO-BREAK SPACE}%" in said


def test_the_cards_that_rows_are_of_are_named_or_counted():
    (known, *_) = (paper for paper in documents() if paper.card)
    another = replace(known, card=replace(known.card, config=replace(known.card.config, name="another")))
    assert f" are of one card ({known.card.config.name}): this tests the model" in sentences.independence([known])
    assert " are of 2 cards: this tests the model, not every card." in sentences.independence([known, another])


def test_a_kind_of_which_nothing_was_predicted_has_no_accuracy():
    with pytest.raises(InputError, match=f"measurements: no {Kind.RESIDENT} row is predicted by {Way.LAW}$"):
        accuracy(predictions(), Kind.RESIDENT, Way.LAW)
    with pytest.raises(InputError, match="measurements: no "):
        accuracy((), Kind.ONDEMAND, Way.REFINED)


@pytest.mark.parametrize(("error", "said"), [(5.64, "5.6 % too slow"), (-12, "12.0 % too fast"), (0.04, "exact")])
def test_an_error_says_which_way(error, said):
    assert signed(error).replace("\N{NO-BREAK SPACE}", " ") == said


def test_each_systematic_miss_has_a_paragraph_with_figures():
    said = list(misses.paragraphs())
    assert len(said) == 6
    assert all(paragraph.startswith("**") and any(c.isdigit() for c in paragraph) for paragraph in said)
    assert "no step changes by 0.01 ms" in misses.ring()
    assert "0.82 for weights" in misses.reading()


def test_the_chart_has_equal_axes_a_band_for_each_distance_and_a_shape_for_each_kind():
    found = clouds(predictions(), Way.REFINED)
    _, (ax,) = charts.figure(4)
    charts.agreement(ax, found, (10, 25))
    assert ax.get_xlim() == ax.get_ylim() and ax.get_aspect() == 1
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels[:2] == ["within 25 %", "within 10 %"] and len(labels) == 6
    lines = [line for line in ax.get_lines() if line.get_marker() != "None"]
    assert len({line.get_marker() for line in lines}) == len({line.get_color() for line in lines}) == 4
    alt = captions.agreement_alt(found, (10, 25))
    assert "on-demand: 15 rows, 15 within 10 % and 15 within 25 %" in alt


def test_rows_without_a_refined_prediction_stand_in_the_table_all_the_same():
    pairs = side_by_side(predictions(), Kind.RESIDENT)
    assert [first.document.slug for refined, first in pairs if refined is None] == ["dense-kv-hypotheses"] * 5


def test_metrics_hold_every_prediction():
    metrics = json.loads(as_json())
    assert metrics["title"] and len(metrics["rows"]) == len(predictions())
    assert {row["way"] for row in metrics["rows"]} == set(Way)


@pytest.mark.parametrize("bands", [(), (1, 2, 3), (0,), (10, 95), ("10",)])
def test_bands_that_cannot_be_drawn_are_refused(bands):
    with pytest.raises(InputError, match="bands: got"):
        ValidationPage(bands)


def test_the_page_is_built_linked_from_the_index_and_breaks_no_rule(checkout, kvprefetch):
    done = kvprefetch("validation")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("reports/validation/report.html\n")
    page = (checkout / "reports" / "validation" / "report.html").read_text("utf-8")
    assert broken_rules(page) == []
    index = (checkout / "reports" / "index.html").read_text("utf-8")
    assert broken_rules(index) == []
    assert '<a href="validation/report.html">Predictions against published measurements</a>' in index
    assert (checkout / "reports" / "validation" / "metrics.json").read_text("utf-8") == as_json()
    assert kvprefetch("validation").stdout.endswith("reports/validation/report.html (unchanged)\n")


def test_the_page_depends_on_rows_model_and_card():
    page = ValidationPage()
    assert not up_to_date(replace(page, bands=(10,)))
    contents = b"".join(page.inputs)
    assert b"31.72" in contents and b"qwen3.5-27B" in contents and b"attention_efficiency: 0.391" in contents
