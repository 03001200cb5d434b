"""What do the figures say in words? The sentences of a report, computed from its data.

Sentences whose wording depends on the data live here, where each wording is tested; the
notebook holds all other prose.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvprefetch.configs import GB, HardwareProfile, ModelConfig
from kvprefetch.layers import is_uniform, kv_bytes, step_weight_bytes
from kvprefetch.planner import Comparison, Sweep

if TYPE_CHECKING:
    from kvprefetch.verify import Check  # which loads the event simulation


def tokens(count: int | None) -> str:
    """ "1 token", "1306 tokens"; "never" where there is no such context."""
    return "never" if count is None else f"{count} token" if count == 1 else f"{count} tokens"


def grouped(number: int | float) -> str:
    """A whole number with its digits in threes."""
    return f"{number:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")


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


def derivation(longest: Comparison, n_star: int | None) -> str:
    """What compute and transfer come to, and where they meet."""
    sum_c, sum_t = 1e3 * sum(longest.compute), 1e3 * sum(longest.transfer)
    sums = (
        f"A step computes for {sum_c:.3f} ms at any context, and at {tokens(longest.ctx_len)} its KV is on the link "
        f"for {sum_t:.3f} ms"
    )
    if n_star is None:
        return f"{sums}; windows cap what the link carries, which never takes as long as the engine."
    return f"{sums}; the link catches up at {tokens(n_star)}, and everything else follows."


def weights(model: ModelConfig, hw: HardwareProfile, comparison: Comparison) -> str:
    """From weights to compute, with this model's numbers."""
    read = step_weight_bytes(model.layers, comparison.batch)
    c_ms, sum_c = 1e3 * comparison.compute[0], 1e3 * sum(comparison.compute)
    layer, megabytes = model.layers[0], read[0] / 1e6
    if is_uniform(model.layers) and not layer.experts:
        return (
            f"Here: {grouped(layer.params)} weights × {read[0] / layer.params:g} bytes = {megabytes:.2f} MB, and "
            f"{megabytes:.2f} MB / {hw.hbm_gb_s:g} GB/s = **{c_ms:.4f} ms** a layer. All {len(read)} layers hold "
            f"{grouped(model.params)} weights and take {sum_c:.3f} ms."
        )
    a_layer = f"{megabytes:.2f}" if len(set(read)) == 1 else f"from {read.min() / 1e6:.2f} to {read.max() / 1e6:.2f}"
    return (
        f"Here: {len(read)} layers hold {grouped(model.params)} weights, of which one token uses "
        f"{grouped(model.active_params)}. A step reads {read.sum() / 1e9:.3f} GB, {a_layer} MB a layer, and "
        f"{read.sum() / 1e9:.3f} GB / {hw.hbm_gb_s:g} GB/s = **{sum_c:.3f} ms**."
    )


def cache(model: ModelConfig, hw: HardwareProfile, comparison: Comparison) -> str:
    """From cached tokens to transfer, with this model's numbers."""
    held = kv_bytes(model.layers, comparison.ctx_len, comparison.batch)
    at, rate = tokens(comparison.ctx_len), f"{hw.pcie_gb_s:g} GB/s"
    if is_uniform(model.layers):
        a_token = kv_bytes(model.layers, 1, comparison.batch)[0]
        return (
            f"Here: a layer's cache grows by {grouped(a_token)} bytes a token. At {at} it is {held[0] / 1e6:.2f} MB, "
            f"and {held[0] / 1e6:.2f} MB / {rate} = **{1e3 * comparison.transfer[0]:.4f} ms** a layer."
        )
    smallest, largest, total = held[held > 0].min() / 1e6, held.max() / 1e6, held.sum() / 1e6
    return (
        f"Here, at {at}: {(held > 0).sum()} of {len(held)} layers hold a cache, from {smallest:.2f} to {largest:.2f} "
        f"MB a layer and {total:.2f} MB in all, and {total:.2f} MB / {rate} = "
        f"**{1e3 * sum(comparison.transfer):.3f} ms**."
    )


