import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from building import SHORT
from hypothesis import settings

from kvprefetch.reference import REFERENCES

ROOT = Path(__file__).parent.parent

# No example database and no deadline: the same examples and the same verdict on every machine.
settings.register_profile("reproducible", derandomize=True, deadline=None, database=None)
settings.load_profile("reproducible")


def copy_of_checkout(folder: Path) -> Path:
    """The project's own files, without reports, in a new folder whose name has a space and a non-ASCII letter."""
    copy = folder / "a copy é"
    copy.mkdir()
    for name in ("kvprefetch", "notebooks", "params"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints"))
    for name in ("Makefile", "pyproject.toml", "requirements.txt", "README.md"):
        shutil.copy2(ROOT / name, copy)
    return copy


def run_kvprefetch(checkout: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line of a copied checkout, run to its end."""
    return subprocess.run(
        [sys.executable, "-m", "kvprefetch", *arguments],
        cwd=checkout,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def checkout(tmp_path):
    return copy_of_checkout(tmp_path)


@pytest.fixture
def kvprefetch(checkout):
    """Runs the command line of the copied checkout."""

    def run(*arguments, **environment):
        return run_kvprefetch(checkout, *arguments, **environment)

    return run


@pytest.fixture
def built(kvprefetch, checkout):
    """The copy with one good report in it."""
    done = kvprefetch("report", *SHORT)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="session")
def fresh_reports(tmp_path_factory):
    """The reports/ folder of a copy in which the reference pairs have just been built."""
    copy = copy_of_checkout(tmp_path_factory.mktemp("fresh"))
    for model, hw in REFERENCES:
        done = run_kvprefetch(copy, "report", "--model", model, "--hw", hw)
        assert done.returncode == 0, done.stderr
    return copy / "reports"


@pytest.fixture(scope="session")
def fleet_page(tmp_path_factory):
    """The page of params/fleet.yaml's fleet, just built."""
    copy = copy_of_checkout(tmp_path_factory.mktemp("fleet"))
    done = run_kvprefetch(copy, "fleet")
    assert done.returncode == 0, done.stderr
    return (copy / "reports" / "fleet" / "report.html").read_bytes()
