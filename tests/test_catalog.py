import hashlib
import json
import re
from importlib.util import find_spec, module_from_spec

import pytest
import yaml

from kvprefetch import InputError, Layer, load_hardware, load_model
from kvprefetch.catalog import HARDWARE, MODELS, MOST_BYTES, find, keep, short_names
from kvprefetch.paths import DATA
from kvprefetch.plainyaml import mapping

MODEL = {
    "name": "Mine",
    "source": "the paper's table 1",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 1000,
}
CARD = {
    "name": "Card",
    "hbm_gb_s": 1000,
    "pcie_gb_s": 12.5,
    "sources": {"hbm_gb_s": "datasheet", "pcie_gb_s": "measured"},
}


@pytest.fixture
def write(tmp_path):
    def write(content, name="My Model.yaml"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else yaml.safe_dump(content).encode())
        return str(path)

    return write


@pytest.mark.parametrize("shelf", [MODELS, HARDWARE], ids=["models", "hardware"])
def test_every_catalogue_file_reads_and_has_a_source_for_each_figure(shelf):
    assert len(short_names(shelf)) >= 3
    for name in short_names(shelf):
        entry = find(shelf, name)
        assert entry.slug == name
        assert entry.digest == hashlib.sha256(entry.content).hexdigest()
        assert entry.sources


def test_the_catalogue_is_wide_and_says_how_each_link_rate_was_found():
    assert len(short_names(MODELS)) >= 24
    assert len(short_names(HARDWARE)) >= 18
    for name in short_names(HARDWARE):
        card = find(HARDWARE, name)
        link = next(source.text for source in card.sources if source.figure == "pcie_gb_s")
        assert link.startswith(("measured: ", "estimated: ")), name
        assert card.config.hbm_capacity_gb, name


def test_a_file_of_the_users_reads_like_one_of_the_catalogue(write):
    path = write(MODEL)
    assert load_model(path).num_key_value_heads == 4
    entry = find(MODELS, path)
    assert entry.slug == f"my-model-{entry.digest[:8]}"
    assert (entry.sources[0].figure, entry.sources[0].text) == ("model", "the paper's table 1")
    card = find(HARDWARE, write(CARD, "card.yaml"))
    assert [(source.figure, source.text) for source in card.sources] == list(CARD["sources"].items())
    assert load_hardware(write(CARD, "card.yaml")).pcie_gb_s == 12.5


@pytest.mark.parametrize("stem", ["UPPER", "ünï", "...", "a b;c$(d)", "x" * 200])
def test_a_slug_is_short_and_safe_whatever_the_files_name(write, stem):
    slug = find(MODELS, write(MODEL, f"{stem}.yaml")).slug
    assert re.fullmatch(r"[a-z0-9][a-z0-9.-]*", slug)
    assert len(slug) <= 49


def test_a_kept_file_is_found_by_its_slug(write, tmp_path, monkeypatch):
    monkeypatch.setattr("kvprefetch.catalog.workspace", lambda: tmp_path)
    entry = find(MODELS, write(MODEL))
    with pytest.raises(InputError, match="model: got"):
        find(MODELS, entry.slug)
    keep(MODELS, entry)
    assert find(MODELS, entry.slug) == entry


def test_a_catalogue_entry_is_not_copied(tmp_path, monkeypatch):
    monkeypatch.setattr("kvprefetch.catalog.workspace", lambda: tmp_path)
    keep(MODELS, find(MODELS, "llama3-8b"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "llama3-8",
            "model: got .llama3-8.; accepted: a path, or one of .* that kvprefetch models lists. Did you mean llama3",
        ),
        ("Llama3-8B", r"Did you mean llama3-8b\?"),
        ("zzz", "accepted: a path, or one of the .* names that kvprefetch models lists$"),
        ("", "model: got ''"),
        ("a\nb", r"model: got 'a\\nb'; accepted: one line of text"),
        ("$(shell id)", "model: got"),
        ("..", "model: got '..'"),
        ("../llama3-8b", "model ../llama3-8b: path: got 'no such file'; accepted: a file"),
        ("./", "model ./: path: got 'a folder'"),
        ("nowhere.yaml", "model nowhere.yaml: path: got 'no such file'"),
        ("a\0b.yaml", "model: got"),
        ("/dev/null", "path: got 'not a file'"),
        ("x" * 5000, "model: got"),
    ],
)
def test_names_that_are_not_there_are_refused(name, message):
    with pytest.raises(InputError, match=message):
        find(MODELS, name)


