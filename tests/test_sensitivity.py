from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from stacks import INTERLEAVED_62, WINDOWS_ALONE

from kvprefetch import A100_PCIE, LLAMA3_8B, HardwareProfile, charts, compare, crossover_ctx
from kvprefetch.captions import map_alt, tornado_alt
from kvprefetch.configs import FIRST_ORDER, Terms
from kvprefetch.links import LINKS
from kvprefetch.planner import sweep_columns
from kvprefetch.sensitivity import Point, Swing, map_contexts, reduction_map, swings

FAST_LINK = HardwareProfile("fast link", 100, 1000)
CONTEXTS, RATES = (512, 1306, 8192), (10.0, 25.0, 60.0)


def step_ms(ctx_len, hbm=2039, pcie=25, values=2.0):
    """The prefetch step of Llama-3-8B: t + 31·max(c, t) + c."""
    c, t = 436_207_616 / hbm / 1e6, ctx_len * 2048 * values / pcie / 1e6
    return t + 31 * max(c, t) + c


# The real crossover is 1305.74 tokens; it goes with the link's rate over the HBM's and over a value's bytes.
@pytest.mark.parametrize("ctx_len", [1000, 4096])
def test_the_swings_of_a_uniform_stack_by_hand(ctx_len):
    found = swings(LLAMA3_8B, A100_PCIE, ctx_len)
    expected = [
        ("HBM rate", "-20 %", 1633, {"hbm": 1631.2}),
        ("HBM rate", "+20 %", 1089, {"hbm": 2446.8}),
        ("PCIe rate", "-20 %", 1045, {"pcie": 20}),
        ("PCIe rate", "+20 %", 1567, {"pcie": 30}),
        ("KV dtype", "fp8", 2612, {"values": 1}),
        ("KV dtype", "q4_0", 4643, {"values": 18 / 32}),
    ]
    points = [(swing.figure, point) for swing in found for point in (swing.low, swing.high)]
    for (figure, point), (of, change, crossover, figures) in zip(points, expected, strict=True):
        assert (figure, point.change, point.crossover_ctx) == (of, change, crossover)
        assert point.prefetch_ms == pytest.approx(step_ms(ctx_len, **figures))


@pytest.mark.parametrize("hw", [A100_PCIE, FAST_LINK])
@pytest.mark.parametrize("model", [LLAMA3_8B, INTERLEAVED_62, WINDOWS_ALONE])
@pytest.mark.parametrize("terms", [FIRST_ORDER, Terms(kv_dtype="q8_0", kv_read=True, resident_tokens=100)])
def test_a_swing_is_what_the_planner_says_of_the_changed_pair(model, hw, terms):
    hbm, pcie, kv = swings(model, hw, 3000, 3, 2, terms)
    for point, changed in (
        (hbm.low, {"hbm_gb_s": hw.hbm_gb_s * 0.8}),
        (hbm.high, {"hbm_gb_s": hw.hbm_gb_s * 1.2}),
        (pcie.low, {"pcie_gb_s": hw.pcie_gb_s * 0.8}),
        (pcie.high, {"pcie_gb_s": hw.pcie_gb_s * 1.2}),
    ):
        card = replace(hw, **changed)
        assert point.crossover_ctx == crossover_ctx(model, card, 3, terms)
        assert point.prefetch_ms == compare(model, card, 3000, 3, 2, terms).prefetch.total_ms
    for point in (kv.low, kv.high):
        smaller = replace(terms, kv_dtype=point.change)
        assert point.crossover_ctx == crossover_ctx(model, hw, 3, smaller)
        assert point.prefetch_ms == compare(model, hw, 3000, 3, 2, smaller).prefetch.total_ms
    assert (model is WINDOWS_ALONE and hw is FAST_LINK) <= (pcie.high.crossover_ctx is None)


@pytest.mark.parametrize("terms", [FIRST_ORDER, Terms(resident_windows=True, lm_head=True)])
def test_the_rows_of_the_map_are_sweeps_over_other_links(terms):
    reduction = reduction_map(INTERLEAVED_62, A100_PCIE, CONTEXTS, RATES, 2, 3, terms)
    assert reduction.shape == (3, 3)
    for row, rate in zip(reduction, RATES, strict=True):
        card = replace(A100_PCIE, pcie_gb_s=rate)
        assert row.tolist() == sweep_columns(INTERLEAVED_62, card, CONTEXTS, 2, 3, terms).reduction_pct.tolist()


def drawn_tornado(found, value, base, label):
    figure, (ax,) = charts.figure(2.0, left=1.2)
    return figure, charts.tornado(ax, found, value, base, label)


@pytest.mark.parametrize(("model", "ctx_len"), [(LLAMA3_8B, 1000), (LLAMA3_8B, 4096), (INTERLEAVED_62, 2048)])
@pytest.mark.parametrize(
    ("value", "label"),
    [
        (lambda point: point.crossover_ctx, "Crossover (tokens)"),
        (lambda point: point.prefetch_ms, "Prefetch step (ms)"),
    ],
)
def test_the_bars_of_a_tornado_run_from_the_base_to_the_swings_ends(model, ctx_len, value, label):
    base = value(Point("now", crossover_ctx(model, A100_PCIE), compare(model, A100_PCIE, ctx_len).prefetch.total_ms))
    found = swings(model, A100_PCIE, ctx_len)
    figure, ax = drawn_tornado(found, value, base, label)
    assert (ax.get_xlabel(), [tick.get_text() for tick in ax.get_yticklabels()]) == (
        label,
        ["HBM rate", "PCIe rate", "KV dtype"],
    )
    ends = {(row, point.change): value(point) for row, swing in enumerate(found) for point in (swing.low, swing.high)}
    assert {(round(text.xy[1]), text.get_text()): text.xy[0] for text in ax.texts} == ends
    drawn = sorted((round(bar.get_y() + bar.get_height() / 2), bar.get_width()) for bar in ax.patches)
    assert {bar.get_x() for bar in ax.patches} == {base}
    assert drawn == sorted((row, end - base) for (row, _), end in ends.items())


