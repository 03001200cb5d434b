"""The measurements' files: what they may say, and what is said of a wrong one."""

import pytest
import yaml

from kvprefetch import InputError
from kvprefetch.catalog import MODELS, find
from kvprefetch.configs import ACHIEVED
from kvprefetch.layers import KV_BYTES
from kvprefetch.measured import Kind, Way
from kvprefetch.measurements import FOLDER, asides, documents, read_asides, read_document

ROW = {"name": "4k", "kind": "on-demand", "ctx_len": 4096, "tok_s": 30, "compute_ms": 26, "copy_ms": 6}
DOCUMENT = {
    "source": "a paper",
    "conditions": "a card",
    "trust": "good",
    "layers": 64,
    "caching_layers": 16,
    "within_pct": {"on-demand": {"law": 5}},
    "rows": [ROW],
}
OTHER = {"name": "a rate", "measured": "3 tokens/s", "source": "a page", "why": "prefill is in it."}


def read(**changes):
    return read_document("mine", yaml.safe_dump(DOCUMENT | changes).encode())


def test_a_document_reads_with_its_rows():
    document = read(rows=[ROW | {"batch": 2}], within_pct={"on-demand": {"law": 5}})
    assert (document.slug, document.model, document.kv_dtype) == ("mine", None, "fp16")
    (row,) = document.rows
    assert (row.kind, row.step_s, row.link_s) == (Kind.ONDEMAND, 2 / 30, 0.006)
    assert document.within_pct == {(Kind.ONDEMAND, Way.LAW): 5}


def test_bytes_over_a_measured_rate_stand_for_the_links_time():
    row = {key: value for key, value in ROW.items() if key != "copy_ms"}
    (row,) = read(rows=[row | {"copies": [{"bytes": 24.6e6, "gb_s": 24.6}, {"bytes": 7e6, "gb_s": 3.5}]}]).rows
    assert row.link_s == pytest.approx(0.003)


