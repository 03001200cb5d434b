"""Building reports, through the command line, in a copy of the checkout."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil
import pytest
import yaml

from kvprefetch.publish import ARTEFACTS, DIGEST

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


@pytest.fixture
def built(kvprefetch, checkout):
    """The copy with one good report in it."""
    done = kvprefetch("report", *SHORT)
    assert done.returncode == 0, done.stderr
    return done


def test_a_report_is_four_files_an_answer_and_a_path(built, checkout, kvprefetch):
    assert set(published(checkout)) == {f"{FOLDER}/{name}" for name in (*ARTEFACTS, DIGEST)}
    assert built.stdout == (
        "Llama-3-8B on A100-80GB PCIe (Gen4 x16), batch 1, depth 1: crossover 1306 tokens; largest reduction swept "
        f"27.3 % at 512 tokens (9.53 -> 6.93 ms)\nreports/{FOLDER}/report.html\n"
    )
    assert "Executing: 100%" in built.stderr
    assert published(checkout)[f"{FOLDER}/metrics.json"].decode() == kvprefetch("sweep", *SHORT, "--json").stdout


def test_an_unchanged_report_is_not_built_again(built, checkout, kvprefetch):
    times = {path: path.stat().st_mtime_ns for path in (checkout / "reports").rglob("*")}
    again = kvprefetch("report", *SHORT)
    assert again.stdout == built.stdout.replace("report.html\n", "report.html (unchanged)\n")
    assert again.stderr == ""
    assert {path: path.stat().st_mtime_ns for path in (checkout / "reports").rglob("*")} == times


def test_a_report_whose_file_is_gone_is_built_again_to_the_same_bytes(built, checkout, kvprefetch):
    before = published(checkout)
    (checkout / "reports" / FOLDER / "report.html").unlink()
    assert "(unchanged)" not in kvprefetch("report", *SHORT).stdout
    assert published(checkout) == before


def test_what_the_user_has_set_up_changes_nothing(built, checkout, kvprefetch, tmp_path):
    before = published(checkout)
    (checkout / "reports" / FOLDER / DIGEST).unlink()
    startup = tmp_path / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00.py").write_text("import builtins, numpy; builtins.contexts = [1]; numpy.float64 = None; 1/0")
    kernel = tmp_path / "jupyter" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    (kernel / "kernel.json").write_text('{"argv": ["false"], "display_name": "rogue", "language": "python"}')
    (checkout / "matplotlibrc").write_text("lines.linewidth: 9\nfont.size: 30\nsvg.fonttype: path\n")
    done = kvprefetch(
        "report",
        *SHORT,
        IPYTHONDIR=str(tmp_path / "ipython"),
        JUPYTER_PATH=str(tmp_path / "jupyter"),
        JUPYTER_PREFER_ENV_PATH="0",
        MPLBACKEND="nonsense",
        PYTHONHASHSEED="7",
        PYTHONSTARTUP=str(startup / "00.py"),
        TZ="Asia/Kathmandu",
        LANG="C",
        HOME=str(tmp_path),
    )
    assert done.returncode == 0, done.stderr
    assert published(checkout) == before


def test_a_file_of_the_users_makes_a_report_that_names_no_path(checkout, kvprefetch, tmp_path):
    nasty = "<script>alert('x')</script> & \"A\" $5 |b| *c* {d}"
    model = {"name": nasty, "source": nasty, "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}
    path = tmp_path / "My Model.yaml"
    path.write_text(yaml.safe_dump({**model, "intermediate_size": 128, "vocab_size": 100}))
    done = kvprefetch("report", "--model", str(path), "--hw", "a100")
    assert done.returncode == 0, done.stderr
    files = published(checkout)
    (folder,) = {name.split("/")[0] for name in files}
    slug = folder.removesuffix("--a100")
    assert slug.startswith("my-model-")
    assert not any(str(tmp_path).encode() in content for content in files.values())
    assert json.loads(files[f"{folder}/metrics.json"])["model_name"] == nasty
    page = files[f"{folder}/report.html"].decode()
    assert "<script" not in page
    assert "&lt;script&gt;alert('x')&lt;/script&gt; &amp; \"A\" $5 |b| *c* {d}" in page.replace("&#x27;", "'").replace(
        "&quot;", '"'
    )
    # By its slug, the kept copy gives the same report from anywhere.
    path.unlink()
    again = kvprefetch("report", "--model", slug, "--hw", "a100")
    assert again.stdout.endswith("(unchanged)\n")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise ValueError('no\\nway')", f"{FOLDER}: cell sweep-table failed: ValueError: no; see .cache/failed/"),
        ("n = undefined", "cell sweep-table failed: NameError: name 'undefined' is not defined"),
        ("raise SystemExit", "cell crossover-table was not run: a cell before it ended the kernel"),
        ("import os; os._exit(1)", f"{FOLDER}: Kernel died"),
        ("import time; time.sleep(60)", f"{FOLDER}: A cell timed out while it was being executed, after 2 seconds"),
    ],
    ids=["raises", "misspells", "exits", "kills the kernel", "hangs"],
)
def test_a_cell_that_fails_leaves_the_last_good_report(built, checkout, kvprefetch, source, message):
    before = published(checkout)
    change_cell(checkout, "sweep-table", source)
    report = checkout / "kvprefetch" / "report.py"
    report.write_text(report.read_text().replace("CELL_TIMEOUT = 120", "CELL_TIMEOUT = 2"))
    done = kvprefetch("report", *SHORT)
    said = [line for line in done.stderr.splitlines() if "cell/s" not in line and line.strip()]
    assert done.returncode == 2
    assert len(said) == 1, done.stderr
    assert message in said[0]
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert published(checkout) == before
    assert not kernels_of(checkout)


def test_a_failed_run_leaves_its_notebook_in_the_cache(built, checkout, kvprefetch):
    change_cell(checkout, "sweep-table", "raise ValueError('here')")
    kvprefetch("report", *SHORT)
    failed = nbformat.read(checkout / ".cache" / "failed" / f"{FOLDER}.ipynb", as_version=4)
    assert "ValueError" in str(failed)


def test_a_formula_that_cannot_be_rendered_leaves_the_last_good_report(built, checkout, kvprefetch):
    before = published(checkout)
    change_cell(checkout, "units", r"$$\nonsense{x}$$")
    done = kvprefetch("report", *SHORT)
    assert done.returncode == 2
    assert r"\nonsense" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert published(checkout) == before


def start(checkout):
    return subprocess.Popen(
        [sys.executable, "-m", "kvprefetch", "report", *SHORT],
        cwd=checkout,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("delay", [0.15, 0.4, 0.9, 1.3, 1.7, 2.2])
@pytest.mark.parametrize(("stop", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"])
def test_a_stop_at_any_moment_leaves_whole_files_and_no_kernel(built, checkout, stop, status, delay):
    (checkout / "reports" / FOLDER / DIGEST).unlink()
    before = published(checkout)
    process = start(checkout)
    time.sleep(delay)
    process.send_signal(stop)
    _, said = process.communicate(timeout=30)
    assert "Traceback" not in said
    if process.returncode == 0:  # it was done before
        before = {**published(checkout), **before}
    else:
        assert process.returncode in (status, -stop)  # before Python has set up its handlers, the system's way
    assert published(checkout) == before
    deadline = time.monotonic() + 10
    while kernels_of(checkout) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not kernels_of(checkout)


def test_two_builds_at_once_both_succeed_and_one_does_the_work(checkout):
    first, second = start(checkout), start(checkout)
    said = [process.communicate(timeout=60)[0] for process in (first, second)]
    assert first.returncode == second.returncode == 0
    assert sorted("(unchanged)" in text for text in said) == [False, True]
    assert set(published(checkout)) == {f"{FOLDER}/{name}" for name in (*ARTEFACTS, DIGEST)}


def test_a_file_where_the_report_should_be_is_one_line(checkout, kvprefetch):
    (checkout / "reports").mkdir()
    (checkout / "reports" / FOLDER).write_text("in the way")
    done = kvprefetch("report", *SHORT)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"kvprefetch: reports/{FOLDER}: cannot be written: File exists"
    assert (checkout / "reports" / FOLDER).read_text() == "in the way"


def test_the_working_copy_is_the_users_and_is_kept(checkout, kvprefetch):
    path = kvprefetch("notebook", *SHORT, "--batch", "3").stdout.strip()
    assert path == ".cache/notebooks/llama3-8b--a100--batch3-ctx512-4096.ipynb"
    copy = checkout / path
    notebook = nbformat.read(copy, as_version=4)
    injected = next(cell for cell in notebook.cells if cell.id == "injected-parameters")
    assert "batch = 3" in injected.source
    assert not any(cell.get("outputs") for cell in notebook.cells)
    copy.write_text("edited")
    assert kvprefetch("notebook", *SHORT, "--batch", "3").stdout.strip() == path
    assert copy.read_text() == "edited"


def test_reports_without_their_packages_say_what_to_install(checkout):
    code = (
        "import sys; sys.modules['papermill'] = None; from kvprefetch.__main__ import main; sys.exit(main(['report']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=checkout, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 2
    assert done.stderr == "kvprefetch: reports need papermill; install them with: pip install 'kvprefetch[report]'\n"
