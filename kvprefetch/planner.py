"""Does offload plus prefetch pay for this model on this card, and where does it stop paying?

Built on the two arrays of `roofline` and the two schedules of `schedule`. Symbols: n context,
b batch, d depth, L layers, n* crossover; sum c and sum t are a step's engine and link time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvprefetch.checks import refusal, whole_number
from kvprefetch.configs import FIRST_ORDER, HardwareProfile, ModelConfig, Terms
from kvprefetch.crossover import first_reaching_ctx, largest_reduction_ctx, link_is_bound, link_lead
from kvprefetch.layers import MOST_BATCH, MOST_CTX
from kvprefetch.roofline import head_time, kv_blocks, layer_times, offloaded_bytes, resident_bytes
from kvprefetch.schedule import MOST_DEPTH, ROWS_AT_ONCE, ondemand_step, prefetch_step, steady_step

if TYPE_CHECKING:
    import pandas

DEFAULT_CONTEXTS = (512, 1024, 2048, 4096, 8192, 16384, 32768)


@dataclass(frozen=True)
class PolicyStep:
    """One decode step under one policy, and the GPU memory its KV takes."""

    total_s: float
    kv_blocks: int  # blocks of GPU memory that offloaded KV lands in
    block_bytes: float  # bytes of one: the largest offloaded part of a layer
    resident_bytes: float = 0.0  # bytes of KV that stay on the GPU between steps

    @property
    def total_ms(self) -> float:
        return self.total_s * 1e3

    @property
    def gpu_kv_bytes(self) -> float:
        return self.resident_bytes + self.kv_blocks * self.block_bytes


@dataclass(frozen=True)
class Comparison:
    """On-demand against prefetch for one decode step at one context."""

    ctx_len: int
    batch: int
    depth: int
    compute: tuple[float, ...]  # seconds, a value a layer
    transfer: tuple[float, ...]  # seconds, a value a layer
    ondemand: PolicyStep
    prefetch: PolicyStep
    bound: str  # "pcie" where sum t > sum c exactly, else "compute"
    offloaded_bytes: float  # of KV, in all layers: what crosses the link
    head: float = 0.0  # seconds of the LM head after the last layer; 0 where terms omit it

    @property
    def reduction(self) -> float:
        """1 - prefetch / on-demand: at most 1/2, for every stack."""
        return 1 - self.prefetch.total_s / self.ondemand.total_s

    @property
    def reduction_pct(self) -> float:
        return 100 * self.reduction

    @property
    def speedup(self) -> float:
        return self.ondemand.total_s / self.prefetch.total_s

    @property
    def compute_ms(self) -> float:
        """sum c: milliseconds the engine computes."""
        return 1e3 * sum(self.compute)

    @property
    def transfer_ms(self) -> float:
        """sum t: milliseconds the link carries."""
        return 1e3 * sum(self.transfer)

    @property
    def engine_ms(self) -> float:
        """sum c and the LM head: the step with all KV on the GPU, a lower bound of every offloaded one."""
        return self.compute_ms + 1e3 * self.head

    @property
    def stall_ms(self) -> float:
        """Prefetch step less what the engine computes: milliseconds it waits."""
        return self.prefetch.total_ms - self.engine_ms

    @property
    def hidden_share(self) -> float:
        """(on-demand - prefetch) / sum t: share of the transfer that prefetch hides; 1 where nothing is fetched."""
        if not any(self.transfer):
            return 1.0
        return (self.ondemand.total_s - self.prefetch.total_s) / sum(self.transfer)

    @property
    def hideable_share(self) -> float:
        """min(1, engine / sum t): no schedule hides a larger share of the transfer; 1 where nothing is fetched."""
        return 1.0 if not any(self.transfer) else min(1.0, self.engine_ms / self.transfer_ms)

    @property
    def lower_bound_ms(self) -> float:
        """max(sum c, sum t), the LM head in sum c: no schedule of one engine and one link is faster."""
        return max(self.engine_ms, self.transfer_ms)

    @property
    def upper_bound_ms(self) -> float:
        """sum(c + t): no schedule that keeps one of them busy is slower; on-demand takes just that."""
        return self.ondemand.total_ms


@dataclass(frozen=True)
class SweepRow:
    """The comparison at one context, as metrics.json and the sweep table hold it."""

    ctx_len: int
    ondemand_ms: float
    prefetch_ms: float
    reduction_pct: float
    speedup: float
    bound: str


@dataclass(frozen=True)
class Sweep:
    """The fields of `SweepRow` as arrays of one length, contexts ascending."""

    ctx_len: np.ndarray
    ondemand_ms: np.ndarray
    prefetch_ms: np.ndarray
    reduction_pct: np.ndarray
    speedup: np.ndarray
    bound: np.ndarray

    def rows(self) -> Iterator[SweepRow]:
        columns = (getattr(self, name).tolist() for name in SweepRow.__dataclass_fields__)
        return (SweepRow(*values) for values in zip(*columns, strict=True))


def compare(
    model: ModelConfig,
    hw: HardwareProfile,
    ctx_len: int,
    batch: int = 1,
    depth: int = 1,
    terms: Terms = FIRST_ORDER,
) -> Comparison:
    """Both policies for one decode step of `batch` sequences with `ctx_len` cached tokens each.

    Raises InputError where `ctx_len`, `batch` or `depth` is not a whole number in range.
    """
    ctx_len = whole_number("ctx_len", ctx_len, MOST_CTX)
    batch, depth = whole_number("batch", batch, MOST_BATCH), whole_number("depth", depth, MOST_DEPTH)
    steps = steps_at(model, hw, np.array([ctx_len]), batch, depth, terms)
    times = layer_times(model.layers, hw, ctx_len, batch, terms)
    offloaded = offloaded_bytes(model.layers, ctx_len, batch, terms)
    fetching = int((offloaded > 0).sum())
    memory = {
        "block_bytes": float(offloaded.max()),
        "resident_bytes": float(resident_bytes(model.layers, ctx_len, batch, terms).sum()),
    }
    return Comparison(
        ctx_len=ctx_len,
        batch=batch,
        depth=depth,
        compute=tuple(times.compute.tolist()),
        transfer=tuple(times.transfer.tolist()),
        ondemand=PolicyStep(float(steps.ondemand[0]), min(1, fetching), **memory),
        prefetch=PolicyStep(float(steps.prefetch[0]), kv_blocks(fetching, depth, terms), **memory),
        bound="pcie" if link_lead(model.layers, hw, ctx_len, batch, terms) > 0 else "compute",
        offloaded_bytes=float(offloaded.sum()),
        head=steps.head,
    )


def crossover_ctx(model: ModelConfig, hw: HardwareProfile, batch: int = 1, terms: Terms = FIRST_ORDER) -> int | None:
    """n*, the smallest whole context >= 1 at which sum t is not less than sum c; None where there is none.

    Exact, for windows and resident tokens too. Raises InputError on a bad `batch`.
    """
    _check_kinds(model, hw, terms)
    return first_reaching_ctx(model.layers, hw, whole_number("batch", batch, MOST_BATCH), terms)


def peak_ctx(
    model: ModelConfig, hw: HardwareProfile, batch: int = 1, depth: int = 1, terms: Terms = FIRST_ORDER
) -> int | None:
    """The whole context of the largest reduction; None where no layer caches anything.

    Raises InputError on a bad `batch` or `depth`.
    """
    _check_kinds(model, hw, terms)
    batch, depth = whole_number("batch", batch, MOST_BATCH), whole_number("depth", depth, MOST_DEPTH)

    def reductions(contexts: np.ndarray) -> np.ndarray:
        return steps_at(model, hw, contexts, batch, depth, terms).reduction

    return largest_reduction_ctx(model.layers, hw, batch, reductions, terms)


def sweep_columns(
    model: ModelConfig,
    hw: HardwareProfile,
    contexts: Iterable[int],
    batch: int = 1,
    depth: int = 1,
    terms: Terms = FIRST_ORDER,
) -> Sweep:
    """Both policies at every context, ascending and without repeats. Raises InputError like `compare`."""
    ctx_len = contexts_in_order(contexts)
    steps = steps_at(model, hw, ctx_len, batch, depth, terms)
    link_bound = link_is_bound(model.layers, hw, ctx_len, whole_number("batch", batch, MOST_BATCH), terms)
    return Sweep(
        ctx_len=ctx_len,
        ondemand_ms=steps.ondemand * 1e3,
        prefetch_ms=steps.prefetch * 1e3,
        reduction_pct=100 * steps.reduction,
        speedup=steps.ondemand / steps.prefetch,
        bound=np.where(link_bound, "pcie", "compute"),
    )


def prefetch_ms(
    model: ModelConfig,
    hw: HardwareProfile,
    contexts: Iterable[int],
    batch: int = 1,
    depth: int = 1,
    terms: Terms = FIRST_ORDER,
) -> np.ndarray:
    """The column of that name of `sweep_columns`, where nothing else of it is needed."""
    return steps_at(model, hw, contexts_in_order(contexts), batch, depth, terms).prefetch * 1e3


def sweep(
    model: ModelConfig,
    hw: HardwareProfile,
    contexts: Iterable[int],
    batch: int = 1,
    depth: int = 1,
    terms: Terms = FIRST_ORDER,
) -> pandas.DataFrame:
    """`sweep_columns` as a pandas frame, a row a context, columns as in metrics.json."""
    import pandas  # here, because everything else answers without it

    return pandas.DataFrame(vars(sweep_columns(model, hw, contexts, batch, depth, terms)))


def contexts_in_order(contexts: Iterable[int]) -> np.ndarray:
    """The contexts as ascending int64, each once. Raises InputError on none, or on one out of range."""
    if not isinstance(contexts, Iterable) or isinstance(contexts, (str, bytes)) or getattr(contexts, "ndim", 1) != 1:
        raise refusal("contexts", contexts, "several whole numbers")
    if not (isinstance(contexts, np.ndarray) and contexts.dtype.kind in "iu"):
        contexts = np.array([whole_number("contexts", ctx_len, MOST_CTX) for ctx_len in contexts], dtype=int)
    if not contexts.size:
        raise refusal("contexts", "none", f"one or more whole numbers from 1 to {MOST_CTX}")
    in_order = contexts
    if not (contexts[1:] > contexts[:-1]).all():
        in_order = np.sort(contexts)
        in_order = in_order[np.append(True, in_order[1:] != in_order[:-1])]  # np.unique loads a tenth of numpy for this
    for ctx_len in in_order[[0, -1]].tolist():
        whole_number("contexts", ctx_len, MOST_CTX)
    return in_order.astype(int)


@dataclass(frozen=True)
class Steps:
    """Seconds of a step by context, and the LM head's in each."""

    engine: np.ndarray  # with all KV on the GPU
    ondemand: np.ndarray
    prefetch: np.ndarray
    head: float

    @property
    def reduction(self) -> np.ndarray:
        return 1 - self.prefetch / self.ondemand


