"""The HTML of a report: formulas, figures, tables, text, and the promises of the page."""

import re

import pytest
from bs4 import BeautifulSoup
from html_rules import broken_rules
from nbconvert.exporters import get_exporter
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from sample_report import code, export, figure, sample_report, shown

from kvprefetch.html.exporter import ReportExporter, highlighted
from kvprefetch.html.markdown import to_html
from kvprefetch.html.mathml import TexError
from kvprefetch.html.page import page
from kvprefetch.html.structure import PageError


def soup_of(*cells) -> BeautifulSoup:
    return BeautifulSoup(export(*cells), "html.parser")


@pytest.fixture(scope="module")
def report() -> str:
    return sample_report()


def test_a_formula_that_fails_names_its_cell() -> None:
    with pytest.raises(TexError, match=r"cell 'cell-1': formula \$\\foo\$"):
        export(code(shown("text/markdown", r"Here $\foo$ fails.")))


def test_dollar_amounts_are_refused_until_they_are_escaped() -> None:
    with pytest.raises(TexError, match=re.escape("$5 and $ has a blank")):
        export("Costs $5 and $7.")
    assert "Costs $5 and $7." in soup_of(r"Costs \$5 and \$7.").get_text()


def test_latex_outputs_are_rendered_like_markdown() -> None:
    page_of = soup_of(code(shown("text/latex", r"$\displaystyle \frac{a}{b}$")))
    assert page_of.select_one("math mfrac")


def test_the_exporter_is_found_by_its_name() -> None:
    assert get_exporter("kvprefetch") is ReportExporter


def test_a_good_report_breaks_no_rule(report: str) -> None:
    assert broken_rules(report) == []


def test_the_same_notebook_gives_the_same_bytes() -> None:
    cells = (code(figure("A line.")), "## One\n\n$a$", "## One")
    assert export(*cells) == export(*cells)


def test_a_page_whose_notebook_was_rehearsed_is_the_same() -> None:
    text, drawn = new_markdown_cell("# One\n\n## Two\n\n$a_1$"), new_code_cell("1 < 2", outputs=[figure("A line.")])
    executed, unrun = new_notebook(cells=[text, drawn]), new_notebook(cells=[text, new_code_cell("1 < 2")])
    alone = ReportExporter().from_notebook_node(executed)[0]
    highlighted.cache_clear()
    to_html.cache_clear()
    exporter = ReportExporter()
    exporter.rehearse(unrun)
    asked = highlighted.cache_info().misses, to_html.cache_info().misses
    assert exporter.from_notebook_node(executed)[0] == alone
    assert (highlighted.cache_info().misses, to_html.cache_info().misses) == asked == (1, 1)


def test_comments_and_halves_of_characters_lose_nothing() -> None:
    rows = "<table><tr><!-- c --><td>a</td><!-- d --><td>b</td></tr></table><!-- e --><p>half \ud800 of one</p>"
    made = soup_of(code(shown("text/html", rows)), "## Later")
    assert [cell.text for cell in made.find_all(["th", "td"])] == ["a", "b"]
    assert "half ? of one" in made.get_text()
    assert made.find("h2").text == "Later"


@pytest.mark.parametrize("alt", ["", "  "])
def test_a_figure_without_alt_text_fails_and_names_its_cell(alt: str) -> None:
    with pytest.raises(PageError, match=r"cell 'cell-1': its image/svg\+xml output has no alt"):
        export(code(figure(alt)))


def test_a_figure_is_an_image_with_its_alt_text_and_caption(report: str) -> None:
    drawn = BeautifulSoup(report, "html.parser").figure
    assert drawn.img["alt"] == "Two lines that cross at 1306 tokens."
    assert drawn.img["src"].startswith("data:image/svg+xml;base64,")
    assert drawn.figcaption.get_text(strip=True) == "A caption."


def test_svg_is_preferred_to_png() -> None:
    both = figure("A line.")
    both.data["image/png"] = "iVBORw0KGgo="
    assert "data:image/png" not in export(code(both))


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ((), "exactly one h1 heading; this one has []"),
        (("# One", code(shown("text/markdown", "# Two"))), "has ['One', 'Two']"),
    ],
)
def test_a_report_has_one_title(cells: tuple, message: str) -> None:
    with pytest.raises(PageError, match=re.escape(message)):
        export(*cells, title="")


def test_title_and_contents_may_come_from_outputs() -> None:
    cells = (
        code(shown("text/markdown", "# A </title> & B")),
        code(shown("text/markdown", "## C < D")),
    )
    made = BeautifulSoup(export(*cells, "## C < D", title=""), "html.parser")
    assert made.title.get_text() == made.h1.get_text() == "A </title> & B"
    links = made.select("nav.wide a")
    assert [(a["href"], a.get_text()) for a in links] == [("#c-d", "C < D"), ("#c-d-2", "C < D")]


def test_a_table_scrolls_in_a_frame_named_by_its_caption(report: str) -> None:
    made = BeautifulSoup(report, "html.parser")
    labels = [f["aria-label"] for f in made.select("div.table[role=region][tabindex='0']")]
    assert labels == ["Symbols", made.caption.get_text()]


def test_frames_of_tables_have_different_names() -> None:
    frames = soup_of("## T", *["|a|\n|-|\n|1|"] * 2).select("div.table")
    assert [f["aria-label"] for f in frames] == ["T", "T (2)"]


def test_markdown_tables_get_scoped_headers_with_a_readable_name() -> None:
    table = soup_of("| Symbol | | Unit |\n|---|---|--:|\n| $t_l$ | x | ms |").table
    headers = [(th["scope"], th.contents[-1].get_text()) for th in table.find_all("th")]
    assert headers == [("col", "Symbol"), ("col", "Unit"), ("row", "t_l")]


