"""How far are predictions from what others have measured?

Each row of a document is predicted in up to three ways (`Way`), and rows of one kind are judged together.
No constant is fitted to rows that it is judged on: where a document gave the card its efficiencies, the
refined terms are not judged on that document's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from kvprefetch.configs import FIRST_ORDER, Terms, refined
from kvprefetch.measured import Document, Kind, Measurement, Way
from kvprefetch.measurements import documents
from kvprefetch.planner import Comparison, compare
from kvprefetch.schedule import ondemand_step, prefetch_step


@dataclass(frozen=True)
class Prediction:
    """One row, predicted one way."""

    document: Document
    row: Measurement
    way: Way
    step_s: float

    @property
    def error(self) -> float:
        """Predicted over measured, less one: below 0, the step was predicted too fast."""
        return self.step_s / self.row.step_s - 1

    @property
    def error_pct(self) -> float:
        return 100 * self.error

    @property
    def label(self) -> str:
        """The row's name, not to be broken between lines."""
        return self.row.name.replace(" ", "\N{NO-BREAK SPACE}")

    @property
    def judged(self) -> str:
        """The error, and how far it may go: "+5.6 / 6"."""
        return f"{round(self.error_pct, 1) + 0.0:+.1f} / {self.within_pct:g}"  # + 0.0: no -0.0

    @property
    def within_pct(self) -> float:
        """How far the document says that this kind of row may be missed, in this way."""
        return self.document.within_pct[self.row.kind, self.way]


@cache
def predictions(kinds: tuple[Kind, ...] = tuple(Kind), ways: tuple[Way, ...] = tuple(Way)) -> tuple[Prediction, ...]:
    """Every row of these kinds in params/measurements/, in each of `ways` that it can be judged. Raises InputError."""
    return tuple(each for document in documents() for each in predict(document, kinds, ways))


def predict(
    document: Document, kinds: Sequence[Kind] = tuple(Kind), ways: Sequence[Way] = tuple(Way)
) -> Iterator[Prediction]:
    """The rows of one document of these kinds, in those of `ways` that each can be judged."""
    for row in (row for row in document.rows if row.kind in kinds):
        for way in ways:
            step = _step(document, row, way)
            if step is not None:
                yield Prediction(document, row, way, step)


def _step(document: Document, row: Measurement, way: Way) -> float | None:
    if way is Way.LAW:
        return _law(document, row)
    if way is Way.REFINED:
        return None if document.gives else _principles(document, row, refined)
    return _principles(document, row, lambda _: FIRST_ORDER)


def spread(document: Document, row: Measurement) -> tuple[np.ndarray, np.ndarray] | None:
    """The measured engine and link time over the stack, two arrays (L,); None where one was not measured.

    Every layer computes alike; those that hold a cache carry alike, and are evenly spread, the last among them.
    """
    if row.compute_ms is None or row.link_s is None:
        return None
    each = document.layers // document.caching_layers
    caches = np.arange(document.layers) % each == each - 1
    compute = np.full(document.layers, row.compute_ms / 1e3 / document.layers)
    return compute, caches * (row.link_s / document.caching_layers)


def _law(document: Document, row: Measurement) -> float | None:
    """The step from measured times. An engine alone is no law to test."""
    times = spread(document, row)
    if times is None or row.kind is Kind.RESIDENT:
        return None
    compute, transfer = times
    if row.kind is Kind.NEVER_WAITING:
        return float(max(compute.sum(), transfer.sum()))
    return float(ondemand_step(*times) if row.kind is Kind.ONDEMAND else prefetch_step(*times, row.depth))


def _principles(document: Document, row: Measurement, terms_of: Callable[..., Terms]) -> float | None:
    """The step from model and card, in those of the card's terms that `terms_of` takes."""
    if document.model is None or document.card is None:
        return None
    return step_of(comparison(document, row, terms_of(document.card.config)), row.kind)


def comparison(document: Document, row: Measurement, terms: Terms) -> Comparison:
    """What the planner says of the row's model and card, at its context.

    The LM head stays out: the file's bytes, spread over the layers, hold it.
    """
    card = document.card.config
    if row.pcie_gb_s is not None:
        card = replace(card, pcie_gb_s=row.pcie_gb_s)
    terms = replace(terms, kv_dtype=row.kv_dtype or document.kv_dtype, lm_head=False)
    return compare(document.model.config, card, row.ctx_len, row.batch, row.depth, terms)


def one_buffer_step(compute: np.ndarray, transfer: np.ndarray) -> float:
    """Seconds of a step whose only buffer is free again when the layer it serves is done: no copy beside that layer.

    What a pipeline comes to whose copies overlap every layer but the one they are for.
    """
    done = free = 0.0
    for c, t in zip(compute, transfer, strict=True):
        done = max(done, free + t if t else 0.0) + c
        free = done if t else free
    return float(done)


def step_of(compared: Comparison, kind: Kind) -> float:
    """Seconds of the step that a row of this kind measures."""
    return {
        Kind.RESIDENT: compared.engine_ms / 1e3,
        Kind.ONDEMAND: compared.ondemand.total_s,
        Kind.NEVER_WAITING: compared.lower_bound_ms / 1e3,
        Kind.ONE_AHEAD: compared.prefetch.total_s,
    }[kind]
