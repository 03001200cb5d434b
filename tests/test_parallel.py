"""Many pages at once: on processes, on a Dask cluster, stopped, failing; the bytes are always the same."""

import os
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest
from building import change_cell, kernels_of, published
from conftest import ROOT, copy_of_checkout, run_kvprefetch

from kvprefetch.publish import DIGEST

PAIRS = ("--models", "llama3-8b mistral-7b", "--hws", "a100", "--contexts", "512,4096")
FOLDERS = ["llama3-8b--a100--ctx512-4096", "mistral-7b--a100--ctx512-4096"]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}


def reports(checkout, *arguments, **environment):
    return run_kvprefetch(checkout, "reports", *PAIRS, *arguments, **environment)


def said(text):
    """The lines on stderr that are not the progress bar's."""
    return [line for line in text.replace("\r", "\n").splitlines() if line.strip() and "Reports:" not in line]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A copy in which two pairs and their page have been built on two processes."""
    copy = copy_of_checkout(tmp_path_factory.mktemp("built"))
    done = reports(copy, "--jobs", "2", TZ="Asia/Kathmandu", LANG="C", PYTHONHASHSEED="1")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "reports/index.html: of 3 pages, 3 built, 0 unchanged\n"
    assert "3 done, 0 failed, 0 left" in done.stderr
    return copy


@pytest.fixture
def again(built, tmp_path):
    """A copy of that copy, reports and all."""
    return shutil.copytree(built, tmp_path / "copy")


def test_two_clones_built_in_different_ways_are_the_same_to_the_byte(built, tmp_path):
    """Folders, workers, time zone, language and hash seed differ."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)], check=True)
    for name in ("kvprefetch", "notebooks", "params"):  # as they are now, committed or not
        shutil.rmtree(clone / name)
        shutil.copytree(built / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(built / "requirements.txt", clone)
    shutil.rmtree(clone / "reports")
    other = {"TZ": "America/St_Johns", "LANG": "tr_TR.UTF-8", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "42"}
    done = reports(clone, "--jobs", "1", **other)
    assert done.returncode == 0, done.stderr
    ours, theirs = published(built), published(clone)
    assert len(ours) == 2 * 5 + 4 + 1
    assert ours == theirs


def test_nothing_changed_costs_less_than_a_second_for_hundreds_of_pairs(built):
    start = time.perf_counter()
    done = reports(built)
    assert done.stdout == "reports/index.html: of 3 pages, 0 built, 3 unchanged\n"
    assert done.stderr == ""
    assert time.perf_counter() - start < 5  # most of it a busy machine's


def test_two_hundred_digests_read_what_they_share_once(monkeypatch):
    from kvprefetch import publish
    from kvprefetch.catalog import HARDWARE, MODELS, find, short_names
    from kvprefetch.request import Request

    read = []
    monkeypatch.setattr(publish, "common_digest", lambda notebook: read.append(notebook) or b"0")
    cards = [find(HARDWARE, name) for name in short_names(HARDWARE)[:20]]
    pages = [Request(find(MODELS, name), card) for name in short_names(MODELS)[:10] for card in cards]
    start = time.process_time()
    assert publish.out_of_date(pages)
    assert time.process_time() - start < 1
    assert read == ["report.ipynb"]


def test_the_index_links_every_page(built):
    text = published(built)["index.html"].decode()
    for name in FOLDERS:
        assert f'href="{name}/report.html"' in text
    assert ">The fleet: 2 models on 1 card</a>" in text


def test_what_is_missing_is_built_and_nothing_else(again):
    before = published(again)
    shutil.rmtree(again / "reports" / FOLDERS[0])
    done = reports(again)
    assert done.stdout == "reports/index.html: of 3 pages, 1 built, 2 unchanged\n", done.stderr
    assert published(again) == before


def test_a_pair_that_fails_stops_no_other(again):
    before = published(again)
    change_cell(again, "sweep-table", "if model == 'llama3-8b':\n    raise ValueError('no way')")
    done = reports(again, "--jobs", "2", "--models", "llama3-8b llama3-8 mistral-7b")
    assert done.returncode == 2
    assert done.stdout == ""
    misspelt, failed, summary = said(done.stderr)
    assert misspelt.startswith("kvprefetch: model: got 'llama3-8'; accepted:")
    assert failed.startswith(
        f"kvprefetch: {FOLDERS[0]}: cell sweep-table failed: ValueError: no way; see .cache/failed/"
    )
    assert summary == "kvprefetch: 2 failed; whatever else was asked for is there"
    after = published(again)
    assert {name for name in before if before[name] != after[name] and name.startswith(FOLDERS[0])} == set()
    assert after[f"{FOLDERS[1]}/{DIGEST}"] != before[f"{FOLDERS[1]}/{DIGEST}"]
    assert not kernels_of(again)


def test_a_file_in_the_way_is_named(again):
    shutil.rmtree(again / "reports")
    shutil.rmtree(again / ".cache" / "failed", ignore_errors=True)
    (again / ".cache" / "failed").write_text("in the way")
    done = reports(again, "--jobs", "1")
    *lines, summary = said(done.stderr)
    assert summary == "kvprefetch: 3 failed; whatever else was asked for is there"
    assert all(line.endswith(f"{again}/.cache/failed: File exists") for line in lines) and len(lines) == 3


def test_a_worker_that_is_killed_is_replaced(again, tmp_path):
    """Once: the file that it leaves lets the second attempt through."""
    before = published(again)
    once = again / "once"
    shutil.rmtree(again / "reports")
    report = again / "kvprefetch" / "report.py"
    kill = "    with kernels() as manager:\n"
    assert kill in report.read_text()
    guard = f"    import os\n    if 'mistral' in page.folder and not os.path.exists({str(once)!r}):\n        "
    guard += f"open({str(once)!r}, 'w').close(); os.kill(os.getpid(), 9)\n"
    report.write_text(report.read_text().replace(kill, guard + kill))
    done = reports(again, "--jobs", "2")
    assert once.exists()
    assert done.returncode == 0, done.stderr
    assert {name: text for name, text in published(again).items() if DIGEST not in name} == {
        name: text for name, text in before.items() if DIGEST not in name
    }


def test_a_process_that_kernels_are_forked_from_and_that_is_killed_is_one_line_and_replaced(again):
    shutil.rmtree(again / "reports")
    parallel = again / "kvprefetch" / "parallel.py"
    fetch = "    return _of_this_process\n"
    assert fetch in parallel.read_text()
    kill = f"    if not os.path.exists({str(again / 'once')!r}):\n"
    kill += f"        open({str(again / 'once')!r}, 'w').close(), os.kill(_of_this_process._process.pid, 9)\n"
    parallel.write_text(parallel.read_text().replace(fetch, kill + fetch))
    done = reports(again, "--jobs", "2")
    assert done.returncode == 2
    failed, _ = said(done.stderr)
    assert failed.endswith("the process that kernels are forked from died")
    assert reports(again, "--jobs", "2").returncode == 0


@pytest.mark.parametrize(("delay", "everyone"), [(0.5, True), (0.9, False), (1.3, True), (2.5, False), (4.0, True)])
def test_a_stop_leaves_whole_reports_and_no_process(again, delay, everyone):
    """A terminal sends Ctrl-C to everyone, `kill` to one; twice, as an impatient user does."""
    before = published(again)
    shutil.rmtree(again / "reports")
    command = [sys.executable, "-m", "kvprefetch", "reports", *PAIRS, "--jobs", "2"]
    process = subprocess.Popen(command, cwd=again, stderr=subprocess.PIPE, text=True, start_new_session=True)
    time.sleep(delay)
    for _ in range(2):
        (os.killpg if everyone else os.kill)(process.pid, signal.SIGINT)
        time.sleep(0.005)
    _, stderr = process.communicate(timeout=60)
    if process.returncode != -signal.SIGINT:  # before Python has set up its handlers
        assert said(stderr) == (["kvprefetch: stopped"] if process.returncode else []), stderr
        assert process.returncode in (130, 0)
    after = published(again) if (again / "reports").exists() else {}
    folders = {name.split("/")[0] for name in after} - {"index.html"}
    assert {n: c for n, c in after.items() if n != "index.html"} == {
        name: content for name, content in before.items() if name.split("/")[0] in folders
    }
    assert ("index.html" in after) == bool(folders)
    gone = time.monotonic() + 10
    while processes_of(again) and time.monotonic() < gone:
        time.sleep(0.1)
    assert not processes_of(again)
    if delay > 3:
        assert reports(again, "--jobs", "2").returncode == 0  # and it goes on
        assert published(again) == before


def test_no_process_outlives_a_run_that_was_killed(again):
    shutil.rmtree(again / "reports")
    command = [sys.executable, "-m", "kvprefetch", "reports", *PAIRS, "--jobs", "2"]
    process = subprocess.Popen(command, cwd=again, stderr=subprocess.DEVNULL, start_new_session=True)
    while not any("nursery" in " ".join(each.cmdline()) for each in processes_of(again)):
        assert process.poll() is None
        time.sleep(0.02)
    time.sleep(0.5)
    process.kill()
    process.wait()
    gone = time.monotonic() + 20
    while processes_of(again) and time.monotonic() < gone:
        time.sleep(0.1)
    assert not processes_of(again)


def processes_of(folder):
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(folder):
                found.append(process)
        except psutil.Error:
            pass
    return found


@pytest.fixture
def cluster(again):
    """A Dask scheduler and two workers on loopback: its address, and the workers."""
    pytest.importorskip("distributed")
    address_file = again / "scheduler.json"
    start = [sys.executable, "-m"]
    options = {"cwd": again, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": CLEAN}
    here = ["--host", "127.0.0.1", "--no-dashboard"]
    scheduler = [*start, "distributed.cli.dask_scheduler", *here, "--port", "0", "--scheduler-file", str(address_file)]
    processes = [subprocess.Popen(scheduler, **options)]
    try:
        deadline = time.monotonic() + 60
        while not address_file.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        worker = [*start, "distributed.cli.dask_worker", "--scheduler-file", str(address_file), *here]
        worker += ["--nthreads", "1", "--no-nanny", "--local-directory", str(again / "dask")]
        processes += [subprocess.Popen(worker, **options) for _ in range(2)]
        from distributed import Client

        with Client(scheduler_file=str(address_file), set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
            address = client.scheduler.address
        yield address, processes[1:]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_a_cluster_one_of_whose_workers_is_killed_builds_the_same_bytes(again, cluster):
    before = published(again)
    address, (first, _) = cluster
    shutil.rmtree(again / "reports")
    command = [sys.executable, "-m", "kvprefetch", "reports", *PAIRS]
    process = subprocess.Popen(
        command, cwd=again, stderr=subprocess.PIPE, text=True, env=CLEAN | {"SCHEDULER": address}
    )
    while not psutil.Process(first.pid).children():  # the kernel of the page that it makes
        assert process.poll() is None
        time.sleep(0.02)
    time.sleep(0.3)
    first.kill()
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert published(again) == before


def test_a_worker_with_another_package_is_found_out(again, cluster):
    address, _ = cluster
    command = [sys.executable, "-c", "import sys; from kvprefetch import parallel, publish\n"]
    command[-1] += "publish.common_digest = lambda notebook: b'other'\n"
    command[-1] += "from kvprefetch.__main__ import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [*command, "fleet", "--models", "phi-2", "--hws", "a100", "--scheduler", address],
        cwd=again,
        env=CLEAN,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "made from other inputs than those here: files changed, or a worker has other ones" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--scheduler", "nonsense"), "scheduler: got 'nonsense'; accepted: the address of a running Dask scheduler"),
        (("--jobs", "0"), "jobs: got 0; accepted: a whole number from 1 to 1000"),
        (("--jobs", "two"), "jobs: got 'two'; accepted: a whole number"),
        (("--target-ms", "fast"), "target-ms: got 'fast'; accepted: a number"),
    ],
)
def test_bad_options_are_one_line(checkout, arguments, message):
    done = run_kvprefetch(checkout, "fleet", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"kvprefetch: {message}")


def test_a_scheduler_that_is_not_there_is_one_line(checkout):
    done = run_kvprefetch(checkout, "fleet", "--scheduler", "tcp://127.0.0.1:9", PYTHONWARNINGS="")
    assert done.returncode == 2
    assert said(done.stderr)[-1].startswith("kvprefetch: scheduler: tcp://127.0.0.1:9 does not answer: ")
