import errno
import multiprocessing
import os
from pathlib import Path

import pytest

from kvprefetch import InputError, publish
from kvprefetch.catalog import HARDWARE, MODELS, find
from kvprefetch.publish import ARTEFACTS, DIGEST, building, inputs_digest, up_to_date
from kvprefetch.request import Request

OLD = dict.fromkeys(ARTEFACTS, b"old")
NEW = dict.fromkeys(ARTEFACTS, b"new")


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.setattr(publish, "workspace", lambda: tmp_path)
    return tmp_path


@pytest.fixture
def request_():
    return Request(find(MODELS, "llama3-8b"), find(HARDWARE, "a100"))


def on_disk(workspace: Path) -> dict[str, bytes]:
    """Every file below reports/, by its path there."""
    reports = workspace / "reports"
    return {str(path.relative_to(reports)): path.read_bytes() for path in reports.rglob("*") if path.is_file()}


def published(request, artefacts, digest):
    return {f"{request.folder}/{name}": content for name, content in {**artefacts, DIGEST: digest}.items()}


def test_a_published_report_is_whole_and_up_to_date(workspace, request_):
    assert not up_to_date(request_)
    publish.publish(request_, NEW, inputs_digest(request_))
    assert up_to_date(request_)
    assert on_disk(workspace) == published(request_, NEW, inputs_digest(request_).encode())


@pytest.mark.parametrize("name", [*ARTEFACTS, DIGEST])
def test_a_report_with_a_file_missing_is_out_of_date(workspace, request_, name):
    publish.publish(request_, NEW, inputs_digest(request_))
    (workspace / "reports" / request_.folder / name).unlink()
    assert not up_to_date(request_)


def test_a_report_of_other_inputs_is_out_of_date(workspace, request_):
    publish.publish(request_, NEW, "0" * 64)
    assert not up_to_date(request_)


def test_file_times_decide_nothing(workspace, request_):
    publish.publish(request_, NEW, inputs_digest(request_))
    for name in ARTEFACTS:
        os.utime(workspace / "reports" / request_.folder / name, (0, 0))
    assert up_to_date(request_)


def test_files_of_the_users_beside_a_report_stay(workspace, request_):
    publish.publish(request_, OLD, "1" * 64)
    notes = workspace / "reports" / request_.folder / "notes.txt"
    notes.write_text("mine")
    publish.publish(request_, NEW, "2" * 64)
    assert notes.read_text() == "mine"


@pytest.mark.parametrize("failing", range(5))
@pytest.mark.parametrize("had_report", [True, False])
def test_a_failure_at_any_move_leaves_the_previous_report(workspace, request_, monkeypatch, failing, had_report):
    if had_report:
        publish.publish(request_, OLD, "1" * 64)
    before = on_disk(workspace)
    moves = iter(range(100))
    replace = os.replace

    def disk_full(source, target):
        if "new" in Path(source).parts and next(moves) == failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    monkeypatch.setattr(os, "replace", disk_full)
    with pytest.raises(InputError, match=f"reports/{request_.folder}: cannot be written: No space left on device"):
        publish.publish(request_, NEW, "2" * 64)
    assert on_disk(workspace) == before


def test_a_full_disk_leaves_the_previous_report(workspace, request_, monkeypatch):
    publish.publish(request_, OLD, "1" * 64)
    before = on_disk(workspace)
    write = Path.write_bytes

    def disk_full(path, content):
        if path.name == "metrics.json":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", disk_full)
    with pytest.raises(InputError, match="No space left on device"):
        publish.publish(request_, NEW, "2" * 64)
    assert on_disk(workspace) == before


def test_an_interrupt_between_two_moves_leaves_the_previous_report(workspace, request_, monkeypatch):
    publish.publish(request_, OLD, "1" * 64)
    before = on_disk(workspace)
    replace = os.replace

    def interrupted(source, target):
        replace(source, target)
        if Path(source).name == "report.html" and "new" in Path(source).parts:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        publish.publish(request_, NEW, "2" * 64)
    assert on_disk(workspace) == before


def test_a_file_where_the_folder_should_be_is_said_in_one_line(workspace, request_):
    (workspace / "reports").mkdir()
    (workspace / "reports" / request_.folder).write_text("in the way")
    with pytest.raises(InputError, match=f"reports/{request_.folder}: cannot be written: File exists"):
        publish.publish(request_, NEW, "2" * 64)
    assert on_disk(workspace) == {request_.folder: b"in the way"}


def test_a_folder_where_a_file_should_be_is_said_in_one_line(workspace, request_):
    publish.publish(request_, OLD, "1" * 64)
    here = workspace / "reports" / request_.folder
    (here / "metrics.json").unlink()
    (here / "metrics.json").mkdir()
    before = on_disk(workspace)
    with pytest.raises(InputError, match="cannot be written: Is a directory"):
        publish.publish(request_, NEW, "2" * 64)
    assert on_disk(workspace) == before


def hold(path, request, inside, leave):
    publish.workspace = lambda: path
    with building(request):
        inside.set()
        leave.wait(10)


def test_a_second_build_of_the_same_report_waits_for_the_first(workspace, request_):
    fork = multiprocessing.get_context("fork")
    inside, leave, second = fork.Event(), fork.Event(), fork.Event()
    first = fork.Process(target=hold, args=(workspace, request_, inside, leave))
    first.start()
    assert inside.wait(10)
    other = fork.Process(target=hold, args=(workspace, request_, second, leave))
    other.start()
    assert not second.wait(0.3)
    leave.set()
    assert second.wait(10)
    first.join()
    other.join()


@pytest.mark.parametrize(
    "part", ["kvprefetch/roofline.py", "notebooks/report.ipynb", "requirements.txt", "kvprefetch/html/templates"]
)
def test_the_digest_changes_with_every_input(checkout, request_, monkeypatch, part):
    monkeypatch.setattr(publish, "DATA", checkout)
    monkeypatch.setattr(publish, "PACKAGE", checkout / "kvprefetch")
    digest = inputs_digest(request_)
    assert inputs_digest(request_) == digest
    changed = checkout / part
    if changed.is_dir():
        changed = next(path for path in sorted(changed.rglob("*")) if path.is_file())
    changed.write_bytes(changed.read_bytes() + b"\n")
    assert inputs_digest(request_) != digest


def test_the_digest_changes_with_every_parameter():
    model, hw = find(MODELS, "llama3-8b"), find(HARDWARE, "a100")
    requests = [
        Request(model, hw),
        Request(model, hw, batch=2),
        Request(model, hw, depth=2),
        Request(model, hw, contexts=(512,)),
        Request(find(MODELS, "mistral-7b"), hw),
        Request(model, find(HARDWARE, "rtx4090")),
    ]
    assert len({inputs_digest(request) for request in requests}) == len(requests)


def test_a_users_file_is_written_whole_or_left_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "card.yaml"
    publish.write_whole(path, "old")
    monkeypatch.setattr(Path, "write_text", lambda *_, **__: (_ for _ in ()).throw(OSError(errno.ENOSPC, "no space")))
    with pytest.raises(InputError, match="output .*card.yaml: cannot be written: no space"):
        publish.write_whole(path, "new")
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {"card.yaml": b"old"}
