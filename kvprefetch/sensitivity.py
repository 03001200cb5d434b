"""How sure is it? What other rates, another link or a smaller cache would make of the crossover and the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kvprefetch.configs import FIRST_ORDER, LEAST_FIGURE, MOST_FIGURE, HardwareProfile, ModelConfig, Terms
from kvprefetch.planner import compare, contexts_in_order, crossover_ctx, steps_at

SWING = 0.2  # of a rate, either way
KV_DTYPES = ("fp8", "q4_0")  # smaller caches


@dataclass(frozen=True)
class Point:
    """What one change comes to."""

    change: str
    crossover_ctx: int | None
    prefetch_ms: float


@dataclass(frozen=True)
class Swing:
    """One figure of the pair, and what two other values of it come to."""

    figure: str
    low: Point
    high: Point


def swings(
    model: ModelConfig,
    hw: HardwareProfile,
    ctx_len: int,
    batch: int = 1,
    depth: int = 1,
    terms: Terms = FIRST_ORDER,
) -> tuple[Swing, ...]:
    """HBM and PCIe rate 20 % down and up, and the cache in 8 and in 4 bits. Raises InputError like `compare`."""

    def point(change: str, card: HardwareProfile, counted: Terms) -> Point:
        step = compare(model, card, ctx_len, batch, depth, counted)
        return Point(change, crossover_ctx(model, card, batch, counted), step.prefetch.total_ms)

    def rate(figure: str, name: str) -> Swing:
        points = (
            point(f"{100 * change:+.0f} %", replace(hw, **{name: _within(getattr(hw, name) * (1 + change))}), terms)
            for change in (-SWING, SWING)
        )
        return Swing(figure, *points)

    smaller = (point(kv_dtype, hw, replace(terms, kv_dtype=kv_dtype)) for kv_dtype in KV_DTYPES)
    return rate("HBM rate", "hbm_gb_s"), rate("PCIe rate", "pcie_gb_s"), Swing("KV dtype", *smaller)


def _within(figure: float) -> float:
    """As far as a profile's figures go."""
    return min(max(figure, LEAST_FIGURE), MOST_FIGURE)


def map_contexts(crossover: int | None, resident_tokens: int) -> np.ndarray:
    """Contexts for a map: evenly spaced on a log axis, and closer beyond a resident window, where the reduction is."""
    around = crossover or 0
    wide = np.geomspace(128, max(65536, 4 * (around - resident_tokens), 2 * around), 32)
    beyond = resident_tokens + np.geomspace(1, max(2, 8 * (around - resident_tokens)), 24) if resident_tokens else []
    return np.unique(np.concatenate([wide, beyond]).astype(int))


def reduction_map(
    model: ModelConfig,
    hw: HardwareProfile,
    contexts: Sequence[int],
    rates: Sequence[float],
    batch: int = 1,
    depth: int = 1,
    terms: Terms = FIRST_ORDER,
) -> np.ndarray:
    """The reduction in percent, a row a link rate in GB/s, a column a context; shape (rates, contexts)."""
    columns = contexts_in_order(contexts)

    def reduction_pct(rate: float) -> np.ndarray:
        return 100 * steps_at(model, replace(hw, pcie_gb_s=rate), columns, batch, depth, terms).reduction

    return np.array([reduction_pct(rate) for rate in rates])