bomb = b"a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "content: got None; accepted: plain YAML"),
        (b"- 1\n", r"content: got \[1\]; accepted: plain YAML"),
        (b"\x00\x01\xff\xfe binary", "not readable; accepted: plain YAML"),
        (b"name: x\nmore: [unclosed\n", "not readable in line 2"),
        (b"name: 'x'\nname: 'y'\n", "not readable in line 2: the key 'name' twice"),
        (
            b"!!python/object/apply:os.system ['true']\n",
            "not readable in line 1: the tag 'tag:yaml.org,2002:python/object/apply:os.system'",
        ),
        (bomb, "not readable in line 1: the anchor 'a'"),
        (b"[" * 5000, "not readable"),
        (b"a: &a 1\n", "not readable in line 1: the anchor 'a'"),
        (b"num_hidden_layers: !!int ''\n", "not readable in line 1: the tag"),
        (b"name: !!timestamp x\n", "not readable in line 1: the tag"),
        (b"x: !!str 5\n", "not readable in line 1: the tag"),
        ("name: é".encode("utf-16"), "not readable; accepted: plain YAML: UTF-8"),
        (b"name: [" + b"9" * 5000 + b"]", "not readable; accepted: plain YAML"),
        (b"hidden_size: " + b"9" * 5000, "not readable; accepted"),
        (b"# " + b"x" * MOST_BYTES, "size: got 'a larger file'; accepted: at most"),
        ({**MODEL, "hiden_size": 1}, r"key: got 'hiden_size'; accepted: .*. Did you mean hidden_size\?"),
        ({**MODEL, 7: 1}, "key: got 7; accepted: name"),
        ({k: v for k, v in MODEL.items() if k != "vocab_size"}, "vocab_size: missing; required: name "),
        ({k: v for k, v in MODEL.items() if k != "source"}, "source: missing; required: name "),
        ({**MODEL, "source": ""}, "source: got ''; accepted: one line of text"),
        ({**MODEL, "hidden_size": "64"}, "hidden_size: got '64'; accepted: a whole number"),
        ({**MODEL, "hidden_size": None}, "hidden_size: got None"),
        ({**MODEL, "num_attention_heads": 5}, "num_attention_heads: got 5; accepted: a divisor of hidden_size, 64"),
    ],
)
def test_a_model_file_that_is_wrong_is_refused_with_file_and_key(write, content, message):
    path = write(content, "wrong.yaml")
    with pytest.raises(InputError, match=f"(?s)^model {re.escape(path)}: {message}") as refused:
        load_model(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("-3", -3),
        ("1.5", 1.5),
        ("1.0e+3", 1000.0),
        ("true", True),
        ("null", None),
        ("010", "010"),
        ("1:30", "1:30"),
        ("1_0", "1_0"),
        ("0x10", "0x10"),
        ("1e3", "1e3"),
        ("yes", "yes"),
        ("2024-01-01", "2024-01-01"),
        ("'12'", "12"),
    ],
)
def test_values_are_what_they_look_like(text, value):
    assert mapping(f"x: {text}".encode()) == {"x": value}


def test_without_libyaml_files_read_the_same(monkeypatch):
    monkeypatch.setattr(yaml, "__with_libyaml__", False)
    spec = find_spec("kvprefetch.plainyaml")
    without = module_from_spec(spec)
    spec.loader.exec_module(without)
    contents = [path.read_bytes() for path in (DATA / "params").rglob("*.yaml")]
    assert [without.mapping(content) for content in contents] == [mapping(content) for content in contents]
    for content in (bomb, b"x: !!str 5\n", b"a: 1\na: 2\n", b"a: [b\n", b"x: 1:30\n  y: 2\n"):
        for reader in (mapping, without.mapping):
            with pytest.raises(InputError, match=r"^not readable in line \d"):
                reader(content)


def test_a_path_that_cannot_be_looked_up_is_one_line():
    with pytest.raises(InputError, match="cannot be read: File name too long"):
        find(MODELS, f"./{'a' * 300}.yaml")
    with pytest.raises(InputError, match="a path, or one of"):
        find(MODELS, "a" * 300)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hbm_gb_s": "2039e9"}, "hbm_gb_s: got '2039e9'; accepted: a number from 0.001 to 1e.06"),
        ({"pcie_gb_s": float("nan")}, "pcie_gb_s: got nan"),
        ({"pcie_gb_s": float("inf")}, "pcie_gb_s: got inf"),
        ({"pcie_gb_s": 0}, "pcie_gb_s: got 0"),
        ({"pcie_gb_s": -25}, "pcie_gb_s: got -25"),
        ({"hbm_capacity_gb": 80}, "sources: hbm_capacity_gb has none; accepted: one source for each of"),
        ({"sources": {"hbm_gb_s": "datasheet"}}, "sources: pcie_gb_s has none"),
        (
            {"sources": {**CARD["sources"], "hbm_capacity_gb": "x"}},
            "sources: got 'hbm_capacity_gb'; accepted: hbm_gb_s",
        ),
        ({"sources": {**CARD["sources"], "pcie_gb_s": ""}}, "sources.pcie_gb_s: got ''"),
        ({"sources": "datasheet"}, "sources: got 'datasheet'; accepted: one source for each of"),
        ({"hbm": 1}, r"key: got 'hbm'; accepted: .*. Did you mean hbm_gb_s\?"),
    ],
)
def test_a_hardware_file_that_is_wrong_is_refused_with_file_and_key(write, change, message):
    path = write({**CARD, **change}, "wrong.yaml")
    with pytest.raises(InputError, match=f"^hw {re.escape(path)}: {message}"):
        load_hardware(path)