BAD = [
    ({"rows": []}, "rows: got []; accepted: a list of rows"),
    ({"rows": "none"}, "rows: got 'none'; accepted: a list of rows"),
    ({"rows": [ROW, 3]}, "row 2: content: got 3; accepted: keys and values"),
    ({"rows": [ROW | {"kind": "ondemand"}]}, "row 1: kind: got 'ondemand'; accepted: resident on-demand"),
    ({"rows": [ROW | {"tok_s": 0}]}, "row 1: tok_s: got 0; accepted: a number from 0.001 to"),
    ({"rows": [ROW | {"ctx_len": 4.5}]}, "row 1: ctx_len: got 4.5; accepted: a whole number"),
    ({"rows": [ROW | {"speed": 3}]}, "row 1: key: got 'speed'; accepted: name kind ctx_len tok_s"),
    ({"rows": [ROW | {"copies": [{"bytes": 5, "gb_s": 3}]}]}, "row 1: copies: not together with copy_ms"),
    ({"rows": [ROW | {"copies": [{"bytes": 5}]}]}, "row 1: row 1: gb_s: missing"),
    ({"rows": [ROW | {"kv_dtype": "q9"}]}, "row 1: kv_dtype: got 'q9'"),
    ({"source": ""}, "source: got ''; accepted: one line of text"),
    ({"layers": 63}, "caching_layers: got 16; accepted: a divisor of layers, 63"),
    ({"caching_layers": 65}, "caching_layers: got 65; accepted: a whole number from 1 to 64"),
    ({"model": "llama3-8b"}, "model and card: both, or neither"),
    ({"model": "llama3-8c", "card": "a100"}, "model: got 'llama3-8c'; .* Did you mean llama3-8b?"),
    ({"model": "llama3-8b", "card": "a1000"}, "hw: got 'a1000'; .* Did you mean a100?"),
    ({"gives": "weight_efficiency"}, "gives: got 'weight_efficiency'; accepted: a list of weight_efficiency"),
    ({"gives": ["hbm_gb_s"]}, "gives: got 'hbm_gb_s'; accepted: weight_efficiency"),
    ({"within_pct": 5}, "within_pct: got 5; accepted: for each kind"),
    ({"within_pct": {"on-demand": {"laws": 5}}}, "within_pct: got 'laws'; accepted: law refined first-order"),
    ({"within_pct": {"on-demand": {"law": 500}}}, "within_pct: got 500; accepted: a number from 0 to 100"),
    ({"slug": "other"}, "slug: not a key; it is the file's name"),
    ({"note": "x"}, "key: got 'note'"),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_a_wrong_file_is_refused_in_one_line(changes, message):
    with pytest.raises(InputError) as error:
        read(**changes)
    text = str(error.value)
    assert text.startswith("measurements mine: ") and "\n" not in text
    assert all(part in text for part in message.split(" .* "))


def test_what_is_missing_is_named():
    with pytest.raises(InputError, match="measurements mine: rows: missing"):
        read_document("mine", yaml.safe_dump({"source": "x"}).encode())
    with pytest.raises(InputError, match="measurements mine: trust: missing"):
        read_document("mine", yaml.safe_dump({k: v for k, v in DOCUMENT.items() if k != "trust"}).encode())
    with pytest.raises(InputError, match="measurements mine: not readable in line 1"):
        read_document("mine", b"a: [")


def test_a_rate_that_is_no_target_says_why():
    assert read_asides("mine", yaml.safe_dump({"rows": [OTHER]}).encode())[0].why == "prefill is in it."
    without = {key: value for key, value in OTHER.items() if key != "why"}
    with pytest.raises(InputError, match="measurements mine: row 1: why: missing"):
        read_asides("mine", yaml.safe_dump({"rows": [without]}).encode())
    assert len(asides()) >= 8


def test_every_file_of_the_measurements_reads():
    papers = documents()
    assert {paper.slug for paper in papers} == {path.stem for path in FOLDER.glob("*.yaml")}
    assert sum(len(paper.rows) for paper in papers) >= 45
    for paper in papers:
        names = [(row.name, row.kind) for row in paper.rows]
        assert len(set(names)) == len(names), paper.slug
        assert {kind for kind, _ in paper.within_pct} == {row.kind for row in paper.rows}


def test_a_document_that_gave_the_card_its_efficiencies_says_so():
    """What keeps the refined terms from being judged on rows that they were fitted to."""
    for paper in documents():
        name = paper.source.split("docs/")[-1].split(",")[0]
        achieved = [source for source in (paper.card.sources if paper.card else ()) if source.figure in ACHIEVED]
        rests_on = any(name in source.text for source in achieved)
        assert set(paper.gives) == ({source.figure for source in achieved} if rests_on else set()), paper.slug


def test_typed_bytes_are_those_of_the_models():
    """34816 bytes a token of the one model, 544 a token and layer of the other."""
    model = find(MODELS, str(FOLDER / "models" / "qwen3.8-27b-iq2-m.yaml")).config
    a_token = model.kv_bytes(1, kv_dtype="q8_0")
    assert a_token == 34816
    by_slug = {paper.slug: paper for paper in documents()}
    for row in by_slug["dense-kv-hypotheses"].rows:
        assert not row.copies or row.copies[0].bytes == a_token * row.ctx_len
    for row in by_slug["dense-kv-hypotheses-batch"].rows:
        assert row.copies[0].bytes == a_token * 8256
    for row in by_slug["two-cards"].rows:
        both = 512 * KV_BYTES["q8_0"] * (13 * row.ctx_len + 39 * min(row.ctx_len, 2048))
        assert [copy.bytes for copy in row.copies] == [both / 2, both / 2]


def test_the_models_weights_are_the_files_size():
    model = find(MODELS, str(FOLDER / "models" / "qwen3.8-27b-iq2-m.yaml")).config
    assert sum(layer.weight_bytes for layer in model.layers) == pytest.approx(9.60 * 2**30)
    assert [layer.kind for layer in model.layers] == ["linear", "linear", "linear", "full"] * 16
