"""What do the rows themselves say of a miss? Measured steps asked a second question, never used to predict.

The shares of the HBM rate that steps without a link reach, the bytes that were counted, and what a
pipeline would take if no copy ran beside the layer it is for.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvprefetch.configs import FIRST_ORDER, GB, refined
from kvprefetch.measured import Document, Kind, Measurement, Way
from kvprefetch.measurements import documents
from kvprefetch.validation import comparison, one_buffer_step, predictions


@dataclass(frozen=True)
class Streaming:
    """What the engine's steps with all KV on the GPU say of its reading, where nothing else takes time."""

    document: Document
    fixed_ms: float  # of a step without a cache
    weights: float  # share of the card's stated HBM rate
    attention: float


@dataclass(frozen=True)
class Bytes:
    """What crossed the link, and what the planner counts for it."""

    row: Measurement
    moved: float
    planned: float

    @property
    def short_pct(self) -> float:
        """How much of what moved the planner leaves out, in per cent."""
        return 100 * (1 - self.planned / self.moved)


@dataclass(frozen=True)
class OneBuffer:
    """A pipeline's row, and what it would take if no copy ran beside the layer it is for."""

    row: Measurement
    ideal_s: float  # as predicted
    alone_s: float

    @property
    def ideal_pct(self) -> float:
        return 100 * (self.ideal_s / self.row.step_s - 1)

    @property
    def alone_pct(self) -> float:
        return 100 * (self.alone_s / self.row.step_s - 1)


def streaming(document: Document) -> Streaming:
    """The line through a document's shortest and longest resident step, as shares of the card's rate."""
    rows = sorted((row for row in document.rows if row.kind is Kind.RESIDENT), key=lambda row: row.ctx_len)
    first, last = rows[0], rows[-1]
    slope = (last.step_s - first.step_s) / (last.ctx_len - first.ctx_len)
    fixed = first.step_s - slope * first.ctx_len
    rate, model = document.card.config.hbm_gb_s * GB, document.model.config
    weights = sum(layer.weight_bytes for layer in model.layers) / (fixed * rate)
    return Streaming(document, 1e3 * fixed, weights, model.kv_bytes(1, kv_dtype=document.kv_dtype) / (slope * rate))


def streamings() -> list[Streaming]:
    """That of every document with a card and two resident steps or more."""
    return [
        streaming(each) for each in documents() if each.card and sum(row.kind is Kind.RESIDENT for row in each.rows) > 1
    ]


def moved_bytes() -> list[Bytes]:
    """Every row whose bytes were counted, against what the planner counts."""
    return [
        Bytes(row, row.moved_bytes, comparison(each, row, FIRST_ORDER).offloaded_bytes)
        for each in documents()
        for row in each.rows
        if each.model and row.moved_bytes
    ]


def one_buffers() -> list[OneBuffer]:
    """Every pipeline's row in refined terms, with its ring and with one buffer."""
    rows = [each for each in predictions() if (each.row.kind, each.way) == (Kind.ONE_AHEAD, Way.REFINED)]
    steps = [comparison(each.document, each.row, refined(each.document.card.config)) for each in rows]
    return [
        OneBuffer(each.row, each.step_s, one_buffer_step(step.compute, step.transfer))
        for each, step in zip(rows, steps, strict=True)
    ]
