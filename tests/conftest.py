import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).parent.parent

# No example database and no deadline: the same examples and the same verdict on every machine.
settings.register_profile("reproducible", derandomize=True, deadline=None, database=None)
settings.load_profile("reproducible")


@pytest.fixture
def checkout(tmp_path):
    """A copy of the project's own files, without reports, in a folder with a space and a non-ASCII name."""
    copy = tmp_path / "a copy é"
    tracked = ("kvprefetch", "notebooks", "params", "Makefile", "pyproject.toml", "requirements.txt", "README.md")
    copy.mkdir()
    for name in tracked:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture
def kvprefetch(checkout):
    """Runs the command line of the copied checkout; returns the finished process, output as text."""

    def run(*arguments, **environment):
        return subprocess.run(
            [sys.executable, "-m", "kvprefetch", *arguments],
            cwd=checkout,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run
