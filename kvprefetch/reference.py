"""What would change in the reference reports? Builds them anew and prints each difference.

python -m kvprefetch.reference
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import nbformat

from kvprefetch.catalog import HARDWARE, MODELS, find
from kvprefetch.publish import folder
from kvprefetch.report import rebuild
from kvprefetch.request import Request
from kvprefetch.stops import guarded

# Three pairs that cover the six built-ins.
REFERENCES = (("llama3-8b", "a100"), ("llama2-13b", "a100-gen3"), ("mistral-7b", "rtx4090"))
TRACKED = ("metrics.json", "report.ipynb", "before_after.png")


def differences(old: Any, new: Any, where: str = "") -> Iterator[str]:
    """One line for each leaf of two JSON values that differs, numbers with their relative change."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old | new:
            yield from differences(old.get(key), new.get(key), f"{where}.{key}".lstrip("."))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from differences(before, after, f"{where}[{index}]")
    elif old != new:
        numbers = isinstance(old, (int, float)) and isinstance(new, (int, float)) and old
        yield f"{where}: {old!r} -> {new!r}" + (f" ({new / old - 1:+.2e})" if numbers else "")


def changes(old: Mapping[str, bytes], new: Mapping[str, bytes]) -> Iterator[str]:
    """What differs between two versions of a report's tracked files, a line each."""
    if not all(old.values()):
        yield "new"
        return
    yield from differences(*(json.loads(version["metrics.json"]) for version in (old, new)))
    before, after = (
        {cell.id: cell for cell in nbformat.reads(version["report.ipynb"].decode(), as_version=4).cells}
        for version in (old, new)
    )
    for cell in before | after:
        if before.get(cell) != after.get(cell):
            yield f"report.ipynb: cell {cell} changed"
    if old["before_after.png"] != new["before_after.png"]:
        yield "before_after.png: changed"


def _tracked(request: Request) -> dict[str, bytes]:
    here = folder(request)
    return {name: (here / name).read_bytes() if (here / name).exists() else b"" for name in TRACKED}


def main() -> None:
    """Rebuild the reference reports; print each and its changes."""
    for model, hw in REFERENCES:
        request = Request(find(MODELS, model), find(HARDWARE, hw))
        old = _tracked(request)
        rebuild(request)
        lines = list(changes(old, _tracked(request))) or ["unchanged"]
        print("\n".join(f"{request.folder}: {line}" for line in lines))


if __name__ == "__main__":
    sys.exit(guarded(main))
