"""The command line: kvprefetch sweep | crossover | model | report | notebook."""

import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which unwinds like Ctrl-C: the kernel is stopped and nothing half-written stays."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status. Wrong input is one line on stderr and status 2."""
    # Until there is something to unwind, a stop ends the process at once and in silence.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from kvprefetch.checks import InputError
    from kvprefetch.commandline import parser

    options = parser().parse_args(argv)
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, _terminate)
        options.run(options)
        return 0
    except InputError as error:
        print(f"kvprefetch: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        print("kvprefetch: stopped; nothing was published", file=sys.stderr)
        return 128 + (signal.SIGTERM if isinstance(stop, _Terminated) else signal.SIGINT)
    except BrokenPipeError:  # whoever reads our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _terminate(*_: object) -> NoReturn:
    raise _Terminated


if __name__ == "__main__":
    sys.exit(main())
