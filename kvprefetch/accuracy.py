"""How accurate has each kind of prediction been?

The errors of `validation`, by kind of row and way of predicting: their sizes, their bias, the worst.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from kvprefetch.configs import Terms
from kvprefetch.measured import Kind, Way
from kvprefetch.validation import Prediction, predictions

KINDS = {  # as a sentence and a table name them
    Kind.RESIDENT: "all KV on the GPU",
    Kind.ONDEMAND: "on demand",
    Kind.NEVER_WAITING: "copies that nothing waits for",
    Kind.ONE_AHEAD: "a real pipeline one ahead",
}
WAYS = {
    Way.LAW: "law alone, measured times in",
    Way.REFINED: "model and card, refined terms",
    Way.FIRST_ORDER: "model and card, first order",
}
PAGE = "../validation/report.html"  # from another report's folder


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
    """The errors of one kind and way. Raises StopIteration where nothing was predicted."""
    return next(each for each in accuracies(made) if (each.kind, each.way) == (kind, way))


def signed(percent: float) -> str:
    """ "5.6 % too slow", "12.0 % too fast"; "exact" where it rounds to neither."""
    if abs(percent) < 0.05:
        return "exact"
    return f"{abs(percent):.1f} % too {'slow' if percent > 0 else 'fast'}"


def track_record(terms: Terms) -> str:
    """How accurate a prediction in these terms has been, as Markdown, with a link to each row."""
    way = Way.REFINED if terms.kv_read and terms.weight_efficiency < 1 else Way.FIRST_ORDER
    judged = [accuracy(predictions(), kind, way) for kind in (Kind.ONDEMAND, Kind.ONE_AHEAD)]
    parts = [
        f"{each.median_pct:.0f} % for {KINDS[each.kind]} (median of {len(each.errors_pct)}; at worst "
        f"{signed(each.worst_pct)})"
        for each in judged
    ]
    which = "refined terms" if way is Way.REFINED else "first order"
    if way is Way.FIRST_ORDER and terms.kv_read:
        which = "first order, to which terms without the card's efficiencies are closest,"
    return (
        f"How accurate this kind of prediction has been: against published measurements, all of one card, {which} missed "
        f"the step by {' and by '.join(parts)}. [The validation]({PAGE}) shows every row and what is missing."
    )
