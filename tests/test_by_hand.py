"""The ways to a report that do not go through make."""

import json
import subprocess
import sys

import nbformat
import pytest
from conftest import ROOT
from nbclient import NotebookClient


def printed_metrics(notebook):
    (cell,) = (cell for cell in notebook.cells if "metrics" in cell.metadata.get("tags", ()))
    return json.loads(cell.outputs[0].text)


def reference(folder):
    return json.loads((ROOT / "reports" / folder / "metrics.json").read_text())


def test_the_notebook_runs_with_its_defaults_under_plain_nbclient_in_its_own_folder():
    notebook = nbformat.read(ROOT / "notebooks" / "report.ipynb", as_version=4)
    NotebookClient(notebook, resources={"metadata": {"path": str(ROOT / "notebooks")}}).execute()
    assert printed_metrics(notebook) == reference("llama3-8b--a100")


def test_papermill_and_nbconvert_by_hand_give_the_same_numbers_and_the_same_page(tmp_path, fresh_reports):
    run = {"cwd": ROOT, "check": True, "capture_output": True}
    pair = ("-p", "model", "mistral-7b", "-p", "hw", "rtx4090")
    output = str(tmp_path / "out.ipynb")
    subprocess.run([sys.executable, "-m", "papermill", "notebooks/report.ipynb", output, *pair], **run)
    notebook = nbformat.read(output, as_version=4)
    assert printed_metrics(notebook) == reference("mistral-7b--rtx4090")
    subprocess.run([sys.executable, "-m", "nbconvert", "--to", "kvprefetch", output], **run)
    page = (tmp_path / "out.html").read_bytes()
    assert page == (fresh_reports / "mistral-7b--rtx4090" / "report.html").read_bytes()


def test_papermill_lists_the_documented_parameters():
    said = subprocess.run(
        [sys.executable, "-m", "papermill", "--help-notebook", "notebooks/report.ipynb"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for parameter in (
        'model: str (default "llama3-8b")',
        "contexts: list[int]",
        "batch: int",
        "depth: int (default 1)",
    ):
        assert parameter in said


@pytest.mark.parametrize("format", ["html", "markdown"])
def test_nbconverts_own_formats_show_tables_figures_and_formulas(format, tmp_path):
    """What a code host or JupyterLab shows is no poorer than our page."""
    source = ROOT / "reports" / "llama3-8b--a100" / "report.ipynb"
    subprocess.run(
        [sys.executable, "-m", "nbconvert", "--to", format, "--output-dir", str(tmp_path), str(source)],
        check=True,
        capture_output=True,
    )
    (path,) = (path for path in tmp_path.iterdir() if path.is_file())
    page = path.read_text()
    assert page.count("<table>") >= 6
    assert page.count("image/svg+xml" if format == "html" else ".svg)") >= 3
    assert r"\text{on-demand} = \sum_{l=1}^{L}" in page
