"""How long does one pass over a stack take when each layer first needs a transfer?

One link, one engine, and buffers for the data in flight; plain arrays of seconds in, seconds out.
Symbols: c_l = compute[..., l], t_l = transfer[..., l], d = depth. A layer with t_l = 0 has
nothing to fetch: it takes no buffer and waits for none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from kvprefetch.checks import refusal, whole_number

MOST_DEPTH = 10_000
MOST_SECONDS = 1e100  # of one layer: sums stay finite
ROWS_AT_ONCE = 4096  # of a long sweep: few enough that the working arrays stay in cache


class Timeline(NamedTuple):
    """When link and engine serve each layer: seconds from the start, four arrays of shape (..., L)."""

    fetch_start: np.ndarray
    fetch_end: np.ndarray  # equal to fetch_start where nothing is fetched
    compute_start: np.ndarray
    compute_end: np.ndarray


def ondemand_step(compute: np.ndarray, transfer: np.ndarray, order: Order | None = None) -> np.ndarray:
    """Seconds of one step when each layer is fetched, waited for, then computed.

    step = sum(c_l + t_l)

    Arrays (..., L), leading axes broadcast; returns (...). With `order`, which says for each layer the column that
    holds its times, the arrays need but one column for equal layers. Raises InputError on bad arrays.
    """
    return _step(_last_ondemand, *_times(compute, transfer), order)


def prefetch_step(compute: np.ndarray, transfer: np.ndarray, depth: int = 1, order: Order | None = None) -> np.ndarray:
    """Seconds of one step when up to `depth` layers are fetched ahead of the one computing.

    landed_l = max(link free, done_k) + t_l,    done_l = max(done_{l-1}, landed_l) + c_l

    k is the (depth+1)-th fetching layer before l, whose buffer l takes over.
    Arrays (..., L), leading axes broadcast; returns (...). `order` as in `ondemand_step`. Raises InputError on bad
    arrays or depth.
    """
    return _step(_last(depth), *_times(compute, transfer), order)


def steady_step(compute: np.ndarray, transfer: np.ndarray, depth: int = 1, order: Order | None = None) -> np.ndarray:
    """Seconds a prefetched step adds when its first fetches start while the step before it ends.

    step = prefetch(stack twice) - prefetch(stack once)

    A uniform stack comes to L·max(c, t). Arrays, shapes and errors like `prefetch_step`.
    """
    c, t = _times(compute, transfer)
    once = tuple(range(c.shape[-1])) if order is None else tuple(order)
    return _step(_last(depth), c, t, 2 * once) - _step(_last(depth), c, t, once)


def uniform_prefetch_step(
    compute: np.ndarray | float, transfer: np.ndarray | float, num_layers: int
) -> np.ndarray | float:
    """The closed form of `prefetch_step` for equal layers, whatever the depth: t + (L-1)·max(c, t) + c."""
    return transfer + (num_layers - 1) * np.maximum(compute, transfer) + compute


def ondemand_timeline(compute: np.ndarray, transfer: np.ndarray) -> Timeline:
    """When each layer is fetched and computed on demand. Arrays (..., L)."""
    return _timeline(_ondemand, *_times(compute, transfer))


def timeline(compute: np.ndarray, transfer: np.ndarray, depth: int = 1) -> Timeline:
    """When each layer is fetched and computed with prefetch. Arrays (..., L)."""
    return _timeline(_ahead(depth), *_times(compute, transfer))


Order = Sequence[int]
Columns = Sequence[np.ndarray]  # one array of rows a layer
Policy = Callable[[Columns, Columns], Iterator[Timeline]]
Last = Callable[[Columns, Columns], np.ndarray]


def _ondemand(compute: Columns, transfer: Columns) -> Iterator[Timeline]:
    """Each layer's moments in turn, an entry a row."""
    done = np.zeros(len(compute[0]))
    for c, t in zip(compute, transfer, strict=True):
        landed = done + t
        yield Timeline(done, landed, landed, end := landed + c)
        done = end


def _prefetch(compute: Columns, transfer: Columns, depth: int) -> Iterator[Timeline]:
    """Each layer's moments in turn, an entry a row; in all rows the same layers fetch."""
    link_free = done = np.zeros(len(compute[0]))
    buffer_free = deque([done] * min(depth + 1, len(compute)))  # buffers come free in the order they were filled
    for c, t in zip(compute, transfer, strict=True):
        if t[0] > 0:
            fetch_start = np.maximum(link_free, buffer_free.popleft())
            landed = link_free = fetch_start + t
            compute_start = np.maximum(done, landed)
        else:
            fetch_start = landed = link_free
            compute_start = done
        done = compute_start + c
        if t[0] > 0:
            buffer_free.append(done)
        yield Timeline(fetch_start, landed, compute_start, done)


