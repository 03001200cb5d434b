"""The wheel in environments of its own, away from any checkout."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from conftest import copy_of_checkout

from kvprefetch.publish import ARTEFACTS

PAIR = ("--model", "llama3-8b", "--hw", "a100")


def run(*command, cwd, **environment):
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=os.environ | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The bin/ of a clean environment after `pip install .`, and an empty folder to stand in."""
    folder = tmp_path_factory.mktemp("install")
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / "bin"
    quiet = ("--quiet", "--disable-pip-version-check")
    run(programs / "python", "-m", "pip", "install", *quiet, copy_of_checkout(folder), cwd=folder)
    (folder / "elsewhere").mkdir()
    return programs, folder / "elsewhere"


def test_the_command_and_the_built_ins_need_numpy_and_pyyaml_alone(installed):
    programs, elsewhere = installed
    names = {
        package["name"].lower() for package in json.loads(run(programs / "pip", "list", "--format=json", cwd=elsewhere))
    }
    assert names - {"pip", "setuptools"} == {"kvprefetch", "numpy", "pyyaml"}
    assert run(programs / "kvprefetch", "crossover", *PAIR, cwd=elsewhere) == "1306\n"
    assert "178.64" in run(programs / "kvprefetch", "sweep", *PAIR, cwd=elsewhere)
    code = "from kvprefetch import *; print(LLAMA2_13B.params, RTX4090.pcie_gb_s, crossover_ctx(LLAMA2_13B, RTX4090))"
    assert run(programs / "python", "-c", code, cwd=elsewhere) == "12687769600 25 769\n"


def test_the_report_extra_gives_the_same_report_where_the_user_stands(installed, fresh_reports):
    """The extra's packages are those of this environment, lent by a path, so that nothing is installed twice."""
    programs, elsewhere = installed
    (site,) = (programs.parent / "lib").glob("python*/site-packages")
    lent = next(path for path in sys.path if Path(path).name == "site-packages")
    (site / "lent.pth").write_text(lent)
    templates = str(Path(sys.prefix, "share", "jupyter"))  # nbconvert's, which an installed extra brings along
    run(programs / "kvprefetch", "report", *PAIR, cwd=elsewhere, JUPYTER_PATH=templates)
    (site / "lent.pth").unlink()
    here, there = elsewhere / "reports" / "llama3-8b--a100", fresh_reports / "llama3-8b--a100"
    assert {name: (here / name).read_bytes() for name in ARTEFACTS} == {
        name: (there / name).read_bytes() for name in ARTEFACTS
    }


def test_the_report_extra_names_every_package_that_reports_import(installed):
    programs, elsewhere = installed
    code = "from importlib.metadata import requires; print(*requires('kvprefetch'), sep='\\n')"
    extra = [line for line in run(programs / "python", "-c", code, cwd=elsewhere).splitlines() if "'report'" in line]
    named = {line.split(";")[0].split("[")[0].split("=")[0].split("<")[0].split(">")[0].lower() for line in extra}
    assert named == {
        *(
            "ipykernel",
            "jinja2",
            "joblib",
            "jsonschema",
            "latex2mathml",
            "lxml",
            "matplotlib",
            "nbconvert",
            "pandas",
        ),
        *("papermill", "scipy", "simpy"),
    }
