"""How does this pair's result follow? The laws, with the pair's numbers put in.

In a stack of equal layers they have closed forms; in others the recurrence and its bounds say it.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvprefetch.configs import GB, HardwareProfile, ModelConfig
from kvprefetch.layers import is_uniform, kv_bytes, step_weight_bytes
from kvprefetch.planner import Comparison
from kvprefetch.prose import bound, grouped, sum_c, sum_t, tokens

DENSE_LAW = (
    r"The matrices are the projections of the queries and the output ($h \times ae$ each), of the keys and the values "
    r"($h \times ge$ each), and the three of the gated MLP ($h \times f$ each); at $s_w$ bytes a weight"
    "\n\n"
    r"$$W = s_w \left( 2\,h\,a\,e + 2\,h\,g\,e + 3\,h\,f \right)$$"
    "\n\n"
)


def summary(longest: Comparison, n_star: int | None) -> str:
    """What compute and transfer come to, and where they meet."""
    sums = (
        f"A step computes for {sum_c(longest):.3f} ms at any context, and at {tokens(longest.ctx_len)} its KV is on "
        f"the link for {sum_t(longest):.3f} ms"
    )
    if n_star is None:
        return f"{sums}; windows cap what the link carries, which never takes as long as the engine."
    return f"{sums}; the link catches up at {tokens(n_star)}, and everything else follows."


def weights(model: ModelConfig, hw: HardwareProfile, comparison: Comparison) -> str:
    """From weights to compute, with this model's numbers."""
    read = step_weight_bytes(model.layers, comparison.batch)
    c_ms, step_ms = 1e3 * comparison.compute[0], sum_c(comparison)
    layer, megabytes = model.layers[0], read[0] / 1e6
    law = DENSE_LAW if model.num_attention_heads else ""
    if is_uniform(model.layers) and not layer.experts:
        return (
            f"{law}Here: {grouped(layer.params)} weights × {read[0] / layer.params:g} bytes = {megabytes:.2f} MB, and "
            f"{megabytes:.2f} MB / {hw.hbm_gb_s:g} GB/s = **{c_ms:.4f} ms** a layer. All {len(read)} layers hold "
            f"{grouped(model.params)} weights and take {step_ms:.3f} ms."
        )
    a_layer = f"{megabytes:.2f}" if len(set(read)) == 1 else f"from {read.min() / 1e6:.2f} to {read.max() / 1e6:.2f}"
    return (
        f"Here: {len(read)} layers hold {grouped(model.params)} weights, of which one token uses "
        f"{grouped(model.active_params)}. A step reads {read.sum() / 1e9:.3f} GB, {a_layer} MB a layer, and "
        f"{read.sum() / 1e9:.3f} GB / {hw.hbm_gb_s:g} GB/s = **{step_ms:.3f} ms**."
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
        f"**{sum_t(comparison):.3f} ms**."
    )


def ondemand(longest: Comparison) -> str:
    """The sum, with this pair's numbers."""
    total = f"{longest.ondemand.total_ms:.3f}"
    return f"Here, at {tokens(longest.ctx_len)}: {sum_c(longest):.3f} + {sum_t(longest):.3f} ms = **{total} ms**."


def makespan(model: ModelConfig, longest: Comparison) -> str:
    """The prefetch step, its bounds and its stall; in a stack of equal layers also the closed form."""
    at = tokens(longest.ctx_len)
    step = (
        f"The prefetch step at {at} is **{longest.prefetch.total_ms:.3f} ms**, between the bounds "
        f"{longest.lower_bound_ms:.3f} and {longest.upper_bound_ms:.3f} ms. The engine stalls for "
        f"{longest.stall_ms:.3f} ms of it, and prefetch hides {100 * longest.hidden_share:.1f} % of the transfer."
    )
    if not is_uniform(model.layers):
        return step
    c, t, more = 1e3 * longest.compute[0], 1e3 * longest.transfer[0], len(longest.compute) - 1
    return (
        "In a stack of equal layers the slower resource sets the pace from the second layer on, the first transfer has "
        "nothing to hide behind, and the last computation hides nothing:\n\n"
        r"$$\text{prefetch} = t + (L - 1) \max(c, t) + c$$"
        f"\n\nHere, at {at}: {t:.4f} + {more} × {max(c, t):.4f} + {c:.4f} ms. {step}"
    )


