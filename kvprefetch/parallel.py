"""How are many pages built at once, on this machine's cores or on those of a Dask cluster?

Workers make pages and hand them back as bytes; this process alone publishes them, so workers need no file system
in common, and a stop or a worker's end leaves whole pages alone.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import active_children, resource_tracker
from tempfile import TemporaryDirectory

import joblib
from ipykernel.parentpoller import ParentPollerUnix
from tqdm import tqdm

from kvprefetch.checks import InputError
from kvprefetch.html.index import index_page
from kvprefetch.kernels import SCRATCH, Kernels, kernel, kernel_environment
from kvprefetch.nursery import Nursery
from kvprefetch.publish import Page, building, index_is_there, inputs_digest, publish, publish_index
from kvprefetch.report import artefacts
from kvprefetch.stops import STOPS, Stopped, reason, undisturbed, unwind_on

ATTEMPTS = 3  # at what is left, when a worker was killed
CONNECTING = 5  # seconds

_relieved = False  # in a worker: whether it is to do no more
_of_this_process: Nursery | None = None  # in a worker


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
        with closing(made(pages, jobs, scheduler)) as results:
            for index, result in results:
                failure = result.failure or _published(pages[index], result)
                failures += [failure] if failure else []
                published += not failure
                _count(bar, published, len(failures))
                bar.update()
    finally:
        bar.close()
        if published:
            with undisturbed():
                publish_index(index_page)
    if not pages and not index_is_there():
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


def made(pages: Sequence[Page], jobs: int | None = None, scheduler: str | None = None) -> Iterator[tuple[int, Made]]:
    """What comes of each page, with its index, in the order in which they are done."""
    left = dict(enumerate(pages))
    for _ in range(ATTEMPTS):
        try:
            for index, result in _on_cluster(left, scheduler) if scheduler else _here(left, jobs):
                del left[index]
                yield index, result
            return
        except BrokenProcessPool:  # one worker was killed, which ends all of them
            pass
    for index, page in left.items():
        yield index, Made(failure=f"{page.folder}: a worker was killed while it was made, {ATTEMPTS} times")


def _here(left: Mapping[int, Page], jobs: int | None) -> Iterator[tuple[int, Made]]:
    workers = min(jobs or joblib.cpu_count(), len(left))
    if workers <= 1:
        yield from (_make(index, page) for index, page in tuple(left.items()))
        return
    # A worker that is killed leaves its kernel's scratch, so all of that is in one folder.
    scratch = TemporaryDirectory(prefix="kvprefetch-", dir=SCRATCH, ignore_cleanup_errors=True)
    processes = joblib.Parallel(workers, "loky", return_as="generator_unordered", batch_size=1, max_nbytes=None)
    with scratch as folder, processes as run, ExitStack() as stopping:
        tasks = [joblib.delayed(_in_worker)(index, page, folder) for index, page in left.items()]
        with _held_back():
            stopping.enter_context(undisturbed(at_once=_stop_workers))
            results = run(tasks)
        yield from (result for result in results if result)


def _on_cluster(left: Mapping[int, Page], scheduler: str) -> Iterator[tuple[int, Made]]:
    try:
        from distributed import Client
    except ModuleNotFoundError as error:
        raise InputError(f"a scheduler needs {error.name}; install it with: pip install 'kvprefetch[dask]'") from None
    try:
        client = Client(scheduler, timeout=CONNECTING, set_as_default=False)
    except (OSError, ValueError) as error:
        why = str(error).splitlines()[0]
        raise InputError(f"scheduler: {scheduler} does not answer: {why}") from None
    with client, joblib.parallel_config("dask", client=client, wait_for_workers_timeout=CONNECTING):
        try:
            tasks = [joblib.delayed(_make)(index, page) for index, page in left.items()]
            yield from joblib.Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch="all")(tasks)
        except TimeoutError:
            raise InputError(f"scheduler: {scheduler} has had no worker for {CONNECTING} s; start one") from None


def _make(index: int, page: Page, kernels: Kernels = kernel) -> tuple[int, Made]:
    """The page's files, or why there are none."""
    try:
        digest = inputs_digest(page)
        page.keep()
        return index, Made(artefacts(page, False, kernels), digest)
    except InputError as error:
        return index, Made(failure=str(error))
    except OSError as error:
        return index, Made(failure=f"{page.folder}: {reason(error)}")
    except Exception as error:  # whatever it is, other pages go on
        return index, Made(failure=f"{page.folder}: {type(error).__name__}: {' '.join(str(error).split())[:200]}")


def _in_worker(index: int, page: Page, scratch: str) -> tuple[int, Made] | None:
    """`_make` in a process that SIGTERM relieves of all work, kernel and all: None then. Other stops are its parent's.

    Such a process must not end by itself: a result it is handing back would be cut off, and waited for.
    """
    global _relieved
    signal.signal(signal.SIGTERM, _relieve)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    if _relieved:
        return None
    try:
        unwind_on(signal.SIGTERM)
        return _make(index, page, partial(kernel, scratch, _nursery().managers()))
    except Stopped:
        _relieved = True
        return None
    finally:
        signal.signal(signal.SIGTERM, _relieve)


def _nursery() -> Nursery:
    """The one of this process, anew where it has died."""
    global _of_this_process
    with undisturbed():
        if _of_this_process is None or not _of_this_process.lives:
            if _of_this_process is None:
                ParentPollerUnix(os.getppid()).start()  # ends this process when its parent has been killed
            _of_this_process = Nursery(kernel_environment())
    return _of_this_process


def _relieve(*_: object) -> None:
    global _relieved
    _relieved = True


def _stop_workers() -> None:
    """Relieve the workers of what is left; they hand back what is done."""
    for worker in active_children():
        worker.terminate()


@contextmanager
def _held_back() -> Iterator[None]:
    """Let stops wait until the block is left, and for good in processes that start in it.

    A terminal sends its Ctrl-C to them too.
    """
    resource_tracker.ensure_running()  # would start in the block, and let stops through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
