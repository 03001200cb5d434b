"""What is a measured decode step, and the document that it stands in?

A row is of one kind, and kinds are judged apart; a way is how a row is predicted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum

from kvprefetch.catalog import CatalogEntry
from kvprefetch.checks import InputError, line_of_text, number, one_of, refusal, settle, whole_number
from kvprefetch.configs import ACHIEVED, GB, LEAST_FIGURE, MOST_FIGURE, HardwareProfile, ModelConfig
from kvprefetch.layers import KV_BYTES, MOST_BATCH, MOST_CTX, MOST_LAYERS, MOST_PARAMS
from kvprefetch.schedule import MOST_DEPTH

MOST_TEXT = 1_000  # characters of one text
LEAST_MS, MOST_MS = 1e-6, 1e7
LEAST_RATE, MOST_RATE = 1e-3, 1e7  # tokens a second


class Kind(StrEnum):
    """What was measured; a prediction is judged with its like."""

    RESIDENT = "resident"  # all KV on the GPU
    ONDEMAND = "on-demand"
    NEVER_WAITING = "never-waiting"  # the copies run, and no kernel waits for them: a bound, with wrong output
    ONE_AHEAD = "one-ahead"  # a real pipeline that fetches ahead


class Way(StrEnum):
    """How a row is predicted."""

    LAW = "law"  # from the measured time of the engine and of the link
    REFINED = "refined"  # from model and card, with all that the card's file states it achieves
    FIRST_ORDER = "first-order"  # from model and card, stated rates alone


@dataclass(frozen=True)
class Copy:
    """What crosses one link in a step."""

    bytes: float
    gb_s: float  # the link's measured rate

    def __post_init__(self) -> None:
        settle(self, number, "bytes", least=1, most=MOST_PARAMS)
        settle(self, number, "gb_s", least=LEAST_FIGURE, most=MOST_FIGURE)


@dataclass(frozen=True)
class Measurement:
    """One decode step as measured."""

    name: str
    kind: Kind
    ctx_len: int  # tokens in the cache of one sequence
    tok_s: float  # tokens a second, of all sequences together
    batch: int = 1
    depth: int = 1  # layers fetched ahead, where the kind is one-ahead: buffers less one
    compute_ms: float | None = None  # the engine's time in it; None: not measured
    copy_ms: float | None = None  # the link's time in it; None: not measured
    copies: tuple[Copy, ...] = ()  # what crossed, where the time was not measured
    kv_dtype: str | None = None  # None: the document's
    pcie_gb_s: float | None = None  # the link's rate in these conditions; None: the card's
    moved_bytes: float | None = None  # what was counted to cross the link; None: not counted

    def __post_init__(self) -> None:
        line_of_text("name", self.name, 60)
        object.__setattr__(self, "kind", Kind(one_of("kind", self.kind, list(Kind))))
        settle(self, whole_number, "ctx_len", most=MOST_CTX)
        settle(self, number, "tok_s", least=LEAST_RATE, most=MOST_RATE)
        settle(self, whole_number, "batch", most=MOST_BATCH)
        settle(self, whole_number, "depth", most=MOST_DEPTH)
        for time in ("compute_ms", "copy_ms"):
            if getattr(self, time) is not None:
                settle(self, number, time, least=LEAST_MS, most=MOST_MS)
        if self.copies and self.copy_ms is not None:
            raise InputError("copies: not together with copy_ms, which says the same")
        if self.kv_dtype is not None:
            one_of("kv_dtype", self.kv_dtype, KV_BYTES)
        if self.pcie_gb_s is not None:
            settle(self, number, "pcie_gb_s", least=LEAST_FIGURE, most=MOST_FIGURE)
        if self.moved_bytes is not None:
            settle(self, number, "moved_bytes", least=1, most=MOST_PARAMS)

    @property
    def step_s(self) -> float:
        """Seconds of one step: batch / rate."""
        return self.batch / self.tok_s

    @property
    def link_s(self) -> float | None:
        """Seconds the link is busy in it: measured, or bytes / measured rate; None where neither is known."""
        if self.copy_ms is not None:
            return self.copy_ms / 1e3
        return sum(copy.bytes / (copy.gb_s * GB) for copy in self.copies) if self.copies else None


@dataclass(frozen=True)
class Document:
    """One published document: where it is, what was run, and its rows."""

    slug: str  # the file's stem
    source: str
    conditions: str
    trust: str
    layers: int  # of the model's stack
    caching_layers: int  # those of them that hold a cache, evenly spread, the last among them
    rows: tuple[Measurement, ...]
    within_pct: Mapping[tuple[Kind, Way], float]  # how far a prediction may miss: a key for each that is made
    gives: tuple[str, ...] = ()  # figures of the card's file that come from this document
    model: CatalogEntry[ModelConfig] | None = None  # None: the law alone is judged
    card: CatalogEntry[HardwareProfile] | None = None
    kv_dtype: str = "fp16"

    def __post_init__(self) -> None:
        for text in ("source", "conditions", "trust"):
            line_of_text(text, getattr(self, text), MOST_TEXT)
        settle(self, whole_number, "layers", most=MOST_LAYERS)
        settle(self, whole_number, "caching_layers", most=self.layers)
        if self.layers % self.caching_layers:
            raise refusal("caching_layers", self.caching_layers, f"a divisor of layers, {self.layers}")
        for figure in self.gives:
            one_of("gives", figure, ACHIEVED)
        one_of("kv_dtype", self.kv_dtype, KV_BYTES)
        if (self.model is None) != (self.card is None):
            raise InputError("model and card: both, or neither")


@dataclass(frozen=True)
class Aside:
    """A public rate that is no target."""

    name: str
    measured: str
    source: str
    why: str  # it is none

    def __post_init__(self) -> None:
        for field in fields(self):
            line_of_text(field.name, getattr(self, field.name), MOST_TEXT)