def test_cells_of_prose_are_kept_wide_enough_to_read() -> None:
    cells = soup_of(f"|a|b|c|\n|-|-|-|\n|1|short|{'word ' * 9}|").find_all("td")
    assert [td.get("class") for td in cells] == [None, ["text"]]


@pytest.mark.parametrize(
    ("tex", "framed"),
    [
        (r"t_l = \frac{2\,b\,n\,h_{kv}\,d_h\,s}{\text{PCIe}}", False),
        (r"\frac{a + b + c + d + e + f}{a + b + c + d + e + f} = \sum_{l=1}^{L} x", False),
        (r"T = t + (L-1)\max(c, t) + c \le L\,(c + t) \quad\text{for every context}", True),
    ],
)
@pytest.mark.parametrize("mark", ["$", "$$"])
def test_only_a_wide_formula_is_a_tab_stop(tex: str, framed: bool, mark: str) -> None:
    math = soup_of(f"{mark}{tex}{mark}").math
    assert (math.parent.get("tabindex") == "0") is framed


@pytest.mark.parametrize("tag", ["remove-input", "parameters", "injected-parameters"])
def test_code_of_hidden_cells_is_left_out_but_their_output_stays(tag: str) -> None:
    text = soup_of(code(shown("text/markdown", "Shown."), tag=tag)).get_text()
    assert "secret" not in text
    assert "Shown." in text


def test_removed_cells_are_left_out() -> None:
    assert "Shown." not in export(code(shown("text/markdown", "Shown."), tag="remove-cell"))


def test_code_is_folded_below_its_output() -> None:
    main = soup_of("## S", code(shown("text/markdown", "Shown.")), code()).main
    assert [child.name for child in main.find_all(recursive=False)][-2:] == ["p", "details"]
    assert len(main.details.find_next("details", class_="code").select("pre")) == 2


def test_code_of_the_opening_stands_below_the_answer() -> None:
    panel = code(shown("text/html", "<dl class=answer><div><dt>a</dt><dd>b</dd></div></dl>"))
    made = soup_of(code(shown("text/markdown", "Lead.")), panel, "## S")
    assert made.select_one("dl.answer").find_next_sibling()["class"] == ["code"]
    assert len(made.select("details.code")) == 1


HOSTILE = """<script>alert("1")</script> & 'R&D' $5 | <b>x</b>"""


@pytest.mark.parametrize(
    "markdown",
    [
        f"Name: {HOSTILE}".replace("$", "\\$"),
        f"Line\n\n{HOSTILE}".replace("$", "\\$"),
        f"| a |\n|---|\n| {HOSTILE} |".replace("$", "\\$").replace("5 |", "5 \\|"),
    ],
)
def test_tags_and_signs_in_markdown_are_text(markdown: str) -> None:
    made = soup_of(markdown)
    assert not made.find(["script", "b"])
    assert HOSTILE in made.get_text()


def test_signs_in_alt_texts_stay_in_the_attribute() -> None:
    assert soup_of(code(figure(HOSTILE))).img["alt"] == HOSTILE


@pytest.mark.parametrize(
    "html",
    ["<script>1</script>", "<iframe></iframe>", '<img src="https://example.org/x.png" alt="x">'],
)
def test_output_that_runs_or_loads_something_fails(html: str) -> None:
    with pytest.raises(PageError):
        export(code(shown("text/html", html)))


def test_a_linked_image_in_markdown_fails() -> None:
    with pytest.raises(PageError, match="embedded, not linked"):
        export("![alt](https://example.org/x.png)")


def test_a_plain_page_shares_shell_and_promises() -> None:
    made = page("All reports", "<h1>All reports</h1><p>None yet.</p>")
    assert broken_rules(made) == []
    assert "Contents" not in BeautifulSoup(made, "html.parser").body.get_text()


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("<h1>", "<h1>x</h1><h1>", "2 h1 headings"),
        ("<title>", "<title>Other: ", "is not the h1"),
        ('lang="en"', "", "no lang"),
        ("Content-Security-Policy", "x", "no policy"),
        ("</main>", "<script>1</script></main>", "<script>"),
        ("</main>", "<link href='https://example.org/a.css'/></main>", "<link>"),
        ("</style>", "@import 'a.css';</style>", "css '@import'"),
        ("</style>", "p{background:url(a.png)}</style>", "css 'url('"),
        ("data:image/svg", "https://example.org/svg", "<img src="),
        ('href="https://example.org"', 'href="javascript:x"', "<a href='javascript:x'>"),
        ("<p>", "<p onclick='x'>", "onclick handler"),
        ('alt="Two lines that cross at 1306 tokens."', 'alt=" "', "alt text ''"),
        ('class="table"', "", "outside a frame"),
        ('aria-label="Symbols"', "", "without a label"),
        ('scope="row"', "", "without scope"),
        ("1306</th>", "</th>", "empty header"),
        ('href="#symbols"', 'href="#nowhere"', "missing #nowhere"),
        ("A caption.", "$$x$$", "raw TeX '$$'"),
        ("A caption.", r"\begin{aligned}", r"raw TeX '\\begin{'"),
        ("A caption.", "/home/someone/x.ipynb", "the path '/home/someone"),
        ("</main>", "x" * 300_000 + "</main>", "the limit is 300000"),
    ],
)
def test_each_rule_is_noticed_when_broken(report: str, old: str, new: str, rule: str) -> None:
    assert old in report
    assert any(rule in line for line in broken_rules(report.replace(old, new)))