def _ahead(depth: int) -> Policy:
    return partial(_prefetch, depth=whole_number("depth", depth, MOST_DEPTH))


def _last(depth: int) -> Last:
    return partial(_last_prefetch, depth=whole_number("depth", depth, MOST_DEPTH))


def _alike(transfer: np.ndarray) -> Iterator[slice | np.ndarray]:
    """Some thousand rows of (rows, L) at a time, the same layers fetching in all of them."""
    for start in range(0, len(transfer), ROWS_AT_ONCE):
        fetches = transfer[start : start + ROWS_AT_ONCE] > 0
        if (fetches == fetches[0]).all():
            yield slice(start, start + ROWS_AT_ONCE)
        else:
            patterns, pattern = np.unique(fetches, axis=0, return_inverse=True)
            for k in range(len(patterns)):
                yield start + np.flatnonzero(pattern == k)


def _step(last: Last, compute: np.ndarray, transfer: np.ndarray, order: Order | None) -> np.ndarray:
    """What `last` says of each row."""
    c, t = (times.reshape(-1, times.shape[-1]) for times in (compute, transfer))
    step = np.empty(len(t))
    for rows in _alike(t):
        columns = [list(np.ascontiguousarray(times[rows].T)) for times in (c, t)]
        step[rows] = last(*(each if order is None else [each[k] for k in order] for each in columns))
    return step.reshape(compute.shape[:-1])[()]


def _last_ondemand(compute: Columns, transfer: Columns) -> np.ndarray:
    """The last compute_end of `_ondemand`, to the bit."""
    done = np.zeros(len(compute[0]))
    for c, t in zip(compute, transfer, strict=True):
        done += t
        done += c
    return done


def _last_prefetch(compute: Columns, transfer: Columns, depth: int) -> np.ndarray:
    """The last compute_end of `_prefetch`, to the bit; equal layers, of which each is the same array, in a shorter way.

    Rounding keeps order. So where t >= c, no layer is still computed when the next has landed, and the sum of
    transfers sets the pace; where c > t, each layer has landed before the one ahead of it is done. In both cases
    that makes t, and L - 1 times max(c, t), and c.
    """
    c, t = compute[0], transfer[0]
    if t[0] > 0 and all(each is c for each in compute) and all(each is t for each in transfer):
        step, slower = t.copy(), np.maximum(c, t)
        for _ in range(len(compute) - 1):
            step += slower
        return step + c
    for layer in _prefetch(compute, transfer, depth):
        done = layer.compute_end
    return done


def _timeline(policy: Policy, compute: np.ndarray, transfer: np.ndarray) -> Timeline:
    c, t = (times.reshape(-1, times.shape[-1]) for times in (compute, transfer))
    moments = np.empty((4, *t.shape))
    for rows in _alike(t):
        for index, layer in enumerate(policy(c[rows].T, t[rows].T)):
            moments[:, rows, index] = layer
    return Timeline(*moments.reshape(4, *compute.shape))


def _times(compute: np.ndarray, transfer: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both as float arrays of one shape (..., L), every time finite and not negative."""
    c, t = _seconds("compute", compute), _seconds("transfer", transfer)
    if c.shape[-1] != t.shape[-1]:
        raise refusal("transfer", f"{t.shape[-1]} layers", f"as many as compute has, {c.shape[-1]}")
    try:
        return tuple(np.broadcast_arrays(c, t))
    except ValueError:
        raise refusal("transfer", f"shape {t.shape}", f"one that broadcasts with compute's, {c.shape}") from None


def _seconds(what: str, times: np.ndarray) -> np.ndarray:
    accepted = f"an array (..., L) of seconds from 0 to {MOST_SECONDS:g}"
    try:
        array = np.asarray(times, dtype=float)
    except (TypeError, ValueError, OverflowError):
        raise refusal(what, times, accepted) from None
    if not array.ndim or not array.size or not (array.min() >= 0 and array.max() <= MOST_SECONDS):
        raise refusal(what, times, accepted)
    return array
