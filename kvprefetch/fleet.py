"""Which pairs are built together, and which page compares them?

The fleet is every pair of some models and some cards: those of params/fleet.yaml, or those asked for.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import ClassVar

from kvprefetch import plainyaml
from kvprefetch.capacity import DEFAULT_RESERVE, MOST_RESERVE
from kvprefetch.catalog import HARDWARE, MODELS, CatalogEntry, Config, Shelf, find, keep, short_names
from kvprefetch.checks import InputError, checked_keys, number, refusal, settle, whole_number
from kvprefetch.configs import HardwareProfile, ModelConfig
from kvprefetch.grid import Standing, standing
from kvprefetch.layers import MOST_BATCH
from kvprefetch.paths import DATA
from kvprefetch.reach import LEAST_TARGET, MOST_TARGET
from kvprefetch.request import MOST_REPORT_DEPTH, PARAMETERS, Request
from kvprefetch.termtext import FIRST_ORDER_TEXT, read_terms

FILE = "params/fleet.yaml"
ALL = "all"  # for every name of the catalogue
MOST_MEMBERS = 1_000  # models, or cards


@dataclass(frozen=True)
class Fleet:
    """Some models on some cards, checked on construction: the page that compares them. Raises InputError."""

    notebook: ClassVar[str] = "fleet.ipynb"
    artefacts: ClassVar[tuple[str, ...]] = ("report.ipynb", "report.html", "metrics.json")

    models: tuple[CatalogEntry[ModelConfig], ...]
    cards: tuple[CatalogEntry[HardwareProfile], ...]
    target_ms: float = 50.0  # what a step may take
    batch: int = 1
    depth: int = 1
    reserve: float = DEFAULT_RESERVE  # share of the card's memory that neither weights nor cache may take
    terms: str = FIRST_ORDER_TEXT  # as `termtext` reads it, for each card

    def __post_init__(self) -> None:
        for what in ("models", "cards"):
            object.__setattr__(self, what, tuple(getattr(self, what)))
            if not 0 < len(getattr(self, what)) <= MOST_MEMBERS:
                raise refusal(what, f"{len(getattr(self, what))} of them", f"1 to {MOST_MEMBERS}")
        settle(self, number, "target_ms", least=LEAST_TARGET, most=MOST_TARGET)
        settle(self, whole_number, "batch", most=MOST_BATCH)
        settle(self, whole_number, "depth", most=MOST_REPORT_DEPTH)
        settle(self, number, "reserve", least=0, most=MOST_RESERVE)
        for card in self.cards:
            read_terms(self.terms, card.config)

    @cached_property
    def standings(self) -> tuple[tuple[Standing, ...], ...]:
        """Where the limits of every pair lie: a row a model, a column a card."""
        return tuple(
            tuple(
                standing(
                    *(model.config, card.config, self.target_ms, self.batch, self.depth),
                    *(read_terms(self.terms, card.config), self.reserve),
                )
                for card in self.cards
            )
            for model in self.models
        )

    @property
    def folder(self) -> str:
        """The page's folder below reports/: "fleet" for the one of params/fleet.yaml."""
        default = tuple(map(list, self._slugs)) == fleet_names()
        given = self.command if not default else " ".join(["make fleet", *self._not_default])
        return "fleet" if given == "make fleet" else f"fleet--{hashlib.sha256(given.encode()).hexdigest()[:8]}"

    @property
    def inputs(self) -> tuple[bytes, ...]:
        """What the page depends on beside its notebook and the package."""
        return *(entry.content for entry in (*self.models, *self.cards)), self.command.encode()

    def keep(self) -> None:
        """Keep copies of the user's files, so that the page can be run again from its slugs."""
        for model in self.models:
            keep(MODELS, model)
        for card in self.cards:
            keep(HARDWARE, card)

    @property
    def parameters(self) -> dict[str, str | int | float | list[str]]:
        """What Papermill injects: the files by their slugs, never by a path."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**given, "models": list(self._slugs[0]), "cards": list(self._slugs[1])}

    @property
    def title(self) -> str:
        """What the page is called: "3 models on 1 card, batch 4"."""
        models, cards = len(self.models), len(self.cards)
        size = f"{models} model{'s' * (models != 1)} on {cards} card{'s' * (cards != 1)}"
        other = "".join(
            f", {name} {value}" for name, value in (("batch", self.batch), ("depth", self.depth)) if value > 1
        )
        return size + other + ("" if self.terms == FIRST_ORDER_TEXT else f", {self.terms}")

    @property
    def command(self) -> str:
        """The command that builds this page."""
        models, cards = (",".join(slugs) for slugs in self._slugs)
        return " ".join([f"make fleet MODELS={models} HWS={cards}", *self._not_default])

    @property
    def _slugs(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return tuple(tuple(entry.slug for entry in entries) for entries in (self.models, self.cards))

    @property
    def _not_default(self) -> list[str]:
        """Parameters that differ from their defaults, as make takes them, in fixed order."""
        variables = {name: each.variable for name, each in PARAMETERS.items()}
        differing = ((f.name, getattr(self, f.name)) for f in fields(self)[2:] if getattr(self, f.name) != f.default)
        return [f"{variables[name]}={value}" for name, value in differing]


def fleet_names() -> tuple[list[str], list[str]]:
    """The short names of params/fleet.yaml: models, cards. Raises InputError."""
    try:
        given = plainyaml.mapping((DATA / FILE).read_bytes())
        checked_keys(given, ("models", "cards"), ())
        for key, names in given.items():
            if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
                raise refusal(key, names, "a list of short names")
    except InputError as error:
        raise InputError(f"{FILE}: {error}") from None
    except OSError as error:
        raise InputError(f"{FILE}: cannot be read: {error.strerror}") from None
    return given["models"], given["cards"]


def names_in(text: str, shelf: Shelf) -> list[str]:
    """The names of a text with blanks or commas between them, each once; "all" stands for the catalogue."""
    names = dict.fromkeys(name for name in re.split(r"[\s,]+", text) if name)
    return [*dict.fromkeys(each for name in names for each in (short_names(shelf) if name == ALL else [name]))]


def entries(shelf: Shelf[Config], names: Sequence[str]) -> tuple[list[CatalogEntry[Config]], list[str]]:
    """The entries of `names`, and a line for each that is not one."""
    found, failures = [], []
    for name in names:
        try:
            found.append(find(shelf, name))
        except InputError as error:
            failures.append(str(error))
    return found, failures


def requests(
    models: Sequence[CatalogEntry[ModelConfig]],
    cards: Sequence[CatalogEntry[HardwareProfile]],
    parameters: Mapping[str, object],
) -> tuple[list[Request], list[str]]:
    """A report's request for every pair, and a line for each pair of which there can be none."""
    made, failures = {}, []
    for model in models:
        for card in cards:
            try:
                request = Request(model, card, **parameters)
                made[request.folder] = request
            except InputError as error:
                failures.append(f"{model.slug}--{card.slug}: {error}")
    return list(made.values()), failures
