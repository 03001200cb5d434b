"""make in a copy of the checkout: what was typed reaches Python, and nothing else runs."""

import os
import subprocess
import sys

import pytest


@pytest.fixture
def make(checkout):
    """Runs make in the copy, whose environment is this one's interpreter."""
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (checkout / ".venv" / "installed").touch()
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}

    def run(*arguments, **environment):
        return subprocess.run(
            ["make", *arguments], cwd=checkout, env=clean | environment, capture_output=True, text=True, timeout=120
        )

    return run


def test_make_report_builds_the_default_pair_and_then_nothing(make, checkout):
    first = make("report")
    assert first.returncode == 0, first.stderr
    assert first.stdout.endswith("\nreports/llama3-8b--a100/report.html\n")
    again = make("report", "MODEL=llama3-8b", "HW=a100", "CONTEXTS=", "BATCH=", "DEPTH=1")
    assert again.stdout.endswith("\nreports/llama3-8b--a100/report.html (unchanged)\n")
    assert sorted(path.name for path in (checkout / "reports").iterdir()) == ["index.html", "llama3-8b--a100"]


def test_make_passes_every_parameter(make, checkout):
    done = make("report", "MODEL=mistral-7b", "HW=rtx4090", "CONTEXTS=1024,512", "BATCH=4", "DEPTH=2")
    assert done.stdout.endswith("\nreports/mistral-7b--rtx4090--batch4-depth2-ctx512-1024/report.html\n"), done.stderr


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("MODEL=llama3-8", "model: got 'llama3-8'; accepted: a path, or one of the"),
        ("MODEL=$(shell touch hacked)", "model: got '$(shell touch hacked)'"),
        ("MODEL=`touch hacked`", "model: got '`touch hacked`'"),
        ("MODEL=$$(touch hacked)", "model: got '$$(touch hacked)'"),
        ("MODEL=x'; touch hacked; '", "model: got \"x'; touch hacked; '\""),
        ('MODEL=x"; touch hacked; "', "model: got 'x\"; touch hacked; \"'"),
        ("MODEL=a$b", "model: got 'a$b'"),
        ("HW=../a100", "hw ../a100: path: got 'no such file'"),
        ("HW=a\nb", r"hw: got 'a\nb'"),
        ("CONTEXTS=512 1024", "contexts: got '512 1024'"),
        ("BATCH=0", "batch: got 0"),
        ("DEPTH=__import__('os')", "depth: got \"__import__('os')\""),
    ],
)
def test_what_is_typed_at_make_reaches_python_as_it_is(make, checkout, argument, message):
    done = make("report", argument)
    assert done.returncode != 0
    ours = [line for line in done.stderr.splitlines() if not line.startswith("make:")]
    assert len(ours) == 1
    assert f"kvprefetch: {message}" in ours[0]
    assert not (checkout / "hacked").exists()
    assert not (checkout / "reports").exists()


def test_values_from_the_environment_are_as_safe(make, checkout):
    done = make("report", MODEL="$(shell touch hacked)")
    assert "model: got '$(shell touch hacked)'" in done.stderr
    assert not (checkout / "hacked").exists()
