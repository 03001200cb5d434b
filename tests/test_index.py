import json
from dataclasses import replace

import pytest
from bs4 import BeautifulSoup
from html_rules import broken_rules

from kvprefetch import publish
from kvprefetch.catalog import HARDWARE, MODELS, find
from kvprefetch.html.index import index_page
from kvprefetch.metrics import as_json, from_json, measure
from kvprefetch.publish import ARTEFACTS, Published, publish_index
from kvprefetch.request import Request

PAIR = find(MODELS, "llama3-8b"), find(HARDWARE, "a100")
NASTY = '<script>alert(1)</script> & "q" $x$ |a|'


def published(folder, **parameters):
    return Published(folder, measure(Request(*PAIR, **parameters)))


def cells(html):
    rows = BeautifulSoup(html, "html.parser").select("tbody tr")
    return [[cell.get_text(strip=True) for cell in row.find_all(["th", "td"])] for row in rows]


def test_the_index_has_a_linked_row_for_each_report_at_the_context_most_of_them_swept():
    html = index_page(
        [
            published("one"),
            published("two", contexts=(512, 2048), batch=4),
            published("three", contexts=(2048,)),
            published("four", contexts=(100,), terms="lm_head=true,kv_dtype=fp8", resident=9),
        ]
    )
    assert broken_rules(html) == []
    assert "4 reports; steps at 2048 tokens" in " ".join(html.split())
    name, card = "Llama-3-8B", "A100-80GB PCIe (Gen4 x16)"
    terms = "first-order, kv_dtype=fp8, lm_head=true, R 9"
    assert cells(html) == [
        [name, card, "1", "1", "first-order", "8192", "467300", "1306", "42.6", "17.58", "10.95"],
        [name, card, "4", "1", "first-order", "8192", "116825", "327", "37.7", "49.80", "43.16"],
        [name, card, "1", "1", "first-order", "8192", "467300", "1306", "37.7", "17.58", "10.95"],
        [name, card, "1", "1", terms, "8192", "934600", "2621", "3.0", "–", "–"],
    ]
    links = [link["href"] for link in BeautifulSoup(html, "html.parser").select("tbody a")]
    assert links == ["one/report.html", "two/report.html", "three/report.html", "four/report.html"]


def test_names_appear_as_text():
    report = published("one")
    html = index_page([replace(report, metrics=replace(report.metrics, model_name=NASTY, crossover_ctx=None))])
    assert broken_rules(html) == []
    assert cells(html)[0][0] == NASTY
    assert cells(html)[0][7] == "never"


GOOD = json.loads(as_json(measure(Request(*PAIR))))
EDITED = [
    "",
    "[]",
    json.dumps({"model": "x"}),
    json.dumps(GOOD | {"sweep": []}),
    json.dumps(GOOD | {"sweep": [GOOD["sweep"][0] | {"reduction_pct": "x"}]}),
    json.dumps(GOOD | {"sweep": [GOOD["sweep"][0] | {"ctx_len": [1]}]}),
]


@pytest.fixture(params=EDITED, ids=range(len(EDITED)))
def edited(request):
    """A metrics.json that somebody changed by hand into something that cannot be listed."""
    return request.param


@pytest.fixture
def reports(tmp_path, monkeypatch, edited):
    monkeypatch.setattr(publish, "workspace", lambda: tmp_path)
    for folder in ("b", "a", "partial", "edited"):
        for name in ARTEFACTS:
            path = tmp_path / "reports" / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(as_json(measure(Request(*PAIR))))
    (tmp_path / "reports" / "partial" / "report.html").unlink()
    (tmp_path / "reports" / "edited" / "metrics.json").write_text(edited)
    return tmp_path / "reports"


def test_whole_reports_are_listed_in_order_and_nothing_else(reports):
    publish_index(lambda found, _: " ".join(report.folder for report in found))
    assert (reports / "index.html").read_text() == "a b"
    publish_index(index_page)
    first = (reports / "index.html").read_bytes()
    publish_index(index_page)
    assert (reports / "index.html").read_bytes() == first
    assert not [path for path in reports.iterdir() if path.name.startswith(".")]


def test_metrics_read_back_are_the_metrics_written():
    metrics = measure(Request(*PAIR))
    assert from_json(as_json(metrics)) == metrics
