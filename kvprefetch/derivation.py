"""How does this pair's result follow? The laws, with the pair's numbers put in.

In a stack of equal layers they have closed forms; in others the recurrence and its bounds say it.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvprefetch.configs import GB, HardwareProfile, ModelConfig
from kvprefetch.formats import change, grouped, tokens
from kvprefetch.layers import is_uniform, kv_bytes, step_weight_bytes
from kvprefetch.planner import Comparison
from kvprefetch.prose import bound

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
        f"In first order a step computes for {longest.compute_ms:.3f} ms at any context, and at "
        f"{tokens(longest.ctx_len)} its KV is on the link for {longest.transfer_ms:.3f} ms"
    )
    if n_star is None:
        return f"{sums}; windows cap what the link carries, which never takes as long as the engine."
    return f"{sums}; the link catches up at {tokens(n_star)}, and everything else follows."


def weights(model: ModelConfig, hw: HardwareProfile, comparison: Comparison) -> str:
    """From weights to compute, with this model's numbers."""
    read = step_weight_bytes(model.layers, comparison.batch)
    c_ms, step_ms = 1e3 * comparison.compute[0], comparison.compute_ms
    layer, megabytes = model.layers[0], read[0] / 1e6
    law = DENSE_LAW if model.num_attention_heads else ""
    if is_uniform(model.layers) and not layer.experts:
        return (
            f"{law}Here: {grouped(layer.params)} weights × {read[0] / layer.params:g} bytes = {megabytes:.2f} MB, and "
            f"{megabytes:.2f} MB / {hw.hbm_gb_s:g} GB/s = **{c_ms:.4f} ms** a layer. All {len(read)} layers hold "
            f"{grouped(model.params)} weights and take {step_ms:.3f} ms."
        )
    a_layer = f"{megabytes:.2f}" if len(set(read)) == 1 else f"from {read.min() / 1e6:.2f} to {read.max() / 1e6:.2f}"
    routed = f", of which one token uses {grouped(model.active_params)}" if model.active_params < model.params else ""
    return (
        f"Here: {len(read)} layers hold {grouped(model.params)} weights{routed}. A step reads {read.sum() / 1e9:.3f} "
        f"GB, {a_layer} MB a layer, and {read.sum() / 1e9:.3f} GB / {hw.hbm_gb_s:g} GB/s = **{step_ms:.3f} ms**."
    )


def cache(model: ModelConfig, hw: HardwareProfile, comparison: Comparison) -> str:
    """From cached tokens to transfer, with this model's numbers."""
    held = kv_bytes(model.layers, comparison.ctx_len, comparison.batch)
    at, rate = tokens(comparison.ctx_len), f"{hw.pcie_gb_s:g} GB/s"
    if is_uniform(model.layers):
        a_token, window = kv_bytes(model.layers, 1, comparison.batch)[0], model.layers[0].window
        cap = f", up to its window of {tokens(window)}" if window else ""
        return (
            f"Here: a layer's cache grows by {grouped(a_token)} bytes a token{cap}. At {at} it is {held[0] / 1e6:.2f} "
            f"MB, and {held[0] / 1e6:.2f} MB / {rate} = **{1e3 * comparison.transfer[0]:.4f} ms** a layer."
        )
    smallest, largest, total = held[held > 0].min() / 1e6, held.max() / 1e6, held.sum() / 1e6
    each = f"{largest:.2f}" if smallest == largest else f"from {smallest:.2f} to {largest:.2f}"
    return (
        f"Here, at {at}: {(held > 0).sum()} of {len(held)} layers hold a cache, {each} MB a layer and {total:.2f} MB "
        f"in all, and {total:.2f} MB / {rate} = **{comparison.transfer_ms:.3f} ms**."
    )


def ondemand(longest: Comparison) -> str:
    """The sum, with this pair's numbers."""
    sums = f"{longest.compute_ms:.4f} + {longest.transfer_ms:.4f} ms = **{longest.ondemand.total_ms:.3f} ms**"
    return f"Here, at {tokens(longest.ctx_len)}: {sums}."


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
        f"\n\nHere, at {at}: {t:.5f} + {more} × {max(c, t):.5f} + {c:.5f} = {longest.prefetch.total_ms:.3f} ms. {step}"
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
    if model.layers[0].experts or model.layers[0].window:
        scaling = ""
    else:
        scaling = (
            " It scales with the weights a layer reads and with the ratio of the link's rate to the memory's, and "
            "inversely with the batch and with the KV bytes a token takes."
        )
    law = r"$$n^* = \left\lceil \frac{W}{\text{HBM}} \cdot \frac{\text{PCIe}}{K(1)} \right\rceil$$"
    equal = "In a stack of equal layers that is one ceiling, with $K(1)$ the bytes of one token"
    return f"{equal}:\n\n{law}\n\n{sums}{scaling}"