ROW = {"count": 2, "kind": "full", "params": 100, "weight_bytes": 200, "kv_values": 8}
STACK = {"name": "Mine", "source": "by hand", "hidden_size": 64, "vocab_size": 1000}


def test_a_file_may_give_its_layers_as_groups_in_order(write):
    sliding = {**ROW, "count": 5, "kind": "sliding", "window": 128}
    pattern = {"count": 3, "layers": [sliding, {**ROW, "count": 1}]}
    model = load_model(write({**STACK, "layers": [ROW, pattern], "assumptions": ["One.", "Two."]}))
    full = Layer("full", 100, 200, 8)
    assert model.layers == (full,) * 2 + ((Layer("sliding", 100, 200, 8, 128),) * 5 + (full,)) * 3
    assert model.assumptions == ("One.", "Two.")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": []}, "layers: got .*; accepted: a list of groups"),
        ({"layers": ROW}, "layers: got {.*; accepted: a list of groups"),
        ({"layers": ["full"]}, "layers, group 1: content: got 'full'; accepted: keys and values"),
        ({"layers": [{**ROW, "kvvalues": 1}]}, r"layers, group 1: key: got 'kvvalues'; .* Did you mean kv_values\?"),
        ({"layers": [ROW, {"kind": "full"}]}, "layers, group 2: count: missing; required: count kind params"),
        ({"layers": [{**ROW, "count": 0}]}, "layers, group 1: count: got 0"),
        ({"layers": [{**ROW, "count": 10**9}]}, "layers, group 1: count: got 1000000000; accepted: .* to 10000"),
        (
            {"layers": [{**ROW, "count": 9000}, {**ROW, "count": 9001}]},
            "layers: got 'more layers'; accepted: 1 to 10000 of them",
        ),
        (
            {"layers": [{"count": 1, "layers": [{**ROW, "count": 9000}, {**ROW, "count": 9001}]}]},
            "group 1: layers: got 'more layers'",
        ),
        ({"layers": [{**ROW, "params": "100"}]}, "layers, group 1: params: got '100'"),
        ({"layers": [{"count": 2, "layers": [{**ROW, "count": 9999}]}]}, "group 1: count: got 2; .* from 1 to 1$"),
        (
            {"layers": [{"count": 2, "layers": [{"count": 2, "layers": [ROW]}]}]},
            "layers, group 1: key: got 'la",
        ),
        ({"num_attention_heads": 4, "layers": [ROW]}, "key: got 'num_attention_heads'; accepted: name source hidden"),
        ({"layers": [ROW], "assumptions": "One."}, "assumptions: got 'One.'; accepted: a list of sentences"),
        ({"layers": [ROW], "assumptions": [1]}, "assumptions: got 1; accepted: one line of text"),
    ],
)
def test_layers_that_are_wrong_are_refused_with_group_and_key(write, change, message):
    with pytest.raises(InputError, match=message):
        load_model(write({**STACK, **change}))


CONFIG = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}
CONFIG |= {"num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128, "vocab_size": 100, "dtype": "bfloat16"}


@pytest.fixture
def published(tmp_path):
    pytest.importorskip("transformers")
    path = tmp_path / "My Model" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(CONFIG))
    return path


def test_a_published_config_is_a_model_under_its_folders_name(published, monkeypatch):
    entry = find(MODELS, str(published))
    assert entry.slug == f"my-model-{entry.digest[:8]}"
    assert entry.config.name == "my-model"
    assert entry.config.layers == load_model(str(published)).layers
    assert entry.digest[:16] in entry.sources[0].text
    monkeypatch.chdir(published.parent)
    assert find(MODELS, "config.json") == entry


def test_a_published_config_is_kept_and_found_by_its_slug(published, tmp_path, monkeypatch):
    monkeypatch.setattr("kvprefetch.catalog.workspace", lambda: tmp_path)
    entry = find(MODELS, str(published))
    keep(MODELS, entry)
    assert find(MODELS, entry.slug) == entry


def test_a_published_config_that_is_wrong_is_refused_with_its_path(published):
    published.write_text("{}")
    with pytest.raises(InputError, match=f"^model {re.escape(str(published))}: model_type: got None; accepted: a publ"):
        load_model(str(published))
