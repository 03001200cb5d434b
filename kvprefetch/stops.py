"""How does work end that does not go well: stopped from outside, refused, or out of disk?

In one line and an exit status. A stop, Ctrl-C or a signal, unwinds the stack once, so that kernels are
stopped and nothing half-written stays; further ones are ignored meanwhile, and work that must not be torn
apart holds them back.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from kvprefetch.checks import InputError

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(KeyboardInterrupt):
    """A stop, with the signal that asked for it."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def guarded(work: Callable[[], None]) -> int:
    """Do the work of a program; returns its exit status. What it cannot do is one line on stderr."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.reconfigure(errors="backslashreplace")  # a name is printed as far as the terminal can
    try:
        unwind_on(*STOPS)
        work()
        if sys.stdout:
            sys.stdout.flush()
        return 0
    except InputError as error:
        return _failed(str(error), 2)
    except Stopped as stop:
        return _failed("stopped", 128 + stop.number)
    except BrokenPipeError:  # whoever reads our output has seen enough
        _drop_output()
        return 1
    except OSError as error:
        _drop_output()
        return _failed(reason(error), 2)


def reason(error: OSError) -> str:
    """What the system could not do, in one line that names the file."""
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)


def _failed(message: str, status: int) -> int:
    print(f"kvprefetch: {message}", file=sys.stderr)
    return status


def _drop_output() -> None:
    """Let what is still to be printed go nowhere: Python would complain about it at its end."""
    if sys.stdout:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def unwind_on(*stops: signal.Signals) -> None:
    """Let each of `stops` raise Stopped from now on."""
    for stop in stops:
        if signal.getsignal(stop) is not signal.SIG_IGN:  # under nohup, or in the background: not ours to take back
            signal.signal(stop, _raise)


def _raise(number: int, _: object) -> NoReturn:
    for stop in STOPS:
        signal.signal(stop, signal.SIG_IGN)
    warnings.simplefilter("ignore")  # such as Python's about coroutines that were torn down before their first step
    raise Stopped(number)


@contextmanager
def undisturbed(at_once: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold a stop back until the block is left; where one comes, call `at_once`.

    Outside the main thread there is none to hold back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []

    def hold(number: int, _: object) -> None:
        held.append(number)
        if len(held) == 1:
            at_once()

    before = {stop: signal.signal(stop, hold) for stop in STOPS}
    try:
        yield
    finally:
        for stop, handler in before.items():
            signal.signal(stop, handler)
        if held:
            signal.raise_signal(held[0])
