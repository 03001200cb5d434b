"""What does the page of a fleet say? Its sentences and the texts of its tables, computed from its figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kvprefetch.catalog import CatalogEntry
from kvprefetch.configs import ModelConfig
from kvprefetch.figures import best_card, closest_card, heat, pairs, ratios, unserved
from kvprefetch.fleet import Fleet
from kvprefetch.formats import grouped, milliseconds, tokens
from kvprefetch.layers import MOST_CTX
from kvprefetch.notebook import plain
from kvprefetch.prose import ahead
from kvprefetch.termtext import read_terms

MOST_NAMED = 12  # models that one sentence names
NONE = "–"  # in a table


@dataclass(frozen=True)
class BestRow:
    """One model on its best card, as the table shows it."""

    card: str
    reach: str
    engine: str
    resident: str
    link: str
    made_for: str


@dataclass(frozen=True)
class ClosestRow:
    """One model on the card whose link comes closest to the target once the cache must leave."""

    model: str
    card: str
    offload: str
    made_for: str
    latency: str
    over: str


def question(fleet: Fleet) -> str:
    """What is asked of all pairs."""
    return (
        f"The KV cache is in host memory, and prefetch looks {ahead(fleet.depth)}. For every model on every card: from "
        "which context on must the cache leave the GPU, and is the link the bound by then? Which card serves a model "
        f"longest within {fleet.target_ms:g} ms a step, and which models can no link serve? A pair's own "
        f"[report](../index.html) shows how its figures come about.{_reads(fleet)}"
    )


def _reads(fleet: Fleet) -> str:
    if read_terms(fleet.terms, fleet.cards[0].config).kv_read:
        return ""
    return (
        " In first order attention's own read of the cache is left out, which a step with all KV on the GPU pays for "
        "at long contexts: TERMS=refined counts it."
    )


def gap(fleet: Fleet) -> str:
    """How far below the first context that must offload does the crossover lie?"""
    times = ratios(fleet)
    if not len(times):
        return "No pair has both a crossover and a context that must offload."
    below = int((times > 1).sum())
    counted = times[times > 1] if below else times
    low, high = _times(counted.min()), _times(counted.max())
    which = "In the one pair that has both" if len(times) == 1 else f"In {{}} of the {len(times)} pairs that have both"
    span = low if low == high else f"{low} to {high}"
    if not below:
        return (
            f"{which.format('none')}, the crossover {'does not lie' if len(times) == 1 else 'lies'} below the first "
            f"context that must offload, which is {span} times as long."
        )
    return (
        f"{which.format('each' if below == len(times) else below)}, the crossover lies below the first context that "
        f"must offload, which is {span} times as long: where the cache has to leave the GPU, the link is already the "
        "bound, and prefetch hides only a part."
    )


def beyond(fleet: Fleet) -> Iterator[str]:
    """In how many pairs does the cache never come to leave, and in how many does not even the model fit?"""
    known = [pair for pair in pairs(fleet) if pair[0].config.max_position_embeddings and pair[2].offload_ctx]
    longer = sum(each.offload_ctx > model.config.max_position_embeddings for model, _, each in known)
    if longer:
        yield (
            f"In {_of(longer, len(known), 'pair')} with such a context, it is longer than the model was made for: at "
            f"batch {fleet.batch}, that cache never has to leave the GPU."
        )
    homeless = sum(each.weights_fit is False for *_, each in pairs(fleet))
    if homeless:
        yield f"In {_of(homeless, len(fleet.models) * len(fleet.cards), 'pair')} not even the weights fit."


def ratio_note(fleet: Fleet) -> tuple[str, str]:
    """The median of first context to offload over crossover, for a panel."""
    times = ratios(fleet)
    if not len(times):
        return NONE, "no pair has both"
    return f"{_times(float(np.median(times)))} times", f"the crossover, median of {_count(len(times), 'pair')}"


def span(fleet: Fleet, name: str) -> str:
    """The smallest and the largest of the standings' contexts of this name."""
    values = heat(fleet, name)
    if np.isnan(values).all():
        return "never"
    low, high = int(np.nanmin(values)), int(np.nanmax(values))
    return tokens(low) if low == high else f"{grouped(low)} to {grouped(high)}"


def in_time_note(fleet: Fleet) -> tuple[str, str]:
    """How many models have a card that meets the target, for a panel."""
    found = sum(best_card(row) is not None for row in fleet.standings)
    return _count(found, "model"), f"of {len(fleet.models)}, at some context on some card"


def in_time(fleet: Fleet) -> str:
    """For how many models is the target met, and on which card most often best?"""
    best = [best_card(row) for row in fleet.standings]
    found = [fleet.cards[k].slug for k in best if k is not None]
    target = f"{fleet.target_ms:g} ms a step"
    if not found:
        return f"No card serves any of these models within {target}."
    name = max(dict.fromkeys(found), key=found.count)
    return (
        f"Within {target}, {_of(len(found), len(best), 'model')} can be served; the best card, which reaches the "
        "longest context and of several is the fastest, is most often "
        f"{plain(name)} ({_count(found.count(name), 'model')})."
    )


