"""How many tokens a second, with which batch, and how long does a whole generation take?

tokens/s = b / step. Symbols: n context, b batch, g tokens generated, n0 the context they start from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

import numpy as np

from kvprefetch.capacity import largest_offloaded_batch, largest_resident_batch
from kvprefetch.checks import whole_number
from kvprefetch.configs import FIRST_ORDER, GB, HardwareProfile, ModelConfig, Terms
from kvprefetch.layers import MOST_CTX
from kvprefetch.planner import Comparison, Steps, compare, steps_at
from kvprefetch.roofline import offloaded_bytes

STRAIGHT = 1e-12  # relative; how near the middle of a straight piece lies to the mean of its ends
MOST_GENERATED = 10**7  # tokens


@dataclass(frozen=True)
class Generation:
    """A whole generation under one policy."""

    tokens: int  # of each sequence
    batch: int
    total_s: float
    first_s: float  # step
    last_s: float  # step

    @property
    def tokens_per_s(self) -> float:
        """The average over all sequences and steps."""
        return self.batch * self.tokens / self.total_s


@dataclass(frozen=True)
class Served:
    """How many tokens a second one way of serving decodes."""

    way: str
    batch: int
    is_largest: bool  # that fits
    step_ms: float

    @property
    def tokens_per_s(self) -> float:
        return self.batch / self.step_ms * 1e3


def served(
    model: ModelConfig,
    hw: HardwareProfile,
    usable: Fraction,
    ctx_len: int,
    batch: int = 1,
    depth: int = 1,
    terms: Terms = FIRST_ORDER,
) -> tuple[Served, ...]:
    """The batch asked for and the largest that fit, by prefetch and with all KV on the GPU; only what fits.

    A step takes less than twice as long for twice the batch, so the largest batch that fits is the best.
    """
    host = None if hw.host_capacity_gb is None else hw.host_capacity_gb * GB
    resident = largest_resident_batch(model, usable, ctx_len, terms.kv_dtype)
    offloaded = largest_offloaded_batch(model, usable, ctx_len, depth, terms, host)

    def rows(way: str, largest: int, latency: Callable[[Comparison], float]) -> Iterator[Served]:
        for each in sorted({min(batch, largest), largest} - {0}):
            step = compare(model, hw, ctx_len, each, depth, terms)
            yield Served(way, each, each == largest, latency(step))

    return (
        *rows("all KV on the GPU", resident, lambda step: step.engine_ms),
        *rows("prefetch", offloaded, lambda step: step.prefetch.total_ms),
    )


def link_ceiling(model: ModelConfig, hw: HardwareProfile, ctx_len: int, terms: Terms = FIRST_ORDER) -> float | None:
    """Tokens a second that no batch exceeds: the link's rate over the bytes it carries for each sequence.

    None where nothing is offloaded.
    """
    fetched = float(offloaded_bytes(model.layers, whole_number("ctx_len", ctx_len, MOST_CTX), 1, terms).sum())
    return hw.pcie_gb_s * GB * terms.pcie_efficiency / fetched if fetched else None


def generation(
    model: ModelConfig,
    hw: HardwareProfile,
    ctx_len: int,
    generated: int,
    batch: int = 1,
    depth: int = 1,
    terms: Terms = FIRST_ORDER,
) -> tuple[Generation, Generation, Generation]:
    """With all KV on the GPU, on demand and with prefetch: `generated` steps, the first with `ctx_len` tokens cached.

    total = step(n0) + step(n0 + 1) + ... + step(n0 + g - 1)

    Raises InputError where a context or their number is out of range.
    """
    generated = whole_number("generate", generated, MOST_GENERATED)
    last = whole_number("ctx_len", ctx_len, MOST_CTX - generated + 1) + generated - 1
    bends = {terms.resident_tokens + 1, *(layer.window + 1 for layer in model.layers if layer.window)}
    starts = [ctx_len, *sorted(bend for bend in bends if ctx_len < bend <= last), last + 1]

    def summed(step: Callable[[np.ndarray], np.ndarray]) -> float:
        return sum(convex_sum(step, start, following - 1) for start, following in pairwise(starts))

    def steps(contexts: np.ndarray, counted: Terms) -> Steps:
        return steps_at(model, hw, contexts, batch, depth, counted)

    engine = summed(lambda n: steps(n, terms).engine)
    ondemand = summed(lambda n: steps(n, terms).ondemand)
    if terms.cross_token_overlap:  # a difference of two convex steps: of the stack twice, and of the stack once
        once = replace(terms, cross_token_overlap=False)
        prefetch = summed(lambda n: steps(n, terms).prefetch + steps(n, once).prefetch)
        prefetch -= summed(lambda n: steps(n, once).prefetch)
    else:
        prefetch = summed(lambda n: steps(n, terms).prefetch)
    first, final = (compare(model, hw, n, batch, depth, terms) for n in (ctx_len, last))
    return (
        Generation(generated, batch, engine, first.engine_ms / 1e3, final.engine_ms / 1e3),
        Generation(generated, batch, ondemand, first.ondemand.total_s, final.ondemand.total_s),
        Generation(generated, batch, prefetch, first.prefetch.total_s, final.prefetch.total_s),
    )


def convex_sum(step: Callable[[np.ndarray], np.ndarray], first: int, last: int) -> float:
    """The sum of a convex, piecewise linear `step` over the whole contexts first..last, exact but for rounding.

    Where its middle lies on the line through its ends a convex step is that line, and an arithmetic series: so
    the range is halved until every part is straight. `step` takes ascending contexts, each once.
    """
    total, parts = 0.0, np.array([[first, last]])
    while parts.size:
        start, end = parts.T
        middle = (start + end) // 2
        points = np.unique(np.concatenate([start, middle, end]))
        values = step(points)
        at_start, at_middle, at_end = (values[np.searchsorted(points, each)] for each in (start, middle, end))
        share = (middle - start) / np.maximum(1, end - start)
        line = at_start + (at_end - at_start) * share
        straight = np.abs(at_middle - line) <= STRAIGHT * at_end
        series = (at_start + at_end) / 2 * (end - start + 1)
        total += float(series[straight].sum())
        bent = ~straight
        parts = np.concatenate([np.column_stack([start, middle])[bent], np.column_stack([middle + 1, end])[bent]])
    return total