def crossover_sums(model: ModelConfig, hw: HardwareProfile, n_star: int | None, batch: int) -> str:
    """Where the link catches up with the engine, with this model's numbers."""
    if n_star is None:
        return "Here: never. Every cache is a window, and full windows cross the link faster than the engine computes."
    engine_ms = 1e3 * step_weight_bytes(model.layers, batch).sum() / (hw.hbm_gb_s * GB)
    link_ms = 1e3 * kv_bytes(model.layers, n_star, batch).sum() / (hw.pcie_gb_s * GB)
    sums = f"Here: at $n^*$ = **{n_star}** the link needs {link_ms:.4f} ms and the engine {engine_ms:.4f} ms."
    if not is_uniform(model.layers):
        return sums
    law = r"$$n^* = \left\lceil \frac{W}{\text{HBM}} \cdot \frac{\text{PCIe}}{K(1)} \right\rceil$$"
    return f"In a stack of equal layers that is one ceiling, with $K(1)$ the bytes of one token:\n\n{law}\n\n{sums}"


def benefit(model: ModelConfig, peak: Comparison) -> str:
    """Why the reduction has a ceiling and where it is largest: a law for equal layers, a finding for others."""
    reached = f"the best whole context, {peak.ctx_len}, reaches {peak.reduction_pct:.3f} %"
    if not is_uniform(model.layers):
        return (
            "### Where the benefit is largest\n\nPrefetch saves at most the shorter of the two sums, so the reduction "
            "is at most one half, in every stack. Where layers differ it need not peak at the crossover, nor rise and "
            f"fall only once. Here {reached}; the sums call it {bound(peak)}, and the engine stalls there for "
            f"{peak.stall_ms:.3f} ms."
        )
    layers = len(peak.compute)
    return (
        "### Why the benefit rises, peaks, and falls\n\nDivide both steps by $c$ and write $x = t / c$, which is the "
        "context in units of the crossover. The reduction is\n\n"
        r"$$1 - \frac{\text{prefetch}}{\text{on-demand}} = \frac{L - 1}{L} \cdot \frac{\min(1, x)}{1 + x}$$"
        "\n\nBelow the crossover there is ever more transfer to hide and compute enough to hide it; beyond it the same "
        "compute hides an ever smaller part of a growing transfer. The largest value is at $x = 1$:\n\n"
        r"$$\text{reduction} \le \frac{L - 1}{2L} < \frac{1}{2}$$"
        f"\n\nHere: ({layers} − 1) / (2 × {layers}) = {50 * (layers - 1) / layers:.3f} %, and {reached}."
    )


def depth_cost(model: ModelConfig, one: Comparison, deeper: Comparison) -> str:
    """What does more depth buy, and what does it cost?"""
    saved = one.prefetch.total_ms - deeper.prefetch.total_ms
    memory = (deeper.prefetch.gpu_kv_bytes - one.prefetch.gpu_kv_bytes) / 1e6
    knob = "a speed knob here" if saved > 1e-9 * one.prefetch.total_ms else "a memory knob here, not a speed knob"
    law = (
        "The closed form holds at every depth: in a stack of equal layers one buffer ahead already keeps the slower "
        "resource busy without a gap, and no number of further buffers makes it faster. "
    )
    law = law if is_uniform(model.layers) else ""
    return (
        f"{law}From depth {one.depth} to {deeper.depth} the step at {tokens(one.ctx_len)} "
        f"gets {max(0.0, saved):.2f} ms shorter and the KV blocks on the GPU grow by {memory:.1f} MB: depth is {knob}."
    )


def way(comparison: Comparison) -> str:
    """What is done to shorten the step."""
    return "windows resident" if comparison.ondemand.resident_bytes else f"depth {comparison.depth}"


def knobs(ways: Sequence[Comparison]) -> str:
    """Which of the ways shortens the step most, and at what cost in GPU memory? The first is where one starts."""
    start, *others = ways
    best = min(others, key=lambda each: each.prefetch.total_ms)
    saved = start.prefetch.total_ms - best.prefetch.total_ms
    if saved <= 1e-9 * start.prefetch.total_ms:
        return "None of these shortens the step at this context: its pace is set elsewhere."
    more = (best.prefetch.gpu_kv_bytes - start.prefetch.gpu_kv_bytes) / 1e6
    return f"The strongest of these is {way(best)}: {saved:.2f} ms shorter for {more:.1f} MB of GPU memory more."