def served(fleet: Fleet) -> str:
    """Which models does no card's link serve once the cache must leave the GPU?"""
    missing, target = unserved(fleet), f"{fleet.target_ms:g} ms"
    must = [model for model, row in zip(fleet.models, fleet.standings, strict=True) if any(e.offload_ctx for e in row)]
    if not must:
        return "None of these models must leave a card on which its weights fit."
    if not missing:
        return f"Every model that must offload has a card whose link brings its whole cache within {target}."
    return (
        f"Where the cache must leave the GPU, no card's link brings all of it within {target} for "
        f"{_of(len(missing), len(must), 'model')}: {_names(missing)}.{_comes_to_it(fleet)}"
    )


def _comes_to_it(fleet: Fleet) -> str:
    """Which models must leave some card at a context that they were made for."""
    found = {
        model.slug: None
        for model, _, each in pairs(fleet)
        if each.offload_ctx and each.offload_ctx <= (model.config.max_position_embeddings or MOST_CTX)
    }
    at = f" At batch {fleet.batch}, and at contexts that it was made for,"
    return f"{at} {'none comes to that' if not found else f'it is so for {_names([*found])}'}."


def exceptions(fleet: Fleet) -> Iterator[str]:
    """Pairs whose link does serve, and models whose weights fit no card; a sentence each, where there are any."""
    serving = [f"{model.slug} on {card.slug}" for model, card, each in pairs(fleet) if each.link_serves]
    if serving:
        yield f"A link keeps up, at the first context that must offload, for {_names(serving)}."
    rows = zip(fleet.models, fleet.standings, strict=True)
    homeless = [model.slug for model, row in rows if all(each.weights_fit is False for each in row)]
    if homeless:
        yield f"The weights alone fit none of these cards for {_names(homeless)}."


def heatmap_alt(fleet: Fleet) -> str:
    """What the heatmap shows, for those who cannot see it."""
    size = f"{_count(len(fleet.models), 'model')} by {_count(len(fleet.cards), 'card')}"
    return (
        f"A grid of {size}, two halves a cell. The left halves show crossovers, {span(fleet, 'crossover_ctx')}; the "
        f"right halves the first contexts that must offload, {span(fleet, 'offload_ctx')}; dark is short and bright is "
        f"long. {gap(fleet)}"
    )


def best_rows(fleet: Fleet) -> list[BestRow]:
    """A row for each model: its best card, and how far what serves it there."""
    rows = []
    for model, row in zip(fleet.models, fleet.standings, strict=True):
        best = best_card(row)
        if best is None:
            rows.append(BestRow(NONE, NONE, NONE, NONE, NONE, _made_for(model)))
            continue
        each = row[best]
        resident = MOST_CTX if each.resident_ctx is None else each.resident_ctx
        contexts = (
            _context(each.reach_ctx),
            f"{each.engine_ms:.2f}",
            _context(resident),
            _context(each.link_in_time_ctx),
        )
        alike = [
            card.slug
            for card, other in zip(fleet.cards, row, strict=True)
            if (other.reach_ctx, other.engine_ms) == (each.reach_ctx, each.engine_ms)
        ]
        rows.append(BestRow(", ".join(alike), *contexts, _made_for(model)))
    return rows


def closest_rows(fleet: Fleet) -> list[ClosestRow]:
    """A row for each model that must offload somewhere."""
    rows = []
    for model, row in zip(fleet.models, fleet.standings, strict=True):
        k = closest_card(row)
        if k is not None:
            each, over = row[k], row[k].offload_ms / fleet.target_ms if fleet.target_ms else np.inf
            latency = milliseconds(each.offload_ms)
            contexts = grouped(each.offload_ctx), _made_for(model)
            rows.append(ClosestRow(model.slug, fleet.cards[k].slug, *contexts, latency, _times(over)))
    return rows


def crossovers(fleet: Fleet, card: int) -> list[str]:
    """The crossover of every model on one card, for a table."""
    return [_or_never(row[card].crossover_ctx) for row in fleet.standings]


def offloads(fleet: Fleet, card: int) -> list[str]:
    """The first context that must offload of every model on one card, for a table."""
    return [
        "no fit" if row[card].weights_fit is False
        else "not known" if row[card].weights_fit is None
        else _or_never(row[card].offload_ctx)
        for row in fleet.standings
    ]  # fmt: skip


def _or_never(ctx_len: int | None) -> str:
    return "never" if ctx_len is None else grouped(ctx_len)


def _made_for(model: CatalogEntry[ModelConfig]) -> str:
    limit = model.config.max_position_embeddings
    return grouped(limit) if limit else NONE


def _context(ctx_len: int) -> str:
    return "every one" if ctx_len >= MOST_CTX else grouped(ctx_len) if ctx_len else "none"


def _times(ratio: float) -> str:
    return f"{ratio:.2g}" if ratio < 100 else grouped(float(f"{ratio:.2g}"))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _of(number: int, all_of_them: int, noun: str) -> str:
    return f"all {_count(number, noun)}" if number == all_of_them > 1 else f"{number} of {_count(all_of_them, noun)}"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return plain(", ".join(names[:MOST_NAMED])) + more
