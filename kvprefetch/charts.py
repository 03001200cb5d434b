"""How do the figures look? Data and Axes in, Axes out; one style for every chart.

Colours are Okabe and Ito's, which colour-blind readers tell apart; lines carry their own labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from kvprefetch.accuracy import KINDS, Cloud
from kvprefetch.layers import MOST_CTX
from kvprefetch.links import LINKS
from kvprefetch.measured import Kind
from kvprefetch.planner import Comparison, Sweep
from kvprefetch.schedule import Timeline
from kvprefetch.sensitivity import Point, Swing

ONDEMAND, PREFETCH = "#D55E00", "#0072B2"
LINK, ENGINE = ("#E69F00", "#F5D48A"), ("#56B4E9", "#B5DDF5")  # two tints, so that neighbouring layers part
INK, PALE, SHADE = "#333333", "#DDDDDD", "#EDF1F5"  # text, grid, the PCIe-bound region
MARKS = {  # shape and colour of a measured row
    Kind.RESIDENT: ("o", "#009E73"),
    Kind.ONDEMAND: ("s", ONDEMAND),
    Kind.NEVER_WAITING: ("D", "#CC79A7"),
    Kind.ONE_AHEAD: ("^", PREFETCH),
}
WIDTH = 5.8  # inches; narrow, so that text stays legible on a phone
TOP, RIGHT, BOTTOM = 0.35, 0.3, 0.6  # inches around the axes
BELOW, LINE = 0.33, 0.2  # inches that ticks' labels take below an axis, and that a line of text takes
STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 12,
    "axes.titlesize": 12,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": PALE,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "xtick.bottom": False,
    "ytick.left": False,
    "lines.linewidth": 2.2,
    "lines.markersize": 5,
    "svg.fonttype": "none",  # text stays text, which makes a figure a third of the size
    "svg.hashsalt": "kvprefetch",  # element ids that are the same in every run
}
styled = matplotlib.style.context(["default", STYLE])  # a user's own defaults stay out


@styled
def figure(*heights: float, left: float = 0.8, right: float = RIGHT, gap: float = 0.35) -> tuple[Figure, list[Axes]]:
    """A figure with a row of axes for each height; beside them and in each `gap` is room for labels. Inches."""
    tall = sum(heights) + gap * (len(heights) - 1) + TOP + BOTTOM
    fig = Figure(figsize=(WIDTH, tall))
    # Margins and labels by hand: to find room for them lays every text out once more, a third of a figure's time.
    margins = {"left": left / WIDTH, "right": 1 - right / WIDTH, "top": 1 - TOP / tall, "bottom": BOTTOM / tall}
    spacing = {"height_ratios": heights, "hspace": gap * len(heights) / sum(heights)}
    axes = fig.subplots(len(heights), 1, squeeze=False, gridspec_kw=margins | spacing)[:, 0]
    for ax, height in zip(axes, heights, strict=True):
        ax.xaxis.set_label_coords(0.5, -BELOW / height)
        ax.yaxis.set_label_coords(-(left - LINE) / (WIDTH - left - right), 0.5)
    return fig, list(axes)


def context_grid(contexts: Sequence[int], crossover: int | None) -> np.ndarray:
    """Contexts to draw lines through: all `contexts`, the crossover, and some evenly spaced on a log axis around."""
    middle = crossover or contexts[-1]
    first = max(1, min(contexts[0], middle // 4))
    last = min(MOST_CTX, max(contexts[-1], 4 * middle))
    return np.unique([*np.geomspace(first, last, 200).round().astype(int), *contexts, min(middle, last)])


@styled
def latency(ax: Axes, lines: Sweep, points: Sweep, crossover: int | None) -> Axes:
    """Step latency of both policies by context on log axes; `points` are marked."""
    middle = len(lines.ctx_len) // 4, 3 * len(lines.ctx_len) // 4  # where a label has room on both sides
    widest = (lines.ondemand_ms / lines.prefetch_ms).argmax().clip(*middle)
    for label, colour, line, marks, aside in (
        ("on-demand", ONDEMAND, lines.ondemand_ms, points.ondemand_ms, {"xytext": (-8, 6), "ha": "right"}),
        ("prefetch", PREFETCH, lines.prefetch_ms, points.prefetch_ms, {"xytext": (10, -12), "ha": "left"}),
    ):
        ax.plot(lines.ctx_len, line, color=colour)
        ax.plot(points.ctx_len, marks, "o", color=colour, clip_on=False)
        at = (lines.ctx_len[widest], line[widest])
        ax.annotate(label, at, textcoords="offset points", color=colour, weight="bold", **aside)
    ax.set(yscale="log", ylabel="Step latency (ms)", ylim=(0.6 * lines.prefetch_ms[0], 1.3 * lines.ondemand_ms[-1]))
    ax.yaxis.set(
        major_locator=LogLocator(
            subs=(1, 2, 5) if lines.ondemand_ms[-1] < 1e4 * lines.prefetch_ms[0] else (1,), numticks=8
        ),
        minor_locator=NullLocator(),
        major_formatter=_VALUES,
    )
    _by_context(ax, lines, crossover)
    end = crossover or lines.ctx_len[-1]
    share = np.log(end / lines.ctx_len[0]) / np.log(lines.ctx_len[-1] / lines.ctx_len[0])
    for text, x, y, room in (
        (f"crossover {crossover}", share, 1.02, 1 if crossover else 0),
        ("compute-bound", share / 2, 0.03, share),
        ("PCIe-bound", (1 + share) / 2, 0.03, 1 - share),
    ):
        if room > 0.28:  # of the axis: enough for the words
            ax.text(x, y, text, transform=ax.transAxes, ha="center", va="bottom")
    ax.label_outer()
    return ax


@styled
def reduction(ax: Axes, lines: Sweep, points: Sweep, crossover: int | None) -> Axes:
    """Reduction by context on a log context axis; `points` are marked."""
    ax.plot(lines.ctx_len, lines.reduction_pct, color=INK)
    ax.plot(points.ctx_len, points.reduction_pct, "o", color=INK, clip_on=False)
    ax.set(ylim=(0, 55), ylabel="Reduction (%)", xlabel="Context (tokens)")
    return _by_context(ax, lines, crossover)


@styled
def gantt(ax: Axes, ondemand: Timeline, prefetch: Timeline, layers: int, title: str) -> Axes:
    """The first `layers` layers of a step on link and engine, under both policies; timelines of shape (L,)."""
    lanes = (
        ("on-demand: link", ondemand.fetch_start, ondemand.fetch_end, LINK),
        ("engine", ondemand.compute_start, ondemand.compute_end, ENGINE),
        ("prefetch: link", prefetch.fetch_start, prefetch.fetch_end, LINK),
        ("engine", prefetch.compute_start, prefetch.compute_end, ENGINE),
    )
    heights = (4.2, 3.3, 1.9, 1.0)
    for y, (_, starts, ends, tints) in zip(heights, lanes, strict=True):
        shown = np.flatnonzero(ends[:layers] > starts[:layers])  # a layer with nothing to fetch has no bar on the link
        start, end = 1e3 * starts[shown], 1e3 * ends[shown]
        ax.broken_barh([*zip(start, end - start, strict=True)], (y - 0.4, 0.8), color=[tints[n % 2] for n in shown])
        for layer, middle in zip(shown, (start + end) / 2, strict=True):
            ax.text(middle, y, str(layer + 1), ha="center", va="center", clip_on=True)
    ax.set_yticks(heights, [name for name, *_ in lanes])
    ax.set(title=title, xlabel="Time since the step began (ms)", xlim=(0, None))
    ax.grid(axis="y", visible=False)
    return ax


@styled
def agreement(ax: Axes, clouds: Sequence[Cloud], bands_pct: Sequence[int]) -> Axes:
    """Predicted against measured steps on equal log axes, with a band for each distance in per cent, widest first."""
    every = [value for cloud in clouds for value in (*cloud.measured_ms, *cloud.predicted_ms)]
    ends = np.array([0.8 * min(every), 1.25 * max(every)])
    for shade, band in zip((SHADE, "#CBD6E1"), sorted(bands_pct, reverse=True), strict=False):
        edges = ends * (1 - band / 100), ends * (1 + band / 100)
        ax.fill_between(ends, *edges, color=shade, linewidth=0, zorder=0, label=f"within {band} %")
    ax.plot(ends, ends, color=INK, linewidth=1, zorder=1)
    for cloud in clouds:
        marker, colour = MARKS[cloud.kind]
        look = {"color": colour, "markersize": 7, "markeredgecolor": "white"}
        ax.plot(cloud.measured_ms, cloud.predicted_ms, marker, label=KINDS[cloud.kind], **look)
    ax.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
    ax.set(xlabel="Measured step (ms, log scale)", ylabel="Predicted step (ms, log scale)")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set(major_locator=LogLocator(subs=(1, 2, 5)), minor_locator=NullLocator(), major_formatter=_VALUES)
    ax.legend(loc="upper left", frameon=False, fontsize=11)
    return ax


@styled
def step_by_depth(ax: Axes, by_depth: Sequence[Sequence[Comparison]]) -> Axes:
    """Prefetch step latency by depth, one line for each row of comparisons at one context."""
    _by_depth(ax, by_depth, lambda each: each.prefetch.total_ms, PREFETCH)
    ax.set_ylabel("Prefetch step (ms)")
    ax.label_outer()
    return ax


@styled
def memory_by_depth(ax: Axes, by_depth: Sequence[Sequence[Comparison]]) -> Axes:
    """GPU memory of the KV blocks by depth, one line for each row of comparisons at one context."""
    _by_depth(ax, by_depth, lambda each: each.prefetch.gpu_kv_bytes / 1e6, INK)
    ax.set(ylabel="KV on the GPU (MB)", xlabel="Depth (layers fetched ahead)")
    return ax


@styled
def tornado(ax: Axes, swings: Sequence[Swing], value: Callable[[Point], float | None], base: float, label: str) -> Axes:
    """How far two other values of each figure move `value` from `base`; a bar a swing, its ends named."""
    for row, swing in enumerate(swings):
        named = (
            (value(point), point.change, colour) for point, colour in ((swing.low, ONDEMAND), (swing.high, PREFETCH))
        )
        ends = sorted((end for end in named if end[0] is not None), key=lambda end: -abs(end[0] - base))
        beside = len({end >= base for end, *_ in ends}) < len(ends)  # both on one side: one above the other
        for lane, (end, change, colour) in enumerate(ends):
            y, height = (row + 0.3 * (lane - 0.5), 0.26) if beside else (row, 0.55)
            ax.barh(y, end - base, left=base, height=height, color=colour)
            place = {"ha": "left", "xytext": (4, 0)} if end >= base else {"ha": "right", "xytext": (-4, 0)}
            ax.annotate(change, (end, y), textcoords="offset points", va="center", size=10, color=colour, **place)
    ax.axvline(base, color=INK, linewidth=1)
    ax.set_yticks(range(len(swings)), [swing.figure for swing in swings])
    ax.set(xlabel=label, ylim=(len(swings) - 0.4, -0.6))
    ax.margins(x=0.25)
    ax.grid(axis="y", visible=False)
    ax.xaxis.set(major_locator=MaxNLocator(5), major_formatter=_VALUES)
    return ax


@styled
def link_map(ax: Axes, contexts: Sequence[int], rates: Sequence[float], reduction: np.ndarray, own: float) -> Axes:
    """The reduction, of shape (rates, contexts), over context and link rate; this card and known links as lines."""
    levels = np.arange(0, 51, 10)
    filled = ax.contourf(contexts, rates, reduction, levels=levels, cmap="cividis")
    for link in LINKS:
        if rates[0] < link.gb_s < rates[-1]:
            ax.axhline(link.gb_s, color="white", linewidth=1, linestyle=":")
            ax.annotate(link.name, (1.01, link.gb_s), xycoords=("axes fraction", "data"), va="center", fontsize=10)
    ax.axhline(own, color="white", linewidth=2.2)
    ax.annotate("this card", (contexts[0], own), (4, 3), textcoords="offset points", color="white", weight="bold")
    ax.set(xscale="log", yscale="log", xlabel="Context (tokens)", ylabel="Link (GB/s)")
    ax.grid(visible=False)
    ax.xaxis.set(major_locator=LogLocator(base=4, numticks=9), minor_locator=NullLocator(), major_formatter=_CONTEXTS)
    ax.yaxis.set(
        major_locator=LogLocator(subs=(1, 2, 5), numticks=9), minor_locator=NullLocator(), major_formatter=_VALUES
    )
    bar = ax.figure.colorbar(filled, ax=ax, location="top", aspect=40, pad=0.04, fraction=0.06)
    bar.set_label("Reduction (%)")
    return ax


def short(value: float, longest: float) -> str:
    """`value` for a tick: as it is below `longest`, else in thousands, millions or milliards."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= max(unit, longest):
            return f"{value / unit:.3g}{name}"
    return f"{value:g}"


