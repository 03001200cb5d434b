"""In which ways can a decode step be served at one context, and what does each take?

Each way is one row of the ranking: latency, memory on the GPU and on the host, and the assumption it rests on.
Symbols: n context, b batch, d depth, R resident tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from kvprefetch.capacity import fits
from kvprefetch.configs import GB, MICRO, HardwareProfile, ModelConfig, Terms
from kvprefetch.formats import size
from kvprefetch.layers import KV_BYTES, has_windows, touched_experts
from kvprefetch.planner import Comparison, compare
from kvprefetch.roofline import head_time
from kvprefetch.schedule import MOST_DEPTH, ondemand_step, prefetch_step

LIMITS = {"pcie": "link", "compute": "engine"}
SMALLER_KV = {"fp8": 8, "q4_0": 4}  # the dtypes that a smaller cache is planned with, and their bits


@dataclass(frozen=True)
class Way:
    """One way to serve a step at one context."""

    name: str
    advice: str  # completes "it would help most to ..."; empty where there is nothing to change to
    total_ms: float
    batch: int
    gpu_bytes: float  # weights, state, and KV on the GPU
    host_bytes: float
    limit: str  # what sets its pace
    rests_on: str  # the assumption it stands or falls with

    @property
    def tokens_per_s(self) -> float:
        return self.batch / self.total_ms * 1e3


def ways(
    model: ModelConfig,
    hw: HardwareProfile,
    usable: Fraction | None,
    step: Comparison,
    terms: Terms,
    window: int | None,
) -> tuple[Way, ...]:
    """Every way that fits, as far as memory is known, fastest first.

    `step` is what `terms` come to, and `window` the largest R that fits beside its buffers, None where none is known.
    """
    at = _Start(model, hw, usable, step, terms)
    found = (*_policies(at, window), *_smaller_caches(at), *_on_the_host(at), *_streamed_weights(at))
    host = float("inf") if hw.host_capacity_gb is None else hw.host_capacity_gb * GB
    found = (way for way in found if way.host_bytes <= host)
    return tuple(sorted(found, key=lambda way: round(way.total_ms, 2)))  # of equals, the simpler first


@dataclass(frozen=True)
class _Start:
    """The pair, its memory, and the step as asked for: what every way starts from."""

    model: ModelConfig
    hw: HardwareProfile
    usable: Fraction | None
    step: Comparison
    terms: Terms

    @property
    def beside_kv(self) -> float:
        """Bytes of weights and state."""
        return self.model.total_bytes + self.step.batch * self.model.state_bytes

    @property
    def resident(self) -> Terms:
        return replace(self.terms, resident_tokens=self.step.ctx_len)

    def fits(self, terms: Terms, depth: int) -> bool:
        """Whether the plan fits; True where the card's memory is not known."""
        step = self.step
        return self.usable is None or fits(self.model, self.usable, step.ctx_len, step.batch, depth, terms)

    def compare(self, terms: Terms, depth: int) -> Comparison:
        return compare(self.model, self.hw, self.step.ctx_len, self.step.batch, depth, terms)

    def prefetched(self, name: str, advice: str, rests_on: str, terms: Terms, depth: int) -> Iterator[Way]:
        """The way that prefetches under `terms`, if it fits."""
        if self.fits(terms, depth):
            other = self.compare(terms, depth)
            gpu = self.beside_kv + other.prefetch.gpu_kv_bytes
            limit = LIMITS[other.bound]
            yield Way(name, advice, other.prefetch.total_ms, other.batch, gpu, other.offloaded_bytes, limit, rests_on)


def _policies(at: _Start, window: int | None) -> Iterator[Way]:
    """The cache as it is: all on the GPU, or offloaded and fetched one way or another."""
    step, depth, terms = at.step, at.step.depth, at.terms
    if at.usable is not None:
        yield from at.prefetched(
            "all KV on the GPU", "keep all KV on the GPU", "the reserve holds all else", at.resident, depth
        )
    if at.fits(terms, 0):
        gpu = at.beside_kv + step.ondemand.gpu_kv_bytes
        latency, limit = step.ondemand.total_ms, LIMITS["pcie" if step.transfer_ms > step.compute_ms else "compute"]
        yield Way("on demand", "", latency, step.batch, gpu, step.offloaded_bytes, limit, "nothing overlaps")
    for ahead in sorted({1, 2, depth, min(depth + 1, MOST_DEPTH)}):
        layers = "one layer" if ahead == 1 else f"{ahead} layers"
        yield from at.prefetched(f"prefetch, {layers} ahead", f"look {layers} ahead", "copies run freely", terms, ahead)
    if window not in (None, 0, terms.resident_tokens) and window < step.ctx_len:
        newest = f"newest {window} token{'s' if window > 1 else ''}"
        yield from at.prefetched(
            f"prefetch, {newest} on the GPU",
            f"keep the {newest} of every layer on the GPU",
            "the window is split off each layer's cache",
            replace(terms, resident_tokens=window),
            depth,
        )
    if not terms.resident_windows and has_windows(at.model.layers):
        yield from at.prefetched(
            "prefetch, sliding windows on the GPU",
            "keep the sliding layers' windows on the GPU",
            "layers are placed one by one",
            replace(terms, resident_windows=True),
            depth,
        )
    if not terms.cross_token_overlap:
        yield from at.prefetched(
            "prefetch, overlapping the next token",
            "let the next token's first fetches overlap this token's end",
            "the engine does not wait between tokens",
            replace(terms, cross_token_overlap=True),
            depth,
        )


