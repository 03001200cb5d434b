"""A small report with one of everything, for tests of the page that need no kernel."""

from copy import deepcopy

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from kvprefetch.html.exporter import ReportExporter

SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 40 20">'
    '<path d="M1 19 39 1" stroke="#1a5e93" fill="none"/></svg>'
)
ROWS = "".join(
    f'<tr{" class=mark" if context == 1306 else ""}><th scope="row" class="num">{context}</th>'
    + f'<td class="num">{context / 1000:.3f}</td>' * 6
    + "</tr>"
    for context in (256, 512, 1024, 1306, 4096, 16384, 65536)
)
TABLE = (
    "<table><caption>Times by context, with a caption longer than a phone is wide.</caption>"
    '<thead><tr><th scope="col" class="num">Context (tokens)</th>'
    + '<th scope="col" class="num">Transfer (ms)</th>' * 6
    + f"</tr></thead><tbody>{ROWS}</tbody></table>"
)
PANEL = '<dl class="answer">{}</dl>'.format(
    '<div><dt>Crossover</dt><dd>1306 tokens</dd><dd class="note">above it the link rules</dd></div>' * 4
)
SECTIONS = (
    "## The question\n\n> One sentence.\n\nInline $t_l \\le c_l$, long inline "
    "$T_{\\text{overlap}}(s) = t + (L-1)\\max(c, t) + c \\le T_{\\text{serial}}(s)$, and\n\n"
    "$$\\sum_{l=1}^{L} c_l \\qquad \\underbrace{\\sqrt{c\\,t}}_{\\text{mean}}$$",
    "## Symbols\n\n| Symbol | Name | Value | Meaning |\n|---|---|--:|---|\n"
    "| $b$ | `bytes_per_value` | 2 | bytes of one stored key or value |",
    "## Derivation\n\n\\begin{aligned} T &= \\frac{2\\,b\\,n\\,h_{kv}\\,d_h\\,s}{\\text{PCIe}}"
    " \\\\[4pt] &= t_1 + \\sum_{l=2}^{L} \\max(c_{l-1}, t_l) + c_L \\end{aligned}\n\n"
    "```python\ndef step(plan):  # seconds\n    return max(plan.compute, 2.5, 'text')\n```",
)


def figure(alt: str) -> NotebookNode:
    """Return an SVG output with an alt text."""
    meta = {"image/svg+xml": {"alt": alt}}
    return new_output("display_data", {"image/svg+xml": SVG, "text/plain": "fig"}, metadata=meta)


def shown(mime_type: str, text: str) -> NotebookNode:
    """Return an output of one MIME type."""
    return new_output("display_data", {mime_type: text, "text/plain": "plain"})


def code(*outputs: NotebookNode, tag: str = "") -> NotebookNode:
    """Return a code cell; a tagged one holds the word 'secret'."""
    tags = {"tags": [tag]} if tag else {}
    source = "secret = 1" if tag else "show(plan, unit='ms')  # one line"
    return new_code_cell(source, outputs=list(outputs), metadata=tags)


def export(*cells: NotebookNode | str, title: str = "# A report") -> str:
    """Return the page of a notebook with a title; strings are Markdown cells."""
    made = [new_markdown_cell(c) if isinstance(c, str) else deepcopy(c) for c in (title, *cells)]
    for number, cell in enumerate(made):
        cell.id = f"cell-{number}"
    return ReportExporter().from_notebook_node(new_notebook(cells=made))[0]


def sample_report() -> str:
    """Return a page with one of everything."""
    return export(
        code(shown("text/html", PANEL)),
        *SECTIONS,
        "## Sweep",
        code(shown("text/html", TABLE)),
        code(figure("Two lines that cross at 1306 tokens."), shown("text/markdown", "A caption.")),
        code(shown("text/markdown", "## Provenance\n\nMade with [tools](https://example.org).")),
    )
