"""What do the figures say in words? The sentences of a report, computed from its data.

Sentences whose wording depends on the data live here, where each wording is tested; the
notebook holds all other prose.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvprefetch.planner import Comparison, Sweep
from kvprefetch.verify import Check


def tokens(count: int) -> str:
    """ "1 token", "1306 tokens"."""
    return f"{count} token" if count == 1 else f"{count} tokens"


def ahead(depth: int) -> str:
    """How far prefetch looks ahead."""
    return "one layer ahead" if depth == 1 else f"{depth} layers ahead"


def answer(peak: Comparison, longest: Comparison) -> str:
    """Does prefetch pay, where most, and what is left of it at the longest context asked for?"""
    if len(peak.compute) == 1:
        return "Prefetch cannot help: with one layer there is nothing to fetch ahead of."
    most = (
        f"Prefetching {ahead(peak.depth)} pays most at {tokens(peak.ctx_len)}, "
        f"where it cuts the step by {peak.reduction_pct:.1f} %"
    )
    at_longest = (
        f"at {tokens(longest.ctx_len)} it saves {longest.reduction_pct:.1f} % "
        f"({longest.ondemand.total_ms:.2f} → {longest.prefetch.total_ms:.2f} ms)"
    )
    if longest.bound == "pcie":
        return f"{most}; {at_longest}, because both policies then wait for the same link."
    return f"{most}; {at_longest}, hiding {100 * longest.hidden_share:.0f} % of the transfer behind compute."


def crossover(n_star: int, sweep: Sweep) -> str:
    """Which of the swept contexts lie on which side of the crossover?"""
    pcie = sweep.bound == "pcie"
    if n_star == 1:
        where = "at every context"
    else:
        where = f"from {tokens(n_star)} on; below, compute hides it"
    share = "all" if pcie.all() else "none" if not pcie.any() else f"{pcie.sum()} of {pcie.size}"
    return f"The link takes at least as long as the engine {where}. PCIe-bound among the swept contexts: {share}."


def bound(comparison: Comparison) -> str:
    """Which resource sets the pace, in words."""
    return {"pcie": "PCIe-bound", "compute": "compute-bound"}[comparison.bound]


def sweep_range(sweep: Sweep) -> str:
    """How far does the reduction go over the swept contexts?"""
    best = int(sweep.reduction_pct.argmax())
    at_best = f"{sweep.reduction_pct[best]:.1f} % at {tokens(sweep.ctx_len[best])}"
    if len(sweep.ctx_len) == 1:
        return f"The reduction is {at_best}, the only context asked for."
    worst = int(sweep.reduction_pct.argmin())
    return (
        f"Among the swept contexts the reduction is largest, {at_best}, and smallest, "
        f"{sweep.reduction_pct[worst]:.1f} % at {tokens(sweep.ctx_len[worst])}."
    )


def depth_cost(one: Comparison, deeper: Comparison) -> str:
    """What does more depth buy in a uniform stack, and what does it cost?"""
    saved = one.prefetch.total_ms - deeper.prefetch.total_ms
    memory = (deeper.prefetch.gpu_kv_bytes - one.prefetch.gpu_kv_bytes) / 1e6
    return (
        f"From depth {one.depth} to {deeper.depth} the step at {tokens(one.ctx_len)} changes by {abs(saved):.2f} ms "
        f"and the KV blocks on the GPU grow by {memory:.1f} MB: depth is a memory knob here, not a speed knob."
    )


def latency_alt(lines: Sweep, peak: Comparison) -> str:
    """What the latency and reduction charts show, for those who cannot see them."""
    return (
        f"Two charts over context, {lines.ctx_len[0]} to {tokens(lines.ctx_len[-1])}. Above, the on-demand step rises "
        f"from {lines.ondemand_ms[0]:.2f} to {lines.ondemand_ms[-1]:.2f} ms and the prefetch step from "
        f"{lines.prefetch_ms[0]:.2f} to {lines.prefetch_ms[-1]:.2f} ms. Below, the reduction peaks at "
        f"{peak.reduction_pct:.1f} % at {tokens(peak.ctx_len)} and ends at {lines.reduction_pct[-1]:.1f} %."
    )


def timeline_alt(*comparisons: Comparison) -> str:
    """What the timelines show, for those who cannot see them."""
    parts = [
        f"at {tokens(each.ctx_len)} ({bound(each)}) a layer's transfer takes {1e3 * each.transfer[0]:.3f} ms, its "
        f"compute {1e3 * each.compute[0]:.3f} ms, and the step {each.ondemand.total_ms:.2f} ms on demand, "
        f"{each.prefetch.total_ms:.2f} ms with prefetch"
        for each in comparisons
    ]
    return f"Timelines of the first layers on link and engine: {'; '.join(parts)}."


def depth_alt(by_depth: Sequence[Sequence[Comparison]]) -> str:
    """What the charts over depth show, for those who cannot see them; a row of comparisons a context."""
    parts = [
        f"at {tokens(row[0].ctx_len)} from {row[0].prefetch.total_ms:.2f} to {row[-1].prefetch.total_ms:.2f} ms "
        f"and from {row[0].prefetch.gpu_kv_bytes / 1e6:.1f} to {row[-1].prefetch.gpu_kv_bytes / 1e6:.1f} MB"
        for row in by_depth
    ]
    first, last = by_depth[0][0].depth, by_depth[0][-1].depth
    return f"Prefetch step and KV blocks on the GPU, from depth {first} to {last}: {'; '.join(parts)}."


def checks(results: tuple[Check, ...]) -> str:
    """Do the checks hold?"""
    failed = [check.claim for check in results if not check.holds]
    if failed:
        return f"{len(failed)} of {len(results)} checks fail: {'; '.join(failed)}."
    return f"All {len(results)} checks hold: each figure was worked out a second way and agrees."
