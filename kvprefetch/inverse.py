"""What would it take? The context, link or batch at which a decode step meets a bound, solved and not scanned.

Symbols: n context, b batch, d depth; P the link's stated rate, of which copies reach the share `pcie_efficiency`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

import numpy as np

from kvprefetch.checks import whole_number
from kvprefetch.configs import FIRST_ORDER, GB, MICRO, HardwareProfile, ModelConfig, Terms
from kvprefetch.crossover import first_where, link_lead
from kvprefetch.layers import MOST_BATCH, MOST_CTX
from kvprefetch.roofline import head_time, layer_times, offloaded_bytes
from kvprefetch.schedule import MOST_DEPTH


def longest_ctx(step: Callable[[np.ndarray], np.ndarray], target: float, most: int = MOST_CTX) -> int | None:
    """The largest n with step(n) <= target < step(n + 1); 0 where no n meets it, None where all up to `most` do.

    `step` takes contexts, ascending, and never falls as n grows; both in one unit. It may stay level: the last n of
    a level stretch counts.
    """
    if step(np.array([most]))[0] <= target:
        return None
    return first_where(1, most, lambda contexts: step(contexts) > target) - 1


def pcie_bound_batch(model: ModelConfig, hw: HardwareProfile, ctx_len: int, terms: Terms = FIRST_ORDER) -> int | None:
    """The smallest batch with sum t >= sum c at `ctx_len`; None where none up to MOST_BATCH has it.

    sum t grows by the same with each sequence; sum c by ever less, as fewer new experts are touched: they meet
    once. Exact.
    """
    whole_number("ctx_len", ctx_len, MOST_CTX)

    def bound(batch: int) -> bool:
        return link_lead(model.layers, hw, ctx_len, batch, terms) >= 0

    return bisect_left(range(1, MOST_BATCH), True, key=bound) + 1 if bound(MOST_BATCH) else None


def balancing_pcie(
    model: ModelConfig, hw: HardwareProfile, ctx_len: int, batch: int = 1, terms: Terms = FIRST_ORDER
) -> float | None:
    """The link's rate in GB/s at which sum t = sum c: beyond it the engine is the bound.

    P = offloaded bytes / (sum c - copy latencies) / efficiency; 0 where nothing is offloaded, None where the copies'
    latencies alone take as long as the engine.
    """
    compute, fetched = _parts(model, hw, ctx_len, batch, terms)
    if not fetched.any():
        return 0.0
    rate = _rates(fetched.sum(), np.count_nonzero(fetched), compute.sum(), terms)
    return None if np.isinf(rate) else float(rate)


def stall_free_pcie(
    model: ModelConfig,
    hw: HardwareProfile,
    ctx_len: int,
    batch: int = 1,
    depth: int = 1,
    terms: Terms = FIRST_ORDER,
) -> float | None:
    """The link's rate in GB/s from which on a prefetched step waits for its first fetch and for no other.

    Each run of fetches must land within the engine's time from where the run may start, when a buffer comes free,
    to where its last layer is due. 0 where at most one layer fetches and None as in `balancing_pcie`. Overlap across
    tokens is not counted on.
    """
    whole_number("depth", depth, MOST_DEPTH)
    compute, fetched = _parts(model, hw, ctx_len, batch, terms)
    done = np.concatenate([[0.0], np.cumsum(compute)])  # the engine's clock before each layer, were there no stall
    layers = np.flatnonzero(fetched)
    carried = np.concatenate([[0.0], np.cumsum(fetched[layers])])
    least = 0.0
    for last in range(1, len(layers)):
        due, end = done[layers[last]], last + 1
        # A later run starts when layer k, d + 1 fetching layers before, is done and its buffer free.
        starts = np.arange(depth + 1, end)
        runs = _rates(carried[end] - carried[starts], end - starts, due - done[layers[starts - depth - 1] + 1], terms)
        # The first run starts with the step; the engine begins once its fetch has landed and earlier work is done.
        first = np.array([1, 0])
        waited_or_hidden = _rates(
            carried[end] - carried[first], end - first, due - np.array([done[layers[0]], 0.0]), terms
        )
        least = max(least, waited_or_hidden.min(), runs.max(initial=0.0))
    return None if np.isinf(least) else float(least)


def hideable_bytes(
    model: ModelConfig, hw: HardwareProfile, ctx_len: int, batch: int = 1, terms: Terms = FIRST_ORDER
) -> float:
    """Bytes of KV that the link carries while the engine computes: (sum c + LM head) · offloaded bytes / sum t."""
    compute, fetched = _parts(model, hw, ctx_len, batch, terms)
    engine = compute.sum() + head_time(model, hw, terms)
    rate = hw.pcie_gb_s * GB * terms.pcie_efficiency
    latencies = np.count_nonzero(fetched) * terms.copy_latency_us * MICRO
    slowed = 1 + latencies * rate / fetched.sum() if latencies else 1.0
    return float(engine * rate / slowed)


def _parts(
    model: ModelConfig, hw: HardwareProfile, ctx_len: int, batch: int, terms: Terms
) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of compute and bytes fetched, a value a layer."""
    whole_number("ctx_len", ctx_len, MOST_CTX)
    whole_number("batch", batch, MOST_BATCH)
    compute = layer_times(model.layers, hw, ctx_len, batch, terms).compute
    return compute, offloaded_bytes(model.layers, ctx_len, batch, terms)


def _rates(fetched: np.ndarray, copies: np.ndarray, seconds: np.ndarray, terms: Terms) -> np.ndarray:
    """GB/s that carry `fetched` bytes in `seconds`, each in so many `copies`; inf where their latencies take all."""
    copying = seconds - copies * (terms.copy_latency_us * MICRO)
    with np.errstate(divide="ignore"):
        return np.where(copying > 0, fetched / copying / GB / terms.pcie_efficiency, np.inf)
