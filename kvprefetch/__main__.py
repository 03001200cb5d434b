"""The command line: kvprefetch sweep | crossover | report | notebook | model | models | cards."""

import os
import signal
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status. Wrong input is one line on stderr and status 2."""
    # Until there is something to unwind, a stop ends the process at once and in silence.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from kvprefetch.checks import InputError
    from kvprefetch.commandline import parser
    from kvprefetch.stops import Stopped, unwind_on_stops

    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.reconfigure(errors="backslashreplace")  # a name is printed as far as the terminal can
    options = parser().parse_args(argv)
    try:
        unwind_on_stops()
        options.run(options)
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
        return _failed(f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error), 2)


def _failed(message: str, status: int) -> int:
    print(f"kvprefetch: {message}", file=sys.stderr)
    return status


def _drop_output() -> None:
    """Let what is still to be printed go nowhere: Python would complain about it at its end."""
    if sys.stdout:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