def benefit(model: ModelConfig, peak: Comparison, n_star: int | None) -> str:
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
    law = (
        "Divide both steps by $c$ and write $x = t / c$. The reduction is\n\n"
        r"$$1 - \frac{\text{prefetch}}{\text{on-demand}} = \frac{L - 1}{L} \cdot \frac{\min(1, x)}{1 + x}$$"
    )
    if layers == 1:
        return (
            f"### Why there is no benefit\n\n{law}\n\nWith one layer that is 0 at every context: its fetch comes "
            "before all computation."
        )
    if n_star is None:
        return (
            f"### Why the benefit rises until the window is full\n\n{law}\n\nIt rises with $x$ up to 1, and here the "
            f"window keeps $x$ below: {reached}, and so does every longer one."
        )
    return (
        f"### Why the benefit rises, peaks, and falls\n\n{law}\n\nBelow the crossover there is ever more transfer to "
        "hide and compute enough to hide it; beyond it the same compute hides an ever smaller part of a growing "
        "transfer. The largest value is at $x = 1$:\n\n"
        r"$$\text{reduction} \le \frac{L - 1}{2L} < \frac{1}{2}$$"
        f"\n\nHere: ({layers} − 1) / (2 × {layers}) = {50 * (layers - 1) / layers:.3f} %, and {reached}."
    )


def depth_cost(model: ModelConfig, one: Comparison, deeper: Comparison) -> str:
    """What does more depth buy, and what does it cost?"""
    saved = one.prefetch.total_ms - deeper.prefetch.total_ms
    memory = (deeper.prefetch.gpu_kv_bytes - one.prefetch.gpu_kv_bytes) / 1e6
    faster = saved > 1e-9 * one.prefetch.total_ms
    shorter = f"{saved:.2f} ms shorter" if faster else "no shorter"
    grow = f"grow by {memory:.1f} MB" if memory else "stay as they are"
    if faster:
        knob = "depth is a speed knob here"
    else:
        knob = "depth is a memory knob here, not a speed knob" if memory else "there is nothing left to fetch ahead"
    law = ""
    if is_uniform(model.layers) and faster:
        law = (
            "The closed form holds at every depth, but the LM head breaks the pace: while the engine is busy with it, "
            "further buffers let the link run on into the next token. "
        )
    elif is_uniform(model.layers):
        law = (
            "The closed form holds at every depth: in a stack of equal layers one buffer ahead already keeps the "
            "slower resource busy without a gap, and no number of further buffers makes it faster. "
        )
    return (
        f"{law}From depth {one.depth} to {deeper.depth} the step at {tokens(one.ctx_len)} "
        f"gets {shorter} and the KV blocks on the GPU {grow}: {knob}."
    )


def in_force(first: Comparison, longest: Comparison, first_n_star: int | None, n_star: int | None) -> str:
    """What the terms in force make of first order: sums, steps and crossover at one context."""
    return (
        f"Here, at {tokens(longest.ctx_len)}, first order and then with them: the engine computes "
        f"{first.engine_ms:.3f} and {longest.engine_ms:.3f} ms, the link carries {first.transfer_ms:.3f} and "
        f"{longest.transfer_ms:.3f} ms, the step takes {first.ondemand.total_ms:.3f} and "
        f"{longest.ondemand.total_ms:.3f} ms on demand, {first.prefetch.total_ms:.3f} and "
        f"**{longest.prefetch.total_ms:.3f} ms** with prefetch. The crossover {change(first_n_star, n_star)}."
    )


def way(comparison: Comparison, start: Comparison) -> str:
    """What is done to shorten the step that one starts from."""
    kept = comparison.offloaded_bytes < start.offloaded_bytes
    return "windows kept on the GPU" if kept else f"depth {comparison.depth}"


def knobs(ways: Sequence[Comparison]) -> str:
    """Which of the ways shortens the step most, and at what cost in GPU memory? The first is where one starts."""
    start, *others = ways
    best = min(others, key=lambda each: each.prefetch.total_ms)
    saved = start.prefetch.total_ms - best.prefetch.total_ms
    if saved <= 1e-9 * start.prefetch.total_ms:
        if start.prefetch.total_ms > 1.05 * start.lower_bound_ms:
            return "None of these shortens the step at this context."
        pace = "the link carries" if start.bound == "pcie" else "the engine computes"
        return f"None of these shortens the step at this context: what {pace} in all sets its pace."
    more = (best.prefetch.gpu_kv_bytes - start.prefetch.gpu_kv_bytes) / 1e6
    cost = f"for {more:.1f} MB of GPU memory more" if more >= 0 else f"with {-more:.1f} MB of GPU memory less"
    return f"The strongest of these is {way(best, start)}: {saved:.2f} ms shorter {cost}."
