"""How is a page's notebook run, and to which files does that come?

The executed notebook is the only source: the page is rendered from it, metrics.json is the text its
cell tagged "metrics" printed, and before_after.png is the picture attached to one of its figures.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import nbformat
from jupyter_client import AsyncKernelManager
from nbclient.exceptions import CellTimeoutError
from nbformat import NotebookNode
from papermill import PapermillExecutionError, execute_notebook

from kvprefetch.checks import InputError
from kvprefetch.html.exporter import ReportExporter
from kvprefetch.paths import DATA, workspace
from kvprefetch.publish import Page

CELL_TIMEOUT = 120  # seconds; the slowest cell takes about one


class ReportError(InputError):
    """A report that could not be built; its text is one line."""


def files(page: Page, manager: AsyncKernelManager, progress_bar: bool = True) -> dict[str, bytes]:
    """The files of `page`, made by the kernel of `manager`, which may still be starting. Raises ReportError."""
    exporter = rehearsed(page.notebook)
    executed = run(page, manager, progress_bar)
    html, _ = exporter.from_notebook_node(executed)
    made = {
        "report.ipynb": nbformat.writes(executed).encode() + b"\n",
        "report.html": html.encode(),
        "metrics.json": _printed(executed, "metrics").encode(),
    }
    if "before_after.png" in page.artefacts:
        made["before_after.png"] = _attached_png(executed)
    return made


@cache
def rehearsed(notebook: str) -> ReportExporter:
    """An exporter that has rendered what no run of the notebook changes: its code, its Markdown, its templates."""
    exporter = ReportExporter()
    exporter.rehearse(template(notebook))
    return exporter


def run(page: Page, manager: AsyncKernelManager, progress_bar: bool = True) -> NotebookNode:
    """The notebook, executed for `page` and free of all that differs between runs. Raises ReportError."""
    source = template(page.notebook)
    failed = workspace() / ".cache" / "failed" / f"{page.folder}.ipynb"
    failed.parent.mkdir(parents=True, exist_ok=True)
    failed.unlink(missing_ok=True)
    try:
        executed = execute_notebook(
            source,
            str(failed).replace("{", "{{").replace("}", "}}"),  # papermill formats it
            parameters=page.parameters,
            progress_bar=progress_bar,
            request_save_on_cell_execute=False,
            kernel_name="python3",
            execution_timeout=CELL_TIMEOUT,
            record_timing=False,
            km=manager,
        )
    except PapermillExecutionError as error:
        cell = next((cell.id for cell in source.cells if cell.source == error.source), "parameters")
        reason = f"{error.ename}: {error.evalue}".splitlines()[0]
        raise ReportError(f"{page.folder}: cell {cell} failed: {reason}; see {os.path.relpath(failed)}") from None
    except (RuntimeError, CellTimeoutError) as error:  # the kernel died, at its start too, or a cell took too long
        raise ReportError(f"{page.folder}: {str(error).splitlines()[0]}") from None
    failed.unlink()
    unrun = [cell.id for cell in executed.cells if cell.cell_type == "code" and not cell.execution_count]
    if unrun:
        raise ReportError(f"{page.folder}: cell {unrun[0]} was not run: a cell before it ended the kernel")
    return _without_traces(executed)


def working_copy(page: Page) -> Path:
    """The notebook with the parameters of `page` filled in, to be changed at will; one that is there is kept."""
    copy = workspace() / ".cache" / "notebooks" / f"{page.folder}.ipynb"
    if not copy.exists():
        page.keep()
        copy.parent.mkdir(parents=True, exist_ok=True)
        prepared = execute_notebook(template(page.notebook), None, parameters=page.parameters, prepare_only=True)
        new = copy.with_suffix(".new")
        nbformat.write(_without_traces(prepared), new)
        os.replace(new, copy)
    return copy


def template(notebook: str) -> NotebookNode:
    """The notebook of this name as it is stored, without outputs."""
    return nbformat.read(DATA / "notebooks" / notebook, as_version=4)


def _without_traces(executed: NotebookNode) -> NotebookNode:
    """`executed` less what papermill and the kernel write into it about the run itself."""
    executed.metadata.pop("papermill")
    executed.metadata.language_info = {"name": "python"}
    for cell in executed.cells:
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)
        if "injected-parameters" in cell.metadata.tags:
            cell.id = "injected-parameters"
        if not cell.metadata.tags:
            del cell.metadata["tags"]
    return executed


def _outputs(executed: NotebookNode) -> Iterator[tuple[NotebookNode, NotebookNode]]:
    for cell in executed.cells:
        for output in cell.get("outputs", ()):
            yield cell, output


def _printed(executed: NotebookNode, tag: str) -> str:
    """What the cell with this tag printed."""
    return next(output.text for cell, output in _outputs(executed) if tag in cell.metadata.get("tags", ()))


def _attached_png(executed: NotebookNode) -> bytes:
    """The one picture that a figure carries as PNG."""
    return next(
        base64.b64decode(output.data["image/png"])
        for _, output in _outputs(executed)
        if "image/png" in output.get("data", {})
    )
