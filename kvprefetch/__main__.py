"""The command line: kvprefetch plan | sweep | crossover | report | reports | fleet | notebook | calibrate | ..."""

import sys
from collections.abc import Sequence

from kvprefetch.stops import guarded, undisturbed


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status. Wrong input is one line on stderr and status 2."""
    return guarded(lambda: _run(argv))


def _run(argv: Sequence[str] | None) -> None:
    with undisturbed():  # a stop in the midst of loading would be taken for a broken module
        from kvprefetch.commandline import parser

    options = parser().parse_args(argv)
    options.run(options)


if __name__ == "__main__":
    sys.exit(main())
