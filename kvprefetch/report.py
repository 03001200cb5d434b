"""Build one page: have its files made, publish them."""

from __future__ import annotations

from kvprefetch.html.index import index_page
from kvprefetch.kernels import Kernels, kernel
from kvprefetch.publish import Page, building, index_is_there, inputs_digest, publish, publish_index, up_to_date
from kvprefetch.stops import undisturbed


def build(page: Page) -> bool:
    """Make `page` unless it is up to date; whether it was made. Raises ReportError, InputError."""
    if up_to_date(page):
        if not index_is_there():
            publish_index(index_page)
        return False
    with building(page):
        stale = not up_to_date(page)  # it may have been made while we waited
        if stale:
            _make(page)
    return stale


def rebuild(page: Page) -> None:
    """Make `page` whether or not it is up to date. Raises ReportError, InputError."""
    with building(page):
        _make(page)


def _make(page: Page) -> None:
    digest = inputs_digest(page)
    page.keep()
    made = artefacts(page)
    with undisturbed():
        publish(page, made, digest)
        publish_index(index_page)


def artefacts(page: Page, progress_bar: bool = True, kernels: Kernels = kernel) -> dict[str, bytes]:
    """The files of `page`, made but not published. Raises ReportError."""
    with kernels() as manager:
        with undisturbed():
            from kvprefetch.execution import files  # here, because a kernel starts in the time that this takes to load

        return files(page, manager, progress_bar)
