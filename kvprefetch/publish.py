"""Is the report on disk that of these inputs, and how does a new one take its place whole?

A report is up to date when the digest of its inputs, kept beside it, is that of today's inputs and
none of its files is missing; file times decide nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kvprefetch.checks import InputError
from kvprefetch.metrics import Metrics, from_json, title_of
from kvprefetch.paths import DATA, PACKAGE, workspace
from kvprefetch.request import ARTEFACTS

DIGEST = ".inputs.sha256"
_TITLE = re.compile("<title>([^<]*)</title>")


class Page(Protocol):
    """What is published in a folder of its own: a notebook, run with parameters."""

    @property
    def folder(self) -> str:
        """Below reports/."""

    @property
    def notebook(self) -> str:
        """The file in notebooks/."""

    @property
    def artefacts(self) -> tuple[str, ...]:
        """The files that make it whole."""

    @property
    def parameters(self) -> Mapping[str, object]:
        """What Papermill injects."""

    @property
    def inputs(self) -> tuple[bytes, ...]:
        """What it depends on beside its notebook, the package and the pinned requirements."""

    def keep(self) -> None:
        """Keep copies of the user's files that it names."""


@dataclass(frozen=True)
class Published:
    """A whole report on disk."""

    folder: str  # below reports/
    metrics: Metrics


@dataclass(frozen=True)
class Beside:
    """A whole page on disk that is no pair's report."""

    folder: str  # below reports/
    title: str


def folder(page: Page) -> Path:
    """Where `page` is published."""
    return workspace() / "reports" / page.folder


def common_digest(notebook: str) -> bytes:
    """SHA-256 over what all pages of one notebook depend on: it, the package, pinned requirements."""
    package = sorted(path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix != ".pyc")
    files = (DATA / "notebooks" / notebook, DATA / "requirements.txt", *package)
    return _digest(path.read_bytes() for path in files).digest()


def inputs_digest(page: Page, common: bytes | None = None) -> str:
    """SHA-256 over all that a page depends on; `common` is its notebook's `common_digest`, where that is at hand."""
    return _digest((common or common_digest(page.notebook), *page.inputs)).hexdigest()


def _digest(contents: Iterable[bytes]) -> hashlib._Hash:
    digest = hashlib.sha256()
    for content in contents:
        digest.update(hashlib.sha256(content).digest())
    return digest


def out_of_date(pages: Sequence[Page]) -> list[Page]:
    """Those of `pages` that are not up to date; what they share is read once."""
    common = {notebook: common_digest(notebook) for notebook in {page.notebook for page in pages}}
    return [page for page in pages if not up_to_date(page, common[page.notebook])]


def up_to_date(page: Page, common: bytes | None = None) -> bool:
    """Whether the published page is whole and made from today's inputs. `common` as for `inputs_digest`."""
    here = folder(page)
    try:
        recorded = (here / DIGEST).read_bytes()
    except OSError:
        return False
    return all((here / name).is_file() for name in page.artefacts) and recorded == inputs_digest(page, common).encode()


def building(page: Page) -> AbstractContextManager[None]:
    """Hold the page's lock: of two builds of the same page, the second waits for the first."""
    return _locked(page.folder)


@contextmanager
def _locked(name: str) -> Iterator[None]:
    locks = workspace() / ".cache" / "locks"
    with _writing(".cache/locks"):
        locks.mkdir(parents=True, exist_ok=True)
        lock = open(locks / name, "w")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def publish(page: Page, artefacts: Mapping[str, bytes], digest: str) -> None:
    """Put all `artefacts` in place, or leave the previous ones as they were and raise InputError.

    They are written beside their places first, so that a full disk is met before anything is replaced.
    A report without its digest counts as out of date: even a killed process leaves nothing that passes
    for whole.
    """
    here = folder(page)
    with _writing(f"reports/{page.folder}"):
        here.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=here.parent) as staging:
            new, old = Path(staging, "new"), Path(staging, "old")
            new.mkdir()
            for name, content in {**artefacts, DIGEST: digest.encode()}.items():
                (new / name).write_bytes(content)
            here.mkdir(exist_ok=True)
            old.mkdir()
            names = (*page.artefacts, DIGEST)
            for name in names:
                if (here / name).is_file():
                    shutil.copy2(here / name, old)
            _swap(here, new, old, names)


def write_whole(path: Path, text: str) -> None:
    """Write a file of the user's, or leave what was there as it was and raise InputError."""
    new = path.with_name(f".new-{path.name}")
    with _writing(f"output {path}"):
        try:
            new.write_text(text, encoding="utf-8")
            os.replace(new, path)
        finally:
            new.unlink(missing_ok=True)


def publish_index(render: Callable[[Sequence[Published], Sequence[Beside]], str]) -> None:
    """Rebuild reports/index.html with what `render` makes of the reports and other pages that are there."""
    reports = workspace() / "reports"
    with _writing("reports/index.html"), _locked("index.html"):
        new = reports / ".new-index.html"
        try:
            new.write_text(render(list(_whole_reports()), list(_pages_beside())), encoding="utf-8")
            os.replace(new, reports / "index.html")
        finally:
            new.unlink(missing_ok=True)


def _whole_reports() -> Iterator[Published]:
    for here in sorted((workspace() / "reports").iterdir()):
        if all((here / name).is_file() for name in ARTEFACTS):
            try:
                yield Published(here.name, from_json((here / "metrics.json").read_text(encoding="utf-8")))
            except (ValueError, KeyError, TypeError, RecursionError):
                pass  # edited by hand into something that cannot be listed


def _pages_beside() -> Iterator[Beside]:
    """Pages whose metrics.json has a title, which that of a pair's report has not."""
    for here in sorted((workspace() / "reports").iterdir()):
        if (here / "report.html").is_file() and (here / "metrics.json").is_file():
            try:
                yield Beside(here.name, title_of((here / "metrics.json").read_text(encoding="utf-8")))
            except (ValueError, KeyError, TypeError, RecursionError):
                pass  # a pair's report, or edited by hand


def _swap(here: Path, new: Path, old: Path, names: Sequence[str]) -> None:
    """Move the files of `new` into `here`, the digest last; on any failure bring back what `old` holds."""
    try:
        (here / DIGEST).unlink(missing_ok=True)
        for name in names:
            os.replace(new / name, here / name)
    except BaseException:
        for name in names:
            if (old / name).is_file():
                os.replace(old / name, here / name)
            elif (here / name).is_file():
                (here / name).unlink()
        if not any(here.iterdir()):
            here.rmdir()
        raise


def index_is_there() -> bool:
    """Whether reports/index.html exists: it is rebuilt with every report, so only a removed one is missing."""
    return (workspace() / "reports" / "index.html").is_file()


@contextmanager
def _writing(what: str) -> Iterator[None]:
    """Turn a failure of the file system into one line that says what could not be written."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{what}: cannot be written: {error.strerror or error}") from None
