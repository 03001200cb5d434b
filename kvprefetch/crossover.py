"""From which context on does the link need as long as the engine, and where does prefetch save most?

Both are solved, never scanned. sum t never falls as the context grows, so the crossover is one bisection,
in rationals made from the rates' decimal text: the ceiling of a float quotient is one off on some ties.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from math import ceil

import numpy as np

from kvprefetch.checks import refusal
from kvprefetch.configs import FIRST_ORDER, HardwareProfile, Terms
from kvprefetch.layers import KV_BYTES, Layer, step_weight_bytes
from kvprefetch.roofline import layer_times, offloaded_tokens
from kvprefetch.schedule import ondemand_step, prefetch_step

MOST_SOLVED = 2**53  # tokens; beyond, whole numbers are no longer exact as floats


def first_reaching_ctx(
    layers: tuple[Layer, ...], hw: HardwareProfile, batch: int, terms: Terms = FIRST_ORDER, times_compute: int = 1
) -> int | None:
    """The smallest whole context >= 1 at which sum t is at least `times_compute` · sum c; None where none is. Exact."""
    return _first_ctx(layers, terms, times_compute * _balance(layers, hw, batch, terms), bisect_left)


def first_exceeding_ctx(
    layers: tuple[Layer, ...], hw: HardwareProfile, batch: int, terms: Terms = FIRST_ORDER
) -> int | None:
    """The smallest whole context >= 1 at which sum t is more than sum c; None where none is. Exact."""
    return _first_ctx(layers, terms, _balance(layers, hw, batch, terms), bisect_right)


def largest_reduction_ctx(
    layers: tuple[Layer, ...], hw: HardwareProfile, batch: int, depth: int, terms: Terms = FIRST_ORDER
) -> int | None:
    """The whole context of the largest reduction; None where no layer caches anything.

    Between two contexts at which a window fills, every transfer is linear in n, the prefetch step convex and
    the on-demand step linear, so the reduction rises, then falls: one bisection finds its top there. In a
    uniform stack it lies at n* or n*-1; in others the largest of several tops can lie elsewhere. A largest
    reduction below 0.1 % may be placed at another context: beyond `end` all are smaller than that.
    """
    windows = {layer.window for layer in layers if layer.window and layer.kv_values}
    end = first_reaching_ctx(layers, hw, batch, terms, times_compute=1000) or max(windows, default=None)
    if end is None:
        return None

    def reductions(*contexts: int) -> np.ndarray:
        times = layer_times(layers, hw, np.array(contexts), batch, terms)
        prefetch = prefetch_step(times.compute, times.transfer, depth)
        return 1 - prefetch / ondemand_step(times.compute, times.transfer)

    def falls(ctx_len: int) -> bool:
        now, then = reductions(ctx_len, ctx_len + 1)
        return then <= now

    edges = sorted(edge for edge in {1, terms.resident_tokens + 1, *windows, end} if edge <= end)
    tops = [first + bisect_left(range(first, last), True, key=falls) for first, last in pairwise(edges)]
    return [*tops, end][reductions(*tops, end).argmax()]


def _balance(layers: tuple[Layer, ...], hw: HardwareProfile, batch: int, terms: Terms) -> Fraction:
    """The cached values, over all layers of one sequence, that the link carries in sum c."""
    weights = sum(Fraction(float(each)) for each in step_weight_bytes(layers, batch))
    rates = Fraction(str(hw.pcie_gb_s)) / Fraction(str(hw.hbm_gb_s))
    return weights * rates / (batch * Fraction(KV_BYTES[terms.kv_dtype]))


def _first_ctx(layers: tuple[Layer, ...], terms: Terms, target: Fraction, bisect: Callable[..., int]) -> int | None:
    """Where the offloaded values of one sequence reach (bisect_left) or pass (bisect_right) the target."""
    kinds = tuple(set(layers))
    counts = [layers.count(kind) for kind in kinds]

    def offloaded_values(ctx_len: int) -> int:
        tokens = offloaded_tokens(kinds, ctx_len, terms).astype(int).tolist()
        return sum(count * layer.kv_values * held for count, layer, held in zip(counts, kinds, tokens, strict=True))

    growing = sum(layer.kv_values for layer in layers if layer.window is None)
    longest = max((layer.window for layer in layers if layer.window), default=1)
    if growing:
        longest = max(longest, terms.resident_tokens + ceil(target / growing) + 1)
    if longest > MOST_SOLVED:
        raise refusal("model and hw", f"a crossover near {longest} tokens", f"one of at most {MOST_SOLVED}")
    first = 1 + bisect(range(1, longest + 1), target, key=offloaded_values)
    return first if first <= longest else None