_CONTEXTS = FuncFormatter(lambda tokens, _: short(tokens, longest=1e5))
_VALUES = FuncFormatter(lambda value, _: short(value, longest=1e4))


def _by_context(ax: Axes, lines: Sweep, crossover: int | None) -> Axes:
    """A log context axis with the PCIe-bound region shaded and a line at the crossover."""
    first, last = lines.ctx_len[[0, -1]]
    ax.set(xscale="log", xlim=(first, last))
    ax.xaxis.set(major_locator=LogLocator(base=2, numticks=9), minor_locator=NullLocator(), major_formatter=_CONTEXTS)
    if crossover:
        ax.axvspan(crossover, last, color=SHADE, zorder=0)
        ax.axvline(crossover, color=INK, linewidth=1, linestyle="--")
    return ax


def _by_depth(
    ax: Axes, by_depth: Sequence[Sequence[Comparison]], value: Callable[[Comparison], float], colour: str
) -> None:
    """A line through `value` at each depth for each row, labelled with the row's context where it ends."""
    for row, marker in zip(by_depth, cycle("osD^"), strict=False):
        depths, values = [each.depth for each in row], [value(each) for each in row]
        ax.plot(depths, values, marker=marker, color=colour)
        label, end = f"context {row[-1].ctx_len}", (depths[-1], values[-1])
        ax.annotate(label, end, (0, 8), textcoords="offset points", ha="right", color=colour)
    ax.set_ylim(0, 1.3 * max(value(each) for row in by_depth for each in row))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.yaxis.set_major_formatter(_VALUES)
