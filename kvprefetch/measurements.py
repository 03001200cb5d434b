"""Which decode steps have others measured, on what, and how far may each be trusted?

params/measurements/*.yaml: a document a file, with its conditions, and rows that a prediction can be held
against; context/*.yaml below it: public rates that are no targets, and why.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, NamedTuple, TypeVar

from kvprefetch import plainyaml
from kvprefetch.catalog import HARDWARE, MODELS, CatalogEntry, find, short_names
from kvprefetch.checks import InputError, checked_keys, number, one_of, refusal
from kvprefetch.configs import ACHIEVED, ModelConfig
from kvprefetch.measured import Aside, Copy, Document, Kind, Measurement, Way
from kvprefetch.paths import DATA

CARD = re.compile(rb"^card: *([a-z0-9.-]+)", re.MULTILINE)  # a short name
FOLDER = DATA / "params" / "measurements"
MOST_PCT = 100

Read = TypeVar("Read")
Made = TypeVar("Made")


class Digest(NamedTuple):
    """A file, and the SHA-256 of its content."""

    file: str
    sha256: str


@cache
def documents() -> tuple[Document, ...]:
    """Every document of params/measurements/. Raises InputError."""
    return tuple(read_document(path.stem, path.read_bytes()) for path in sorted(FOLDER.glob("*.yaml")))


def asides() -> tuple[Aside, ...]:
    """Every rate of params/measurements/context/. Raises InputError."""
    paths = sorted((FOLDER / "context").glob("*.yaml"))
    return tuple(aside for path in paths for aside in read_asides(path.stem, path.read_bytes()))


@cache
def contents() -> tuple[bytes, ...]:
    """The files that a validation rests on, byte for byte: rows and models, then the cards. Found without parsing."""
    texts = tuple(path.read_bytes() for path in sorted(FOLDER.rglob("*.yaml")))
    cards = {name.decode() for text in texts for name in CARD.findall(text)}
    return *texts, *((DATA / HARDWARE.folder / f"{card}.yaml").read_bytes() for card in sorted(cards))


def digests() -> tuple[Digest, ...]:
    """The SHA-256 of every file of the measurements, by its path below params/measurements/."""
    paths = sorted(FOLDER.rglob("*.yaml"))
    return tuple(
        Digest(path.relative_to(FOLDER).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest()) for path in paths
    )


def read_document(slug: str, content: bytes) -> Document:
    """The document that a file of params/measurements/ describes. Raises InputError that names the file."""
    return _named(slug, lambda: _document(slug, plainyaml.mapping(content)))


def read_asides(slug: str, content: bytes) -> tuple[Aside, ...]:
    """The rates that a file of params/measurements/context/ lists. Raises InputError that names the file."""

    def read() -> tuple[Aside, ...]:
        given = plainyaml.mapping(content)
        checked_keys(given, ("rows",), ())
        return rows_of(given["rows"], lambda row: made_of(row, Aside))

    return _named(slug, read)


def rows_of(given: Any, read: Callable[[dict[str, Any]], Read]) -> tuple[Read, ...]:
    """A list of rows, each read by `read`. Raises InputError that names the row."""
    if not isinstance(given, list) or not given:
        raise refusal("rows", given, "a list of rows")
    rows = []
    for index, row in enumerate(given, 1):
        try:
            if not isinstance(row, dict):
                raise refusal("content", row, "keys and values")
            rows.append(read(row))
        except InputError as error:
            raise InputError(f"row {index}: {error}") from None
    return tuple(rows)


def made_of(given: dict[str, Any], kind: type[Made]) -> Made:
    """The dataclass whose fields are the keys of `given`. Raises InputError on a key too many or too few."""
    required = [field.name for field in fields(kind) if field.default is MISSING]
    checked_keys(given, required, [field.name for field in fields(kind) if field.default is not MISSING])
    return kind(**given)


def _named(slug: str, read: Callable[[], Read]) -> Read:
    try:
        return read()
    except InputError as error:
        raise InputError(f"measurements {slug}: {error}") from None


def _document(slug: str, given: dict[str, Any]) -> Document:
    if "slug" in given:
        raise InputError("slug: not a key; it is the file's name")
    for key in ("rows", "within_pct"):
        if key not in given:
            raise InputError(f"{key}: missing")
    values = given | {
        "rows": rows_of(given["rows"], _measurement),
        "within_pct": dict(_tolerances(given["within_pct"])),
    }
    if "model" in given:
        values["model"] = _model(given["model"])
    if "card" in given:
        values["card"] = find(HARDWARE, given["card"])
    if not isinstance(given.get("gives", []), list):
        raise refusal("gives", given["gives"], f"a list of {' '.join(ACHIEVED)}")
    return made_of({"slug": slug, **values, "gives": tuple(given.get("gives", ()))}, Document)


def _measurement(row: dict[str, Any]) -> Measurement:
    copies = rows_of(row["copies"], lambda each: made_of(each, Copy)) if "copies" in row else ()
    return made_of(row | {"copies": copies}, Measurement)


def _model(name: Any) -> CatalogEntry[ModelConfig]:
    """The model of that name beside the measurements, else in the catalogue."""
    own = [path.stem for path in (FOLDER / "models").glob("*.yaml")]
    one_of("model", name, [*own, *short_names(MODELS)])
    return find(MODELS, str(FOLDER / "models" / f"{name}.yaml") if name in own else name)


def _tolerances(given: Any) -> Iterator[tuple[tuple[Kind, Way], float]]:
    if not isinstance(given, dict) or not all(isinstance(ways, dict) for ways in given.values()):
        raise refusal("within_pct", given, "for each kind, how far each way may miss: {law: 3, refined: 8}")
    for kind, ways in given.items():
        for way, most in ways.items():
            key = Kind(one_of("within_pct", kind, list(Kind))), Way(one_of("within_pct", way, list(Way)))
            yield key, number("within_pct", most, least=0, most=MOST_PCT)
