"""How are many pages built at once, on this machine's cores or on those of a Dask cluster?

Workers make pages and hand them back as bytes; this process alone publishes them, so workers need no file system
in common, and a stop or a worker's end leaves whole pages alone.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from multiprocessing import active_children

import joblib
from tqdm import tqdm

from kvprefetch.checks import InputError
from kvprefetch.html.index import index_page
from kvprefetch.publish import Page, building, index_is_there, inputs_digest, publish, publish_index
from kvprefetch.report import artefacts
from kvprefetch.stops import STOPS, Stopped, before_a_stop, undisturbed, unwind_on

ATTEMPTS = 3  # at what is left, when a worker was killed
PATIENCE = 5  # seconds that a worker is given to end its kernel
CONNECTING = 10  # seconds


@dataclass(frozen=True)
class Made:
    """What a worker made of a page."""

    artefacts: Mapping[str, bytes] = field(default_factory=dict)
    digest: str = ""  # of what it was made from
    failure: str = ""  # why there is nothing, in one line


def build_all(pages: Sequence[Page], jobs: int | None = None, scheduler: str | None = None) -> list[str]:
    """Make and publish `pages`; returns a line for each that failed. Raises InputError where no worker can begin.

    `jobs` processes here (None: one a core), or what the Dask `scheduler` of this address has.
    """
    failures: list[str] = []
    published = 0
    bar = tqdm(total=len(pages), desc="Reports", unit="page", dynamic_ncols=True, disable=not pages)
    try:
        _count(bar, 0, 0)
        bar.refresh()
        with closing(_made(pages, jobs, scheduler)) as results:
            for index, made in results:
                failure = made.failure or _published(pages[index], made)
                failures += [failure] if failure else []
                published += not failure
                _count(bar, published, len(failures))
                bar.update()
    finally:
        bar.close()
        if published or not index_is_there():
            with undisturbed():
                publish_index(index_page)
    return failures


def _count(bar: tqdm, done: int, failed: int) -> None:
    bar.set_postfix_str(f"{done} done, {failed} failed, {bar.total - done - failed} left", refresh=False)


def _published(page: Page, made: Made) -> str:
    """Put a page in its place; the line that says why not, where it cannot be."""
    if made.digest != inputs_digest(page):
        return f"{page.folder}: made from other inputs than those here: files changed, or a worker has other ones"
    try:
        page.keep()
        with building(page), undisturbed():
            publish(page, made.artefacts, made.digest)
    except InputError as error:
        return str(error)
    return ""


def _made(pages: Sequence[Page], jobs: int | None, scheduler: str | None) -> Iterator[tuple[int, Made]]:
    """What comes of each page, with its index, in the order in which they are done."""
    left = dict(enumerate(pages))
    for _ in range(ATTEMPTS):
        try:
            for index, made in _on_cluster(left, scheduler) if scheduler else _here(left, jobs):
                del left[index]
                yield index, made
            return
        except BrokenProcessPool:  # one worker was killed, which ends all of them
            pass
    for index, page in left.items():
        yield index, Made(failure=f"{page.folder}: a worker was killed while it was made, {ATTEMPTS} times")


def _here(left: Mapping[int, Page], jobs: int | None) -> Iterator[tuple[int, Made]]:
    workers = min(jobs or joblib.cpu_count(), len(left))
    if workers <= 1:
        yield from ((index, _make(page)) for index, page in tuple(left.items()))
        return
    with before_a_stop(_end_workers):
        tasks = [joblib.delayed(_in_worker)(index, page) for index, page in left.items()]
        run = joblib.Parallel(workers, "loky", return_as="generator_unordered", batch_size=1, max_nbytes=None)
        with _held_back():  # workers, which start here, inherit that: a terminal's Ctrl-C is ours to handle
            made = run(tasks)
        yield from made


def _on_cluster(left: Mapping[int, Page], scheduler: str) -> Iterator[tuple[int, Made]]:
    try:
        from distributed import Client
    except ModuleNotFoundError as error:
        raise InputError(f"a scheduler needs {error.name}; install it with: pip install 'kvprefetch[dask]'") from None
    try:
        client = Client(scheduler, timeout=CONNECTING, set_as_default=False)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"scheduler: got {scheduler!r}, which does not answer ({reason}); accepted: the address of a "
                         "running Dask scheduler, such as tcp://host:8786") from None  # fmt: skip
    with client, joblib.parallel_config("dask", client=client, wait_for_workers_timeout=CONNECTING):
        try:
            tasks = [joblib.delayed(_make_at)(index, page) for index, page in left.items()]
            yield from joblib.Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch="all")(tasks)
        except TimeoutError:
            raise InputError(f"scheduler: {scheduler} has had no worker for {CONNECTING} s; start one") from None


def _make(page: Page) -> Made:
    """The page's files, or why there are none."""
    try:
        digest = inputs_digest(page)
        page.keep()
        return Made(artefacts(page, progress_bar=False), digest)
    except InputError as error:
        return Made(failure=str(error))
    except Exception as error:  # whatever it is, other pages go on
        return Made(failure=f"{page.folder}: {type(error).__name__}: {' '.join(str(error).split())[:200]}")


def _make_at(index: int, page: Page) -> tuple[int, Made]:
    return index, _make(page)


def _in_worker(index: int, page: Page) -> tuple[int, Made]:
    """`_make_at` in a process that its parent may end at any time, kernel and all."""
    unwind_on(signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # other stops stay held back: they are the parent's
    try:
        return _make_at(index, page)
    except Stopped:
        os._exit(0)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end_workers() -> None:
    """Let the workers end their kernels and themselves."""
    workers = active_children()
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join(PATIENCE)


@contextmanager
def _held_back() -> Iterator[None]:
    """Let stops wait until the block is left, and for good in processes that start in it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
