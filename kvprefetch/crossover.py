"""From which context on does the link need as long as the engine, and where does prefetch save most?

Both are solved, never scanned. Between two contexts at which a window fills or tokens begin to leave the GPU,
sum t and sum c are linear in the context. They are compared in rationals made from the figures' decimal
text: the ceiling of a float quotient is one off on some ties.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import ceil, floor, inf
from typing import NamedTuple

import numpy as np

from kvprefetch.checks import refusal
from kvprefetch.configs import FIRST_ORDER, HardwareProfile, Terms
from kvprefetch.layers import KV_BYTES, MOST_CTX, Layer, step_weight_bytes
from kvprefetch.roofline import layer_times, offloaded_tokens

MOST_SOLVED = 2**53  # tokens; beyond, whole numbers are no longer exact as floats
PARTS = 1024  # of a bisection: three rounds reach any context, and so many cost little more than one


def first_reaching_ctx(
    layers: tuple[Layer, ...], hw: HardwareProfile, batch: int, terms: Terms = FIRST_ORDER, times_compute: int = 1
) -> int | None:
    """The smallest whole context >= 1 at which sum t is at least `times_compute` · sum c; None where none is. Exact."""
    for first, last, lead, slope in _pieces(layers, hw, batch, terms, times_compute):
        if lead < 0 and slope <= 0:
            continue
        reached = first if lead >= 0 else first + ceil(-lead / slope)
        if reached <= last:
            if reached > MOST_SOLVED and times_compute == 1:
                raise refusal("model and hw", f"a crossover near {reached} tokens", f"one of at most {MOST_SOLVED}")
            return reached
    return None


def link_is_bound(
    layers: tuple[Layer, ...], hw: HardwareProfile, ctx_len: np.ndarray, batch: int, terms: Terms = FIRST_ORDER
) -> np.ndarray:
    """Whether sum t is more than sum c at each context: an array of bools like `ctx_len`. Exact."""
    bound = np.zeros(ctx_len.shape, dtype=bool)
    for first, last, lead, slope in _pieces(layers, hw, batch, terms):
        if slope > 0:
            first = max(first, first + floor(-lead / slope) + 1)
        elif lead <= 0:
            continue
        elif slope < 0:
            last = min(last, first + ceil(-lead / slope) - 1)
        bound |= (first <= ctx_len) & (ctx_len <= last)
    return bound


def link_lead(
    layers: tuple[Layer, ...], hw: HardwareProfile, ctx_len: int, batch: int, terms: Terms = FIRST_ORDER
) -> Fraction:
    """sum t - sum c at one context, in nanoseconds. Exact."""
    return _lead(layers, hw, batch, terms)(ctx_len)


def smallest_window(
    layers: tuple[Layer, ...], hw: HardwareProfile, ctx_len: int, batch: int, terms: Terms = FIRST_ORDER
) -> int:
    """The smallest R with which sum t is no more than sum c at `ctx_len`: sum t falls as R grows, to 0. Exact."""

    def is_bound_by_engine(resident_tokens: int) -> bool:
        return link_lead(layers, hw, ctx_len, batch, replace(terms, resident_tokens=resident_tokens)) <= 0

    return bisect_left(range(ctx_len), True, key=is_bound_by_engine)


def largest_reduction_ctx(
    layers: tuple[Layer, ...],
    hw: HardwareProfile,
    batch: int,
    reductions: Callable[[np.ndarray], np.ndarray],
    terms: Terms = FIRST_ORDER,
) -> int | None:
    """The whole context of the largest reduction; None where no layer caches anything.

    `reductions` gives those of contexts. Between two contexts at which a window fills
    or tokens begin to leave the GPU, every time is linear in n, the prefetch step convex and the on-demand step
    linear, so the reduction rises, then falls: one bisection finds its top there. In a uniform stack it lies at
    n* or n*-1; in others the largest of several tops can lie elsewhere. With cross-token overlap the step is a
    difference of convex ones: what is found is the highest of a top in each octave, in a uniform stack the highest of
    all. A largest reduction below
    0.1 % may be placed at another context. Where attention reads the cache the reduction tends to a limit: what lies
    within 0.1 % of it is not told apart.
    """
    caching = [layer for layer in layers if layer.kv_values]
    if not caching:
        return None
    windows = {layer.window for layer in caching if layer.window}
    if all(layer.window for layer in caching):
        end = max(windows)
    elif terms.kv_read:
        end = _where_reading_dominates(layers, hw, batch, terms, max(windows, default=0))
    else:
        end = first_reaching_ctx(layers, hw, batch, terms, times_compute=1000)

    def falls(contexts: np.ndarray) -> np.ndarray:
        return reductions(contexts + 1) <= reductions(contexts)

    end = min(end, MOST_CTX)
    octaves = {2**power for power in range(end.bit_length())} if terms.cross_token_overlap else set()
    edges = sorted(edge for edge in {1, terms.resident_tokens + 1, *windows, *octaves, end} if edge <= end)
    tops = [*(first_where(first, last, falls) for first, last in pairwise(edges)), end]
    return tops[reductions(np.array(tops)).argmax()]


def first_where(first: int, last: int, holds: Callable[[np.ndarray], np.ndarray]) -> int:
    """The smallest whole number from `first` to `last` at which `holds`; what holds once holds on, and does at `last`.

    A bisection into many parts: `holds` gets some of the numbers, ascending, and answers with as many bools.
    """
    while first < last:
        looked_at = np.linspace(first, last, min(PARTS, last - first) + 1).astype(int)
        found = int(np.append(holds(looked_at[:-1]), True).argmax())
        first, last = int(looked_at[found - 1]) + 1 if found else first, int(looked_at[found])
    return last


def _where_reading_dominates(
    layers: tuple[Layer, ...], hw: HardwareProfile, batch: int, terms: Terms, windows_full: int
) -> int:
    """The context from which on reading the cache takes a thousand times as long as all else of sum c."""
    fixed, following = (layer_times(layers, hw, windows_full + n, batch, terms).compute.sum() for n in (1, 2))
    if following == fixed:  # to rounding
        return MOST_CTX
    return min(MOST_CTX, windows_full + ceil(1000 * (terms.resident_tokens + fixed / (following - fixed))))


class _Piece(NamedTuple):
    """Contexts between which every time is linear: sum t - sum c is lead + (n - first) · slope."""

    first: int
    last: float  # inf: the last piece has no end
    lead: Fraction
    slope: Fraction


def _pieces(
    layers: tuple[Layer, ...], hw: HardwareProfile, batch: int, terms: Terms, times_compute: int = 1
) -> Iterator[_Piece]:
    """All contexts, in order; `lead` less `times_compute` · sum c where that is given."""
    lead = _lead(layers, hw, batch, terms, times_compute)
    firsts = sorted({1, terms.resident_tokens + 1, *(layer.window + 1 for layer in layers if layer.window)})
    for first, following in pairwise([*firsts, inf]):
        slope = lead(first + 1) - lead(first) if first + 1 < following else Fraction(0)
        yield _Piece(first, following - 1, lead(first), slope)


def _lead(
    layers: tuple[Layer, ...], hw: HardwareProfile, batch: int, terms: Terms, times_compute: int = 1
) -> Callable[[int], Fraction]:
    """sum t - `times_compute` · sum c by context, in exact nanoseconds: bytes over GB/s."""
    counts = Counter(layers)
    kinds = tuple(counts)
    weight_rate = _exact(hw.hbm_gb_s) * _exact(terms.weight_efficiency)
    read_rate = _exact(hw.hbm_gb_s) * _exact(terms.attention_efficiency)
    link_rate = _exact(hw.pcie_gb_s) * _exact(terms.pcie_efficiency)
    reads = step_weight_bytes(kinds, batch).tolist()
    weights = sum(count * Fraction(read) for count, read in zip(counts.values(), reads, strict=True))
    fixed = weights / weight_rate + len(layers) * _exact(terms.layer_overhead_us) * 1000
    value = batch * Fraction(KV_BYTES[terms.kv_dtype])

    def lead(ctx_len: int) -> Fraction:
        offloaded = offloaded_tokens(kinds, ctx_len, terms).astype(int).tolist()
        compute, transfer = fixed, Fraction(0)
        for (layer, count), tokens in zip(counts.items(), offloaded, strict=True):
            if terms.kv_read:
                compute += count * value * layer.kv_values * min(ctx_len, layer.window or ctx_len) / read_rate
            if layer.kv_values and tokens:
                bytes_over = value * layer.kv_values * tokens
                transfer += count * (bytes_over / link_rate + _exact(terms.copy_latency_us) * 1000)
        return transfer - times_compute * compute

    return lead


@lru_cache  # asked for the same few figures again and again
def _exact(figure: float) -> Fraction:
    """The figure as it is written, not as it is stored."""
    return Fraction(str(figure))
