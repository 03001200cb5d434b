"""What do the figures of a fleet come to? Its metrics, the rows of its tables, and its checks.

n* crossover; "must offload" is the first context whose KV no longer fits on the GPU beside the weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from kvprefetch.capacity import fits, usable_bytes
from kvprefetch.catalog import CatalogEntry
from kvprefetch.configs import HardwareProfile, ModelConfig
from kvprefetch.fleet import Fleet
from kvprefetch.grid import Standing
from kvprefetch.layers import MOST_CTX
from kvprefetch.planner import Comparison, compare
from kvprefetch.termtext import read_terms
from kvprefetch.verify import ROUNDING, Check


@dataclass(frozen=True)
class Pair:
    """One pair's limits: contexts in tokens, latencies in ms."""

    model: str  # slug
    card: str  # slug
    crossover_ctx: int | None  # null: the link never is the bound
    weights_fit: bool | None  # null: capacity not known
    resident_ctx: int | None  # the largest that stays on the GPU; null: every one, or not known
    offload_ctx: int | None  # the first that must offload; null: there is none
    offload_ms: float | None  # prefetch step there
    engine_ms: float  # step with all KV on the GPU
    link_in_time_ctx: int  # the largest whose whole KV the link brings within the target
    reach_ctx: int  # the largest that fits, meets the target, and that the model was made for


@dataclass(frozen=True)
class Best:
    """The card on which a model meets the target at the longest context; null where on none."""

    model: str
    card: str | None
    reach_ctx: int


@dataclass(frozen=True)
class FleetMetrics:
    """The content of the page's metrics.json."""

    title: str
    batch: int
    depth: int
    terms: str
    reserve: float
    target_ms: float
    pairs: tuple[Pair, ...]
    best: tuple[Best, ...]
    unserved: tuple[str, ...]  # models whose cache no card's link brings in time once it must leave the GPU


def fleet_metrics(fleet: Fleet) -> FleetMetrics:
    """The figures of the page that `fleet` asks for."""
    return FleetMetrics(
        f"The fleet: {fleet.title}",
        *(fleet.batch, fleet.depth, fleet.terms, fleet.reserve, float(fleet.target_ms)),
        pairs=tuple(
            Pair(model.slug, card.slug, **{name: getattr(each, name) for name in list(Pair.__dataclass_fields__)[2:]})
            for model, card, each in pairs(fleet)
        ),
        best=tuple(
            Best(model.slug, None if k is None else fleet.cards[k].slug, 0 if k is None else row[k].reach_ctx)
            for model, row, k in zip(fleet.models, fleet.standings, map(best_card, fleet.standings), strict=True)
        ),
        unserved=tuple(unserved(fleet)),
    )


def best_card(row: Sequence[Standing]) -> int | None:
    """The index of the card with the longest context in time, of several the fastest; None where none is in time."""
    best = max(range(len(row)), key=lambda k: (row[k].reach_ctx, -row[k].engine_ms))
    return best if row[best].reach_ctx else None


def unserved(fleet: Fleet) -> list[str]:
    """The models that must offload somewhere and that no card's link serves in time there."""
    rows = zip(fleet.models, fleet.standings, strict=True)
    return [
        model.slug
        for model, row in rows
        if any(each.offload_ctx for each in row) and not any(each.link_serves for each in row)
    ]


def heat(fleet: Fleet, name: str) -> np.ndarray:
    """One of the standings' contexts as floats of shape (models, cards), NaN where there is none."""
    return np.array([[getattr(each, name) or np.nan for each in row] for row in fleet.standings], dtype=float)


def closest_card(row: Sequence[Standing]) -> int | None:
    """The index of the card whose step at the first context that must offload is the shortest; None where none must."""
    must = [k for k, each in enumerate(row) if each.offload_ctx]
    return min(must, key=lambda k: row[k].offload_ms, default=None)


def ratios(fleet: Fleet) -> np.ndarray:
    """First context that must offload over crossover, of the pairs that have both."""
    both = heat(fleet, "offload_ctx") / heat(fleet, "crossover_ctx")
    return both[~np.isnan(both)]


def pairs(fleet: Fleet) -> Iterator[tuple[CatalogEntry[ModelConfig], CatalogEntry[HardwareProfile], Standing]]:
    """Every pair with its limits, model by model."""
    for model, row in zip(fleet.models, fleet.standings, strict=True):
        yield from ((model, card, each) for card, each in zip(fleet.cards, row, strict=True))


def fleet_checks(fleet: Fleet) -> tuple[Check, ...]:
    """Each limit looked at from both sides: it holds at its context, and not one token before."""
    sides = list(_sides(fleet))
    found = {claim: [holds for other, holds in sides if other == claim] for claim, _ in sides}
    return tuple(
        Check(claim, f"{sum(holds)} pairs", f"{len(holds)} pairs", all(holds)) for claim, holds in found.items()
    )


def _sides(fleet: Fleet) -> Iterator[tuple[str, bool]]:
    """Each claim about each pair, and whether it holds."""
    for model, card, each in pairs(fleet):
        terms, usable = read_terms(fleet.terms, card.config), usable_bytes(card.config, fleet.reserve)
        at = partial(compare, model.config, card.config, batch=fleet.batch, depth=fleet.depth, terms=terms)
        stays = partial(fits, model.config, usable, batch=fleet.batch)
        for claim, limit, holds in (
            ("link as long as the engine from the crossover on", each.crossover_ctx, lambda n, a=at: _leads(a(n))),
            (
                "link too late beyond the longest context in time",
                each.link_in_time_ctx + 1,
                lambda n, a=at: a(n).prefetch.total_ms > fleet.target_ms,
            ),
            (
                "no room on the GPU from the first context that must offload",
                each.offload_ctx,
                lambda n, s=stays, t=terms: not s(n, terms=replace(t, resident_tokens=n)),
            ),
        ):
            if limit is not None and limit <= MOST_CTX:
                yield claim, holds(limit) and (limit == 1 or not holds(limit - 1))


def _leads(step: Comparison) -> bool:
    return step.transfer_ms >= step.compute_ms * (1 - ROUNDING)