@pytest.mark.parametrize(
    ("low", "high", "sides"),
    [
        (80, 130, {"-": (80, "left"), "+": (130, "right")}),
        (130, 80, {"-": (130, "right"), "+": (80, "left")}),
        (60, 30, {"-": (60, "left"), "+": (30, "left")}),  # both on one side: one above the other
        (140, 190, {"-": (140, "right"), "+": (190, "right")}),
        (None, 130, {"+": (130, "right")}),  # a crossover that is never
        (None, None, {}),
    ],
)
def test_ends_are_named_where_they_do_not_lie_on_one_another(low, high, sides):
    swing = Swing("figure", Point("-", low, 0), Point("+", high, 0))
    figure, ax = drawn_tornado((swing,), lambda point: point.crossover_ctx, 100, "Crossover (tokens)")
    figure.canvas.draw()
    opposite = {"left": "right", "right": "left"}
    assert {text.get_text(): (text.xy[0], opposite[text.get_ha()]) for text in ax.texts} == sides
    assert {text.get_text(): text.get_color() for text in ax.texts}.items() <= {
        ("-", charts.ONDEMAND),
        ("+", charts.PREFETCH),
    }
    boxes = [text.get_window_extent() for text in ax.texts]
    for box in boxes:  # beside every bar of its height, never on one
        for bar in ax.patches:
            end = bar.get_window_extent()
            middle = (box.y0 + box.y1) / 2
            if end.y0 <= middle <= end.y1:
                assert box.x1 <= end.x0 or box.x0 >= end.x1


@pytest.mark.parametrize(("crossover", "resident"), [(1306, 0), (None, 0), (None, 500), (285_005, 273_782)])
def test_a_map_looks_closer_beyond_a_resident_window(crossover, resident):
    contexts = map_contexts(crossover, resident)
    assert contexts[0] <= 128 and contexts[-1] >= max(65_536, 2 * (crossover or 0))
    assert (np.diff(contexts) > 0).all()
    if crossover and resident:
        assert np.abs(contexts - crossover).min() < 0.3 * (crossover - resident)


@pytest.mark.parametrize(
    ("rates", "named"),
    [
        ((1.0, 1000.0), [link.name for link in LINKS]),
        ((20.0, 60.0), ["PCIe 4 x16", "PCIe 5 x16"]),
        ((1.0, 10.0), []),
    ],
)
def test_the_map_draws_this_cards_line_and_those_of_the_links_in_range(rates, named):
    rates = np.geomspace(*rates, 5)
    reduction = reduction_map(LLAMA3_8B, A100_PCIE, CONTEXTS, rates)
    ax = charts.link_map(Figure().subplots(), CONTEXTS, rates, reduction, own=9.0)
    assert [text.get_text() for text in ax.texts] == [*named, "this card"]
    heights = [line.get_ydata()[0] for line in ax.lines]
    assert heights == [*(link.gb_s for link in LINKS if link.name in named), 9.0]
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_xscale(), ax.get_yscale()) == (
        "Context (tokens)",
        "Link (GB/s)",
        "log",
        "log",
    )
    bar = next(axes for axes in ax.figure.axes if axes is not ax)
    assert bar.get_xlabel() == "Reduction (%)"


def test_the_alt_texts_tell_the_charts_numbers():
    assert tornado_alt(swings(LLAMA3_8B, A100_PCIE, 4096), 1306, step_ms(4096)) == (
        "Crossover, now 1306 tokens, and prefetch step, now 21.69 ms, by HBM rate -20 %: 1633 tokens, 21.74 ms; "
        "HBM rate +20 %: 1089 tokens, 21.65 ms; PCIe rate -20 %: 1045 tokens, 27.06 ms; PCIe rate +20 %: 1567 tokens, "
        "18.11 ms; KV dtype fp8: 2612 tokens, 10.95 ms; KV dtype q4_0: 4643 tokens, 7.03 ms."
    )
    never = Swing("PCIe rate", Point("-20 %", None, 1.0), Point("+20 %", 1, 2.0))
    assert tornado_alt([never], None, 1.5) == (
        "Crossover, now never, and prefetch step, now 1.50 ms, by PCIe rate -20 %: never, 1.00 ms; PCIe rate +20 %: "
        "1 token, 2.00 ms."
    )
    assert map_alt(CONTEXTS, RATES, reduction_map(LLAMA3_8B, A100_PCIE, CONTEXTS, RATES)) == (
        "The reduction over context and link rate: with 10 GB/s it is largest, 48 %, at 512 tokens; with 25 GB/s it is "
        "largest, 48 %, at 1306 tokens; with 60 GB/s it is largest, 28 %, at 1306 tokens."
    )