def steps_at(
    model: ModelConfig, hw: HardwareProfile, ctx_len: np.ndarray, batch: int, depth: int, terms: Terms
) -> Steps:
    """Both policies at every context, an array of whole numbers: the one path that makes every published latency."""
    _check_kinds(model, hw, terms)
    batch, depth = whole_number("batch", batch, MOST_BATCH), whole_number("depth", depth, MOST_DEPTH)
    kinds, head = tuple(dict.fromkeys(model.layers)), head_time(model, hw, terms)
    order = [kinds.index(layer) for layer in model.layers] + [len(kinds)] * (head > 0)
    ahead = steady_step if terms.cross_token_overlap else prefetch_step
    steps = Steps(*(np.empty(ctx_len.shape) for _ in range(3)), head)
    for start in range(0, len(ctx_len), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        times = layer_times(kinds, hw, ctx_len[rows], batch, terms)
        engine, link = times.compute, times.transfer
        if head:  # one more layer, of the engine alone
            engine, link = (np.insert(each, len(kinds), last, axis=1) for each, last in ((engine, head), (link, 0)))
        # Not a matrix product: its last bit depends on the machine, and on how many contexts are asked for at once.
        steps.engine[rows] = sum(count * column for count, column in zip(np.bincount(order), engine.T, strict=True))
        steps.ondemand[rows] = ondemand_step(engine, link, order)
        steps.prefetch[rows] = ahead(engine, link, depth, order)
    return steps


def _check_kinds(model: ModelConfig, hw: HardwareProfile, terms: Terms) -> None:
    """Raises InputError where one is given for another, or a name in place of what it names."""
    for what, given, kind in (("model", model, ModelConfig), ("hw", hw, HardwareProfile), ("terms", terms, Terms)):
        if not isinstance(given, kind):
            raise refusal(what, given, f"a {kind.__name__}; load_model and load_hardware find one by name")
