"""How does a figure of every model on every card look? Two values a cell, side by side, on one colour scale.

Viridis runs from dark blue to yellow for colour-blind readers as for others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kvprefetch.charts import INK, PALE, STYLE, figure, short, styled

COLOURS = "viridis"
ROW, FEW = 0.26, 4  # inches a row takes; cards up to which the values are written into their cells
LETTER = 0.098  # inches, of a label


def heatmap_figure(models: Sequence[str], cards: Sequence[str]) -> tuple[Figure, list[Axes]]:
    """A figure with room for the labels, and its axes: the map, and the bar that explains its colours."""
    below = 0.5 if len(cards) <= FEW else 0.3 + LETTER * max(map(len, cards))
    rows = len(models) * ROW * (1.6 if len(cards) <= FEW else 1)
    return figure(rows, 0.16, left=0.25 + LETTER * max(map(len, models)), gap=below)


@styled
def heatmap(
    ax: Axes, bar: Axes, models: Sequence[str], cards: Sequence[str], left: np.ndarray, right: np.ndarray
) -> Axes:
    """`left` and `right`, (models, cards), NaN where there is none, as the halves of each cell; log scale."""
    halves = np.ma.masked_invalid(np.stack([left, right], axis=-1).reshape(len(models), -1))
    low, high = (float(halves.min()), float(halves.max())) if halves.count() else (1.0, 10.0)
    extent = (0, len(cards), len(models), 0)
    limits = {"cmap": COLOURS, "norm": "log", "clim": (low, max(high, 1.001 * low))}
    image = ax.imshow(halves, aspect="auto", interpolation="nearest", extent=extent, **limits)
    ax.set_facecolor(PALE)
    ax.grid(visible=False)
    wide = 72 * ax.get_position().width * ax.figure.get_figwidth() / len(cards)  # points that a column has
    ax.set_xticks(
        np.arange(len(cards)) + 0.5,
        cards,
        rotation=0 if len(cards) <= FEW else 90,
        size=min(STYLE["font.size"], 0.8 * wide),
    )
    ax.set_yticks(np.arange(len(models)) + 0.5, models)
    ax.tick_params(length=0)
    for edge in range(1, len(cards)):
        ax.axvline(edge, color="white", linewidth=3 if len(cards) <= FEW else 1.5)
    for edge in range(1, len(models)):
        ax.axhline(edge, color="white", linewidth=1)
    if len(cards) <= FEW:
        for (row, half), value in np.ndenumerate(halves.filled(np.nan)):
            bright = np.isnan(value) or image.norm(value) > 0.5
            text = "–" if np.isnan(value) else short(value, longest=1e3)
            ax.text(half / 2 + 0.25, row + 0.5, text, ha="center", va="center", color=INK if bright else "white")
    ax.set_title("left: crossover, right: first context to offload")
    _explain(bar, image.norm.vmin, image.norm.vmax)
    return ax


def _explain(bar: Axes, low: float, high: float) -> None:
    """The colours from `low` to `high` on a log axis."""
    bar.imshow(np.linspace(0, 1, 256)[None], aspect="auto", cmap=COLOURS, extent=(np.log10(low), np.log10(high), 0, 1))
    decades = np.arange(np.ceil(np.log10(low)), np.floor(np.log10(high)) + 1)
    bar.set_xticks(decades, [short(10.0**decade, longest=1e3) for decade in decades])
    bar.set(yticks=[], xlabel="Context (tokens)")
    bar.grid(visible=False)