def crossover_sums(model: ModelConfig, hw: HardwareProfile, n_star: int | None, batch: int) -> str:
    """Where the link catches up with the engine, with this model's numbers."""
    if n_star is None:
        return "Here: never. Every cache is a window, and full windows cross the link faster than the engine computes."
    sum_c = 1e3 * step_weight_bytes(model.layers, batch).sum() / (hw.hbm_gb_s * GB)
    sum_t = 1e3 * kv_bytes(model.layers, n_star, batch).sum() / (hw.pcie_gb_s * GB)
    return f"Here: at $n^*$ = **{n_star}** the link needs {sum_t:.4f} ms and the engine {sum_c:.4f} ms."


def pace(n_star: int | None, peak: Comparison) -> str:
    """Which resource sets the pace where, and where the gap is widest."""
    widest = f"the gap to on-demand is widest, in proportion, at {tokens(peak.ctx_len)}"
    if n_star is None:
        return f"The engine is the bound at every context; {widest}."
    return f"The engine is the bound below {tokens(n_star)} and the link from there on; {widest}."


def crossover(n_star: int | None, sweep: Sweep) -> str:
    """Which of the swept contexts lie on which side of the crossover?"""
    pcie = sweep.bound == "pcie"
    share = "all" if pcie.all() else "none" if not pcie.any() else f"{pcie.sum()} of {pcie.size}"
    if n_star is None:
        return "The link never takes as long as the engine: windows cap what it carries."
    if n_star == 1:
        where = "at every context"
    else:
        where = f"from {tokens(n_star)} on; below, the engine is busy longer"
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
    """What does more depth buy, and what does it cost?"""
    saved = one.prefetch.total_ms - deeper.prefetch.total_ms
    memory = (deeper.prefetch.gpu_kv_bytes - one.prefetch.gpu_kv_bytes) / 1e6
    knob = "a speed knob here" if saved > 1e-9 * one.prefetch.total_ms else "a memory knob here, not a speed knob"
    return (
        f"From depth {one.depth} to {deeper.depth} the step at {tokens(one.ctx_len)} gets {max(0.0, saved):.2f} ms "
        f"shorter and the KV blocks on the GPU grow by {memory:.1f} MB: depth is {knob}."
    )


def knobs(ways: Sequence[Comparison]) -> str:
    """Which of the ways shortens the step most, and at what cost in GPU memory? The first is where one starts."""
    start, *others = ways
    best = min(others, key=lambda way: way.prefetch.total_ms)
    saved = start.prefetch.total_ms - best.prefetch.total_ms
    if saved <= 1e-9 * start.prefetch.total_ms:
        return "None of these shortens the step at this context: its pace is set elsewhere."
    name = "keeping the windows on the GPU" if best.ondemand.resident_bytes else f"depth {best.depth}"
    more = (best.prefetch.gpu_kv_bytes - start.prefetch.gpu_kv_bytes) / 1e6
    return f"The strongest of these is {name}: {saved:.2f} ms shorter for {more:.1f} MB of GPU memory more."


def depth_caption(by_depth: Sequence[Sequence[Comparison]]) -> str:
    """What to see in the charts over depth."""
    if any(row[0].prefetch.total_ms > row[-1].prefetch.total_ms * (1 + 1e-9) for row in by_depth):
        return (
            "More depth shortens the step where a long transfer can start earlier (above), and adds KV blocks (below)."
        )
    return "More depth leaves the step where it is (above) and only adds KV blocks on the GPU (below)."


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
        f"at {tokens(each.ctx_len)} ({bound(each)}) the transfers take {1e3 * sum(each.transfer):.2f} ms in all, the "
        f"computation {1e3 * sum(each.compute):.2f} ms, and the step {each.ondemand.total_ms:.2f} ms on demand, "
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
