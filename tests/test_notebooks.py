"""The notebooks as files: how they are stored, and that the tracked reports are what they would be today."""

import json
import statistics

import nbformat
import pytest
from conftest import ROOT
from html_rules import broken_rules
from papermill.parameterize import parameterize_notebook

from kvprefetch.catalog import HARDWARE, MODELS, find
from kvprefetch.planner import DEFAULT_CONTEXTS
from kvprefetch.reference import REFERENCES, TRACKED, changes
from kvprefetch.request import Request

FOLDERS = [f"{model}--{hw}" for model, hw in REFERENCES]
TEMPLATES = sorted((ROOT / "notebooks").glob("*.ipynb"))


def read(path):
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def tracked(folder):
    return {name: (ROOT / "reports" / folder / name).read_bytes() for name in TRACKED}


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_is_stored_without_outputs_and_with_readable_ids(path):
    notebook = read(path)
    nbformat.validate(notebook)
    assert all(not cell.outputs and cell.execution_count is None for cell in code_cells(notebook))
    assert all(cell.id.replace("-", "").isalpha() for cell in notebook.cells)
    assert notebook.metadata.kernelspec.name == "python3"
    assert notebook.metadata.language_info == {"name": "python"}


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_is_prose_and_short_calls(path):
    cells = code_cells(read(path))
    lines = [len(cell.source.splitlines()) for cell in cells]
    assert max(lines) <= 15
    assert statistics.median(lines) <= 6
    assert not any(line.startswith(("def ", "class ")) for cell in cells for line in cell.source.splitlines())


def test_the_templates_default_contexts_are_the_planners():
    notebook = read(ROOT / "notebooks" / "report.ipynb")
    (cell,) = (cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ()))
    namespace = {}
    exec(cell.source, namespace)
    assert tuple(namespace["contexts"]) == DEFAULT_CONTEXTS
    assert (namespace["batch"], namespace["depth"]) == (1, 1)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_reference_has_outputs_and_counts(folder):
    """What nbval does not see: it passes a notebook without outputs."""
    cells = code_cells(read(ROOT / "reports" / folder / "report.ipynb"))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert sum(bool(cell.outputs) for cell in cells) > len(cells) / 2


@pytest.mark.parametrize(("model", "hw"), REFERENCES)
def test_a_reference_holds_the_templates_cells_and_the_injected_parameters(model, hw):
    """What nbval does not see: it runs the stored notebook, never the template."""
    request = Request(find(MODELS, model), find(HARDWARE, hw))
    template = read(ROOT / "notebooks" / "report.ipynb")
    for cell in template.cells:
        cell.metadata.setdefault("tags", [])
    template.metadata["papermill"] = {}
    expected = parameterize_notebook(template, request.parameters)
    reference = read(ROOT / "reports" / request.folder / "report.ipynb")
    assert [cell.source for cell in reference.cells] == [cell.source for cell in expected.cells]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_fresh_build_in_another_folder_equals_the_reference_byte_for_byte(folder, fresh_reports):
    """What nbval does not see: prose, pictures, alt texts, and digits that are not printed."""
    fresh = {name: (fresh_reports / folder / name).read_bytes() for name in TRACKED}
    assert list(changes(tracked(folder), fresh)) == []
    assert fresh == tracked(folder)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_fresh_page_breaks_no_rule(folder, fresh_reports):
    assert broken_rules((fresh_reports / folder / "report.html").read_text("utf-8")) == []


def test_changes_are_told_number_by_number():
    old = tracked(FOLDERS[0])
    metrics = json.loads(old["metrics.json"])
    metrics["sweep"][0]["prefetch_ms"] *= 1 + 1e-6
    metrics["crossover_ctx"] += 1
    notebook = nbformat.reads(old["report.ipynb"].decode(), as_version=4)
    next(cell for cell in notebook.cells if cell.id == "scope").source += " and more"
    new = {
        "metrics.json": json.dumps(metrics).encode(),
        "report.ipynb": nbformat.writes(notebook).encode(),
        "before_after.png": b"another picture",
    }
    crossover, prefetch, cell, picture = changes(old, new)
    assert crossover == "crossover_ctx: 1306 -> 1307 (+7.66e-04)"
    assert prefetch.startswith("sweep[0].prefetch_ms: 6.92") and prefetch.endswith("(+1.00e-06)")
    assert cell == "report.ipynb: cell scope changed"
    assert picture == "before_after.png: changed"
    assert list(changes(old, old)) == []
    assert list(changes(dict.fromkeys(TRACKED, b""), old)) == ["new"]
