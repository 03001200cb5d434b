"""Where the project's own files are: in the checkout, or in the installed wheel.

The checkout comes first, so that an edited file of it always wins over an installed copy.
"""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
IN_CHECKOUT = (PACKAGE.parent / "pyproject.toml").is_file() and (PACKAGE.parent / "params").is_dir()
DATA = PACKAGE.parent if IN_CHECKOUT else PACKAGE / "data"  # holds params/ and notebooks/


def workspace() -> Path:
    """The folder that reports/ and .cache/ are made in: the checkout, else where the user stands."""
    return PACKAGE.parent if IN_CHECKOUT else Path.cwd()
