"""What goes wrong while a report is built leaves the last good one, one line, and no kernel."""

import signal
import subprocess
import sys
import time

import nbformat
import pytest
from building import FOLDER, SHORT, change_cell, kernels_of, published
from jupyter_client import AsyncKernelManager

from kvprefetch import execution
from kvprefetch.catalog import HARDWARE, MODELS, find
from kvprefetch.kernels import kernel
from kvprefetch.publish import ARTEFACTS, DIGEST
from kvprefetch.request import Request
from kvprefetch.stops import undisturbed

STOPS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]


def beside_progress(said):
    """The lines on stderr that are not the progress bar's."""
    return [line for line in said.splitlines() if line.strip() and "Executing:" not in line]


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
    execution = checkout / "kvprefetch" / "execution.py"
    execution.write_text(execution.read_text().replace("CELL_TIMEOUT = 120", "CELL_TIMEOUT = 2"))
    done = kvprefetch("report", *SHORT)
    said = beside_progress(done.stderr)
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


@pytest.mark.parametrize("delay", [0.15, 0.4, 0.7, 0.9, 1.1, 1.4, 1.8])
@pytest.mark.parametrize(("stop", "status"), STOPS, ids=["Ctrl-C", "SIGTERM", "SIGHUP"])
def test_a_stop_at_any_moment_leaves_whole_files_and_no_kernel(built, checkout, stop, status, delay):
    """Two stops at once, as an impatient user sends them: the second changes nothing."""
    (checkout / "reports" / FOLDER / DIGEST).unlink()
    before = published(checkout)
    process = start(checkout)
    time.sleep(delay)
    process.send_signal(stop)
    time.sleep(0.005)
    process.send_signal(stop)
    _, said = process.communicate(timeout=30)
    if process.returncode == 0:  # it was done before
        before = {**published(checkout), **before}
    elif process.returncode != -stop:  # before Python has set up its handlers, a stop is the system's and silent
        assert process.returncode == status
        assert said.endswith("kvprefetch: stopped\n")
        said = said.removesuffix("kvprefetch: stopped\n")
    assert not beside_progress(said)
    after = published(checkout)
    after.pop(f"{FOLDER}/{DIGEST}", None)  # there where the stop came when all was published
    assert after == before
    deadline = time.monotonic() + 10
    while kernels_of(checkout) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not kernels_of(checkout)


def test_a_kernel_that_dies_before_it_answers_is_one_line(checkout, monkeypatch):
    class Dying(AsyncKernelManager):
        def format_kernel_cmd(self, extra_arguments=None):
            return [sys.executable, "-c", "pass"]

    monkeypatch.setattr(execution, "workspace", lambda: checkout)
    request = Request(find(MODELS, "llama3-8b"), find(HARDWARE, "a100"), contexts=(512, 4096))
    with kernel(managers=Dying) as manager:
        with pytest.raises(execution.ReportError, match=f"^{FOLDER}: Kernel died before replying"):
            execution.run(request, manager)


def test_a_stop_while_modules_load_waits_until_they_are_there():
    code = f"""
import os, signal, sys
class Stopping:
    def find_spec(name, *_):
        if name == "datetime":
            os.kill(os.getpid(), {signal.SIGTERM.value})
sys.meta_path.insert(0, Stopping)
from kvprefetch.__main__ import main
sys.exit(main(["crossover", "--model", "llama3-8b", "--hw", "a100"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "kvprefetch: stopped\n")


def test_work_that_must_not_be_torn_apart_holds_a_stop_back():
    done = []
    with pytest.raises(KeyboardInterrupt), undisturbed():
        signal.raise_signal(signal.SIGINT)
        done.append("all of it")
    assert done == ["all of it"]


@pytest.mark.parametrize("place", ["failed", "params", "notebooks", "matplotlib"])
def test_a_file_where_a_folder_of_the_cache_should_be_is_one_line(checkout, kvprefetch, place, tmp_path):
    model = tmp_path / "mine.yaml"
    model.write_text((checkout / "params" / "models" / "llama2-13b.yaml").read_text())
    (checkout / ".cache").mkdir()
    (checkout / ".cache" / place).write_text("in the way")
    verb = "notebook" if place == "notebooks" else "report"
    done = kvprefetch(verb, "--model", str(model), "--hw", "a100", "--contexts", "512")
    said = beside_progress(done.stderr)
    assert "Traceback" not in done.stderr
    if place == "matplotlib":  # which finds itself another folder
        assert done.returncode == 0
    else:
        assert done.returncode == 2
        assert len(said) == 1
        assert ".cache" in said[0]


def test_two_builds_at_once_both_succeed_and_one_does_the_work(checkout):
    first, second = start(checkout), start(checkout)
    said = [process.communicate(timeout=60)[0] for process in (first, second)]
    assert first.returncode == second.returncode == 0
    assert sorted("(unchanged)" in text for text in said) == [False, True]
    assert set(published(checkout)) == {"index.html", *(f"{FOLDER}/{name}" for name in (*ARTEFACTS, DIGEST))}


def test_a_file_where_the_report_should_be_is_one_line(checkout, kvprefetch):
    (checkout / "reports").mkdir()
    (checkout / "reports" / FOLDER).write_text("in the way")
    done = kvprefetch("report", *SHORT)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"kvprefetch: reports/{FOLDER}: cannot be written: File exists"
    assert (checkout / "reports" / FOLDER).read_text() == "in the way"
