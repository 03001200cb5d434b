"""How accurate has each kind of prediction been?

The errors of `validation`, by kind of row and way of predicting: their sizes, their bias, the worst.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from statistics import median
from typing import NamedTuple

from kvprefetch.checks import InputError
from kvprefetch.measured import Kind, Way
from kvprefetch.validation import Prediction

KINDS = {  # as tables and charts name them
    Kind.RESIDENT: "resident: all KV on the GPU",
    Kind.ONDEMAND: "on-demand",
    Kind.NEVER_WAITING: "never-waiting: a bound",
    Kind.ONE_AHEAD: "one-ahead: a real pipeline",
}
WHERE = {  # as sentences name them
    Kind.RESIDENT: "with all KV on the GPU",
    Kind.ONDEMAND: "on demand",
    Kind.NEVER_WAITING: "where no kernel waits for a copy",
    Kind.ONE_AHEAD: "in a real pipeline one ahead",
}
WAYS = {
    Way.LAW: "law alone, measured times in",
    Way.REFINED: "model and card, refined terms",
    Way.FIRST_ORDER: "model and card, first order",
}


@dataclass(frozen=True)
class Accuracy:
    """The errors of the rows of one kind, predicted one way."""

    kind: Kind
    way: Way
    errors_pct: tuple[float, ...]  # signed: below 0, the step was predicted too fast

    @property
    def median_pct(self) -> float:
        """The median of the errors' sizes."""
        return median(map(abs, self.errors_pct))

    @property
    def bias_pct(self) -> float:
        """The median of the signed errors."""
        return median(self.errors_pct)

    @property
    def worst_pct(self) -> float:
        """The signed error of the largest size."""
        return max(self.errors_pct, key=abs)


def accuracies(made: Iterable[Prediction]) -> tuple[Accuracy, ...]:
    """The errors by kind and way, in the order of their definition; none where nothing was predicted."""
    made = list(made)
    found = (
        Accuracy(kind, way, tuple(each.error_pct for each in made if (each.row.kind, each.way) == (kind, way)))
        for kind in Kind
        for way in Way
    )
    return tuple(each for each in found if each.errors_pct)


def accuracy(made: Iterable[Prediction], kind: Kind, way: Way) -> Accuracy:
    """The errors of one kind and way. Raises InputError where nothing was predicted."""
    for each in accuracies(made):
        if (each.kind, each.way) == (kind, way):
            return each
    raise InputError(f"measurements: no {kind} row is predicted by {way}")


class Cloud(NamedTuple):
    """Rows of one kind, measured and predicted, as a chart takes them."""

    kind: Kind
    measured_ms: tuple[float, ...]
    predicted_ms: tuple[float, ...]


def of_way(made: Iterable[Prediction], way: Way) -> list[Prediction]:
    """The predictions made one way, by kind, in the order that kinds are defined."""
    order = list(Kind)
    return sorted((each for each in made if each.way is way), key=lambda each: order.index(each.row.kind))


def clouds(made: Iterable[Prediction], way: Way) -> list[Cloud]:
    """The predictions made one way, a cloud for each kind."""
    found = []
    for kind, rows in groupby(of_way(made, way), key=lambda each: each.row.kind):
        steps = [(1e3 * each.row.step_s, 1e3 * each.step_s) for each in rows]
        found.append(Cloud(kind, *zip(*steps, strict=True)))
    return found


def percent(value: float, digits: int = 1) -> str:
    """ "5.6 %", not to be broken between the number and its sign."""
    return f"{value:.{digits}f}\N{NO-BREAK SPACE}%"


def signed(error_pct: float) -> str:
    """ "5.6 % too slow", "12.0 % too fast"; "exact" where it rounds to neither."""
    if abs(error_pct) < 0.05:
        return "exact"
    return f"{percent(abs(error_pct))} too {'slow' if error_pct > 0 else 'fast'}"


def of_kind(made: Iterable[Prediction], way: Way, kind: Kind) -> list[Prediction]:
    """The predictions of one kind of row, made one way."""
    return [each for each in of_way(made, way) if each.row.kind is kind]


def side_by_side(made: Iterable[Prediction], kind: Kind) -> list[tuple[Prediction | None, Prediction]]:
    """Each row of one kind in refined terms, None where it is not judged so, and in first order."""
    made = list(made)
    refined = {(each.document.slug, each.row): each for each in of_kind(made, Way.REFINED, kind)}
    firsts = of_kind(made, Way.FIRST_ORDER, kind)
    return [(refined.get((first.document.slug, first.row)), first) for first in firsts]
