"""Does the model stay on the card, and how much of its cache does?

Memory is counted in exact rationals made from the figures' decimal text, and every limit is solved: the
largest whole context, batch or window that fits. Symbols: n context, b batch, d depth, R resident tokens.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

from kvprefetch.configs import FIRST_ORDER, HardwareProfile, ModelConfig, Terms
from kvprefetch.layers import KV_BYTES, MOST_BATCH, MOST_CTX, Layer
from kvprefetch.roofline import kv_blocks, offloaded_bytes, offloaded_tokens

DEFAULT_RESERVE = 0.1  # of the card's memory: activations, workspaces, fragmentation
MOST_RESERVE = 0.9
_remembered = lru_cache(maxsize=1024)  # of limits that hold at every context, and so are asked for at each


def usable_bytes(hw: HardwareProfile, reserve: float = DEFAULT_RESERVE) -> Fraction | None:
    """Bytes of GPU memory less the reserve; None where the profile states no capacity."""
    if hw.hbm_capacity_gb is None:
        return None
    return Fraction(str(hw.hbm_capacity_gb)) * 10**9 * (1 - Fraction(str(reserve)))


def free_bytes(model: ModelConfig, usable: Fraction, batch: int = 1) -> Fraction:
    """What all weights and the recurrent state of `batch` sequences leave of `usable`; below 0 where they exceed it."""
    state = sum(Fraction(float(layer.state_bytes)) for layer in model.layers if layer.state_bytes)
    return usable - Fraction(float(model.total_bytes)) - batch * state


@_remembered
def largest_resident_ctx(model: ModelConfig, usable: Fraction, batch: int = 1, kv_dtype: str = "fp16") -> int | None:
    """The largest whole context at which all KV stays on the GPU; 0 where none does, None where every one does."""
    free = free_bytes(model, usable, batch)

    def held(ctx_len: int) -> Fraction:
        return _gpu_kv_bytes(model.layers, ctx_len, batch, depth=1, terms=_all_resident(ctx_len, kv_dtype))

    if held(MOST_CTX) <= free:
        return None
    return bisect_right(range(1, MOST_CTX), free, key=held)


def largest_resident_batch(model: ModelConfig, usable: Fraction, ctx_len: int, kv_dtype: str = "fp16") -> int:
    """The largest batch of which all KV stays on the GPU at `ctx_len`, at most MOST_BATCH; 0 where none does."""
    terms = _all_resident(ctx_len, kv_dtype)

    def over(batch: int) -> Fraction:
        return _gpu_kv_bytes(model.layers, ctx_len, batch, 1, terms) - free_bytes(model, usable, batch)

    return bisect_right(range(1, MOST_BATCH + 1), 0, key=over)


def fits(
    model: ModelConfig, usable: Fraction, ctx_len: int, batch: int = 1, depth: int = 1, terms: Terms = FIRST_ORDER
) -> bool:
    """Whether weights, state, resident KV and the min(d + 1, M) buffers of offloaded KV fit."""
    return _gpu_kv_bytes(model.layers, ctx_len, batch, depth, terms) <= free_bytes(model, usable, batch)


@_remembered
def largest_offloaded_ctx(
    model: ModelConfig, usable: Fraction, batch: int = 1, depth: int = 1, terms: Terms = FIRST_ORDER
) -> int | None:
    """The largest whole context that fits under `terms`; 0 where none does, None where every one does."""
    if fits(model, usable, MOST_CTX, batch, depth, terms):
        return None
    return bisect_left(range(1, MOST_CTX), True, key=lambda n: not fits(model, usable, n, batch, depth, terms))


def largest_offloaded_batch(
    model: ModelConfig,
    usable: Fraction,
    ctx_len: int,
    depth: int = 1,
    terms: Terms = FIRST_ORDER,
    host: float | None = None,
) -> int:
    """The largest batch that fits under `terms`, and whose offloaded KV fits `host` bytes; 0 where none does."""
    one = float(offloaded_bytes(model.layers, ctx_len, 1, terms).sum())

    def too_many(batch: int) -> bool:
        beyond_host = host is not None and batch * one > host
        return beyond_host or not fits(model, usable, ctx_len, batch, depth, terms)

    return bisect_left(range(1, MOST_BATCH + 1), True, key=too_many)


def largest_depth(
    model: ModelConfig, usable: Fraction, ctx_len: int, batch: int, most: int, terms: Terms = FIRST_ORDER
) -> int | None:
    """The largest depth up to `most` whose buffers fit; 0: on-demand's one does alone, None: not even that."""
    deeper = bisect_left(range(most + 1), True, key=lambda d: not fits(model, usable, ctx_len, batch, d, terms))
    return deeper - 1 if deeper else None


def largest_window(
    model: ModelConfig, usable: Fraction, ctx_len: int, batch: int = 1, depth: int = 1, terms: Terms = FIRST_ORDER
) -> int | None:
    """The largest R that fits beside the buffers of what it leaves offloaded; `ctx_len` where all stays resident.

    None where even R = 0 does not fit. The buffers shrink as R grows, and are fewer once R reaches a layer's
    window, so the R that fit need not be one range: between the R at which a layer becomes resident, or another
    layer's rest becomes the largest, memory is linear in R, and each such piece is solved, longest R first.
    """
    free = free_bytes(model, usable, batch)

    def held(resident_tokens: int) -> Fraction:
        kept = replace(terms, resident_tokens=resident_tokens)
        return _gpu_kv_bytes(model.layers, ctx_len, batch, depth, kept)

    caching = {(min(ctx_len, layer.window or ctx_len), layer.kv_values) for layer in model.layers if layer.kv_values}
    starts = {0, ctx_len, ctx_len + 1, *(tokens for tokens, _ in caching)}
    for tokens, values in caching:
        for others, more in caching:
            if values < more and tokens * values < others * more:  # from here on the thinner layer's rest is the larger
                starts.add((more * others - values * tokens) // (more - values) + 1)
    pieces = pairwise(sorted(start for start in starts if 0 <= start <= ctx_len + 1))
    for first, following in reversed([*pieces]):
        if held(following - 1) <= free:
            return following - 1
        if held(first) <= free:
            return first + bisect_right(range(first, following), free, key=held) - 1
    return None


def _all_resident(ctx_len: int, kv_dtype: str) -> Terms:
    return Terms(kv_dtype=kv_dtype, resident_tokens=ctx_len)


def _gpu_kv_bytes(layers: tuple[Layer, ...], ctx_len: int, batch: int, depth: int, terms: Terms) -> Fraction:
    """KV on the GPU: what stays there, and a buffer of the largest offloaded part for each layer in flight."""
    counts = Counter(layer for layer in layers if layer.kv_values)
    kinds = tuple(counts)
    offloaded = offloaded_tokens(kinds, ctx_len, terms).astype(int).tolist()
    resident = fetching = largest = 0
    for (layer, count), tokens in zip(counts.items(), offloaded, strict=True):
        resident += count * layer.kv_values * (min(ctx_len, layer.window or ctx_len) - tokens)
        fetching += count * (tokens > 0)
        largest = max(largest, layer.kv_values * tokens)
    return batch * Fraction(KV_BYTES[terms.kv_dtype]) * (resident + kv_blocks(fetching, depth, terms) * largest)
