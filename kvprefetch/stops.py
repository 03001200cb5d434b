"""How does a stop from outside, Ctrl-C or a signal, end the work?

It unwinds the stack once, so that kernels are stopped and nothing half-written stays; further ones are
ignored meanwhile, and work that must not be torn apart holds them back.
"""

from __future__ import annotations

import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(KeyboardInterrupt):
    """A stop, with the signal that asked for it."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def unwind_on_stops() -> None:
    """From now on a stop raises Stopped."""
    for stop in STOPS:
        signal.signal(stop, _raise)


def _raise(number: int, _: object) -> NoReturn:
    for stop in STOPS:
        signal.signal(stop, signal.SIG_IGN)
    warnings.simplefilter("ignore")  # such as Python's about coroutines that were torn down before their first step
    raise Stopped(number)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold a stop back until the block is left."""
    held: list[int] = []
    before = {stop: signal.signal(stop, lambda number, _: held.append(number)) for stop in STOPS}
    try:
        yield
    finally:
        for stop, handler in before.items():
            signal.signal(stop, handler)
        if held:
            signal.raise_signal(held[0])
