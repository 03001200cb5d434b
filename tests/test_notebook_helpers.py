import base64

import pytest
from bs4 import BeautifulSoup
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

from kvprefetch import A100_PCIE, LLAMA3_8B, charts, compare, notebook
from kvprefetch.notebook import Column, KeyFigure, plain
from kvprefetch.planner import sweep_columns
from kvprefetch.schedule import ondemand_timeline, timeline

NASTY = "<script>alert(1)</script> & \"q\" 'q' $x$ |a|b| *i* _u_ `c` [l](http://x) \\"


@pytest.fixture(scope="module", autouse=True)
def shell(tmp_path_factory):
    """What display() needs to capture outputs outside a kernel."""
    InteractiveShell.instance(
        ipython_dir=str(tmp_path_factory.mktemp("ipython")), config=Config(HistoryManager={"enabled": False})
    )
    yield
    InteractiveShell.clear_instance()


def shown(show, *arguments, **options):
    """The outputs that a helper displays."""
    with capture_output() as captured:
        show(*arguments, **options)
    return captured.outputs


def test_a_table_escapes_its_cells_and_names_its_headers():
    (output,) = shown(
        notebook.table, NASTY, Column(NASTY, [NASTY, "second"]), Column("Value (ms)", [1.0, 12.345], ".2f"), mark=1
    )
    page = BeautifulSoup(output.data["text/html"], "html.parser")
    assert page.find("script") is None
    assert page.caption.text == page.find("th", scope="col").text == page.find("th", scope="row").text == NASTY
    assert [cell.text for cell in page.find_all("td", class_="num")] == ["1.00", "12.35"]
    assert page.find("tr", class_="mark").th.text == "second"


@pytest.mark.parametrize(("first", "kind"), [("short", "name"), ("x" * 20, "name"), ("x" * 21, "text")])
def test_short_names_of_rows_are_told_apart_from_prose(first, kind):
    (output,) = shown(notebook.table, "Rows", Column("Row", ["a", first]))
    rows = BeautifulSoup(output.data["text/html"], "html.parser")
    assert [head["class"] for head in rows.select("tbody th")] == [[kind]] * 2
    assert rows.thead.th.get("class", ["text"]) == [kind]


def test_columns_of_unequal_length_are_an_error():
    with pytest.raises(ValueError, match="zip"):
        notebook.table("uneven", Column("a", [1, 2], "d"), Column("b", [1], "d"))


def test_the_panel_escapes_its_figures():
    (output,) = shown(notebook.panel, KeyFigure("Name", NASTY, "note"))
    assert BeautifulSoup(output.data["text/html"], "html.parser").find("dd").text == NASTY


def test_plain_text_holds_no_markup():
    assert not set(plain(NASTY)) & set('<>"$|*_`[]\\')
    assert not set(plain("https://evil.example/x www.evil.com")) & set(":/")
    assert plain("A100-80GB PCIe (Gen4 x16), 2.5 é") == "A100-80GB PCIe (Gen4 x16), 2.5 é"


def test_digits_are_grouped_in_threes_where_the_format_says_so():
    (output,) = shown(notebook.table, "t", Column("name", ["a_b"]), Column("n", [6979321856], "_d"))
    assert "6\u202f979\u202f321\u202f856" in output.data["text/html"]
    assert "a_b" in output.data["text/html"]


def test_a_figure_is_shown_as_svg_with_its_alt_text_and_a_sentence():
    fig, (ax,) = charts.figure(2)
    ax.set_title("a title")
    picture, caption = shown(notebook.show, fig, alt="what it shows", caption="what to see")
    assert picture.data["image/svg+xml"].startswith("<?xml")
    assert "a title" in picture.data["image/svg+xml"]
    assert picture.metadata["image/svg+xml"]["alt"] == picture.data["text/plain"] == "what it shows"
    assert caption.data["text/markdown"] == "what to see"


def test_an_attached_figure_is_also_a_png():
    fig, _ = charts.figure(2)
    picture, _ = shown(notebook.show_and_attach, fig, alt="alt", caption="caption")
    png = picture.data["image/png"]
    assert (png if isinstance(png, bytes) else base64.b64decode(png)).startswith(b"\x89PNG")


def drawn(name):
    """The texts of one of the report's charts, and its axes."""
    points = sweep_columns(LLAMA3_8B, A100_PCIE, [512, 32768])
    lines = sweep_columns(LLAMA3_8B, A100_PCIE, charts.context_grid([512, 32768], 1306))
    deep = [[compare(LLAMA3_8B, A100_PCIE, n, depth=depth) for depth in (1, 2, 3)] for n in (653, 2612)]
    c = deep[0][0]
    _, (ax,) = charts.figure(3)
    {
        "latency": lambda: charts.latency(ax, lines, points, 1306),
        "reduction": lambda: charts.reduction(ax, lines, points, 1306),
        "gantt": lambda: charts.gantt(
            ax, ondemand_timeline(c.compute, c.transfer), timeline(c.compute, c.transfer), 3, "653 tokens"
        ),
        "step_by_depth": lambda: charts.step_by_depth(ax, deep),
        "memory_by_depth": lambda: charts.memory_by_depth(ax, deep),
    }[name]()
    return ax


@pytest.mark.parametrize("name", ["latency", "reduction", "gantt", "step_by_depth", "memory_by_depth"])
def test_every_chart_names_its_axis_with_a_unit(name):
    ax = drawn(name)
    assert any("(" in label for label in (ax.get_xlabel(), ax.get_ylabel()))


def test_the_latency_chart_draws_the_sweep_and_marks_the_crossover():
    ax = drawn("latency")
    line = ax.lines[0]
    points = sweep_columns(LLAMA3_8B, A100_PCIE, line.get_xdata())
    assert line.get_ydata().tolist() == points.ondemand_ms.tolist()
    assert "crossover 1306" in [text.get_text() for text in ax.texts]
    assert {"on-demand", "prefetch", "PCIe-bound"} <= {text.get_text() for text in ax.texts}


def test_the_timeline_chart_draws_a_bar_for_each_layer_in_each_lane():
    ax = drawn("gantt")
    assert [text.get_text() for text in ax.texts] == ["1", "2", "3"] * 4


def test_a_layer_with_nothing_to_fetch_has_no_bar_on_the_link():
    _, (ax,) = charts.figure(3)
    times = [1.0, 1.0], [0.0, 1.0]
    charts.gantt(ax, ondemand_timeline(*times), timeline(*times), 2, "two layers")
    assert [text.get_text() for text in ax.texts] == ["2", "1", "2", "2", "1", "2"]


def test_without_a_crossover_nothing_is_marked():
    points = sweep_columns(LLAMA3_8B, A100_PCIE, [512, 1024])
    _, (ax,) = charts.figure(3)
    charts.latency(ax, points, points, None)
    assert {text.get_text() for text in ax.texts} == {"on-demand", "prefetch", "compute-bound"}
    assert charts.context_grid([512, 1024], None)[-1] == 4096


def test_the_context_grid_holds_the_crossover_even_when_it_lies_outside():
    assert {512, 32768, 1306} <= set(charts.context_grid([512, 32768], 1306).tolist())
    assert 99999 in charts.context_grid([512], 99999)
    assert charts.context_grid([8], 1)[0] == 1
