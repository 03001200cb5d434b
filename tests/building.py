"""What the tests that build reports share."""

from pathlib import Path

import nbformat
import psutil

PAIR = ("--model", "llama3-8b", "--hw", "a100")
SHORT = (*PAIR, "--contexts", "512,4096")
FOLDER = "llama3-8b--a100--ctx512-4096"


def published(checkout: Path) -> dict[str, bytes]:
    """The files of every report, by their path below reports/."""
    reports = checkout / "reports"
    return {str(path.relative_to(reports)): path.read_bytes() for path in reports.rglob("*") if path.is_file()}


def change_cell(checkout: Path, cell_id: str, source: str) -> None:
    """Replace the source of one cell of the copied notebook."""
    path = checkout / "notebooks" / "report.ipynb"
    notebook = nbformat.read(path, as_version=4)
    next(cell for cell in notebook.cells if cell.id == cell_id).source = source
    nbformat.write(notebook, path)


def kernels_of(checkout: Path) -> list[psutil.Process]:
    """The kernels that run for this copy."""
    found = []
    for process in psutil.process_iter():
        try:
            if "ipykernel_launcher" in " ".join(process.cmdline()) and process.cwd() == str(checkout):
                found.append(process)
        except psutil.Error:
            pass
    return found