def _smaller_caches(at: _Start) -> Iterator[Way]:
    """The cache in fewer bits: on the GPU where it then fits, else offloaded."""
    for kv_dtype, bits in SMALLER_KV.items():
        if bits < int(8 * KV_BYTES[at.terms.kv_dtype]):  # blocks hold their scale beside the bits
            rests_on = f"{bits} bits are precise enough, and unpacking them costs no time"
            resident = replace(at.resident, kv_dtype=kv_dtype)
            if at.usable is not None and at.fits(resident, at.step.depth):
                advice = f"store the cache in {bits} bits, all of which stays on the GPU"
                yield from at.prefetched(f"{bits}-bit cache on the GPU", advice, rests_on, resident, at.step.depth)
            else:
                offloaded, advice = replace(at.terms, kv_dtype=kv_dtype), f"store the cache in {bits} bits"
                yield from at.prefetched(f"prefetch, {bits}-bit cache", advice, rests_on, offloaded, at.step.depth)


def _on_the_host(at: _Start) -> Iterator[Way]:
    """Attention where the cache lies; only where the file says how fast the host really reads."""
    hw = at.hw
    if hw.host_gb_s is None or hw.host_efficiency is None or (at.usable is not None and at.beside_kv > at.usable):
        return
    engine = at.compare(replace(at.resident, kv_read=False), at.step.depth)
    cache = at.model.kv_bytes(at.step.ctx_len, at.step.batch, at.terms.kv_dtype)
    reading_ms = 1e3 * cache / (hw.host_gb_s * GB * hw.host_efficiency)
    rests_on = f"the host reads at {hw.host_efficiency:g} of {hw.host_gb_s:g} GB/s, and each layer waits for it"
    yield Way(
        name="attention on the host",
        advice="compute attention on the host",
        total_ms=engine.engine_ms + reading_ms,
        batch=at.step.batch,
        gpu_bytes=at.beside_kv,
        host_bytes=cache,
        limit="host memory" if reading_ms > engine.engine_ms else "engine",
        rests_on=rests_on,
    )


def _streamed_weights(at: _Start) -> Iterator[Way]:
    """All KV on the GPU, and the weights that then find no room fetched in each step."""
    layers, batch = at.model.layers, at.step.batch
    cache = at.model.kv_bytes(at.step.ctx_len, batch, at.terms.kv_dtype)
    overflow = 0.0 if at.usable is None else at.beside_kv + cache - float(at.usable)
    routed = np.array([layer.experts * layer.expert_bytes for layer in layers])
    movable = routed if routed.any() else np.array([layer.all_bytes for layer in layers])
    buffers = 1 if routed.any() else min(at.step.depth + 1, len(layers))
    in_buffers = buffers * movable.max() / movable.sum()  # share of what is moved that its buffers take again
    if overflow <= 0 or in_buffers >= 1 or overflow / (1 - in_buffers) > movable.sum():
        return
    moved = movable * (overflow / (1 - in_buffers) / movable.sum())
    engine = at.compare(at.resident, at.step.depth)
    head = head_time(at.model, at.hw, at.terms)
    compute = np.append(engine.compute, head)
    touched = [touched_experts(layer, batch) / layer.experts if layer.experts else 1.0 for layer in layers]
    fetched = moved * touched
    transfer = fetched / (at.hw.pcie_gb_s * GB * at.terms.pcie_efficiency)
    transfer = np.append(transfer + (fetched > 0) * at.terms.copy_latency_us * MICRO, 0)
    if routed.any():
        total, rests_on = ondemand_step(compute, transfer), "experts are fetched on demand: routing is not known ahead"
    else:
        total, rests_on = prefetch_step(compute, transfer, at.step.depth), "weights lie in pinned host memory"
    yield Way(
        name=f"weights streamed, {size(moved.sum())} of them on the host",
        advice=f"stream {size(moved.sum())} of weights instead of the cache",
        total_ms=1e3 * float(total),
        batch=batch,
        gpu_bytes=float(at.usable),
        host_bytes=float(moved.sum()),
        limit=LIMITS["pcie" if transfer.sum() > compute.sum() - head else "compute"],
        rests_on=rests_on,
    )
