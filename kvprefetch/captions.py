"""What do the figures show? For those who cannot see them, and for those who ask what to look at."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvprefetch.accuracy import Cloud
from kvprefetch.planner import Comparison, Sweep
from kvprefetch.prose import bound, tokens
from kvprefetch.sensitivity import Swing


def latency_alt(lines: Sweep, peak: Comparison) -> str:
    """What the latency and reduction charts show, for those who cannot see them."""
    return (
        f"Two charts over context, {lines.ctx_len[0]} to {tokens(lines.ctx_len[-1])}. Above, the on-demand step rises "
        f"from {lines.ondemand_ms[0]:.2f} to {lines.ondemand_ms[-1]:.2f} ms and the prefetch step from "
        f"{lines.prefetch_ms[0]:.2f} to {lines.prefetch_ms[-1]:.2f} ms. Below, the reduction peaks at "
        f"{peak.reduction_pct:.1f} % at {tokens(peak.ctx_len)} and ends at {lines.reduction_pct[-1]:.1f} %."
    )


def agreement_alt(clouds: Sequence[Cloud], bands_pct: Sequence[int]) -> str:
    """What the chart of predicted against measured steps shows, for those who cannot see it."""
    near, far = sorted(bands_pct)[0], sorted(bands_pct)[-1]
    parts = []
    for cloud in clouds:
        errors = [100 * (p / m - 1) for m, p in zip(cloud.measured_ms, cloud.predicted_ms, strict=True)]
        within = [sum(abs(error) <= band for error in errors) for band in (near, far)]
        parts.append(
            f"{cloud.kind}: {len(errors)} rows, {within[0]} within {near} % and {within[1]} within {far} %, errors "
            f"from {min(errors):+.1f} to {max(errors):+.1f} %"
        )
    return f"Predicted against measured steps on equal axes. {'; '.join(parts)}."


def timeline_alt(*comparisons: Comparison) -> str:
    """What the timelines show, for those who cannot see them."""
    parts = [
        f"at {tokens(each.ctx_len)} ({bound(each)}) the transfers take {each.transfer_ms:.2f} ms in all, the "
        f"computation {each.compute_ms:.2f} ms, and the step {each.ondemand.total_ms:.2f} ms on demand, "
        f"{each.prefetch.total_ms:.2f} ms with prefetch"
        for each in comparisons
    ]
    return f"Timelines of the first layers on link and engine: {'; '.join(parts)}."


def tornado_alt(swings: Sequence[Swing], crossover: int | None, prefetch_ms: float) -> str:
    """What the charts of sensitivity show, for those who cannot see them."""
    parts = [
        f"{swing.figure} {point.change}: {tokens(point.crossover_ctx)}, {point.prefetch_ms:.2f} ms"
        for swing in swings
        for point in (swing.low, swing.high)
    ]
    return f"Crossover, now {tokens(crossover)}, and prefetch step, now {prefetch_ms:.2f} ms, by {'; '.join(parts)}."


def map_alt(contexts: Sequence[int], rates: Sequence[float], reduction: np.ndarray) -> str:
    """What the map of the reduction shows, for those who cannot see it."""
    tops = [
        f"with {rates[row]:.0f} GB/s it is largest, {reduction[row].max():.0f} %, at "
        f"{tokens(contexts[reduction[row].argmax()])}"
        for row in (0, len(rates) // 2, -1)
    ]
    return f"The reduction over context and link rate: {'; '.join(tops)}."


def depth_alt(by_depth: Sequence[Sequence[Comparison]]) -> str:
    """What the charts over depth show, for those who cannot see them; a row of comparisons a context."""
    parts = [
        f"at {tokens(row[0].ctx_len)} from {row[0].prefetch.total_ms:.2f} to {row[-1].prefetch.total_ms:.2f} ms "
        f"and from {row[0].prefetch.gpu_kv_bytes / 1e6:.1f} to {row[-1].prefetch.gpu_kv_bytes / 1e6:.1f} MB"
        for row in by_depth
    ]
    first, last = by_depth[0][0].depth, by_depth[0][-1].depth
    return f"Prefetch step and KV blocks on the GPU, from depth {first} to {last}: {'; '.join(parts)}."


def depth_caption(by_depth: Sequence[Sequence[Comparison]]) -> str:
    """What to see in the charts over depth."""
    if any(row[0].prefetch.total_ms > row[-1].prefetch.total_ms * (1 + 1e-9) for row in by_depth):
        return (
            "More depth shortens the step where a long transfer can start earlier (above), and adds KV blocks (below)."
        )
    if all(row[0].prefetch.gpu_kv_bytes == row[-1].prefetch.gpu_kv_bytes for row in by_depth):
        return "More depth changes neither the step (above) nor the KV blocks on the GPU (below)."
    return "More depth leaves the step where it is (above) and only adds KV blocks on the GPU (below)."
