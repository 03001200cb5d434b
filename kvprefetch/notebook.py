"""How does a value look in a notebook? Prose, equations, tables and figures as displayed outputs.

Text from outside (names, sources) goes through `plain` before it enters Markdown; tables and
panels escape their cells themselves.
"""

from __future__ import annotations

import gc
import io
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

import jinja2
from IPython.display import HTML, Markdown, display
from matplotlib.figure import Figure

from kvprefetch import __version__
from kvprefetch.charts import styled
from kvprefetch.request import Request

gc.freeze()  # what is loaded by now is here to stay: to look through it again and again takes a tenth of a run

_TEMPLATES = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
_TABLE = _TEMPLATES.from_string("""\
<table>
<caption>{{ caption }}</caption>
<thead><tr>
{% for column in columns %}
<th scope="col"{% if column.format %} class="num"{% endif %}>{{ column.title }}</th>
{% endfor %}
</tr></thead>
<tbody>
{% for row in rows %}
<tr{% if loop.index0 == mark %} class="mark"{% endif %}>
{% for column, cell in row %}
{% set kind = "num" if column.format else "text" %}
{% if loop.first %}
<th scope="row" class="{{ kind }}">{{ cell }}</th>
{% else %}
<td class="{{ kind }}">{{ cell }}</td>
{% endif %}
{% endfor %}
</tr>
{% endfor %}
</tbody>
</table>""")
_PANEL = _TEMPLATES.from_string("""\
<dl class="answer">
{% for figure in figures %}
<div><dt>{{ figure.name }}</dt><dd>{{ figure.value }}</dd><dd class="note">{{ figure.note }}</dd></div>
{% endfor %}
</dl>""")


@dataclass(frozen=True)
class Column:
    """One column of a table: numbers with a format such as ".2f", or text without one."""

    title: str
    values: Sequence[object]
    format: str = ""  # with "_", as in "_d", digits are grouped in threes


@dataclass(frozen=True)
class KeyFigure:
    """One of the figures of the answer's panel."""

    name: str
    value: str
    note: str


def plain(text: str) -> str:
    """`text` for Markdown, every character that could be markup or mathematics as a character reference."""
    return "".join(c if c.isalnum() or c in " .,;()-+'" else f"&#{ord(c)};" for c in text)


def _formatted(value: object, spec: str) -> str:
    return format(value, spec).replace("_", "\N{NARROW NO-BREAK SPACE}") if spec else str(value)


def say(text: str) -> None:
    """Show Markdown."""
    display(Markdown(text))


def takeaway(*sentences: str) -> None:
    """Show what a section comes to, a paragraph for each sentence."""
    say("\n>\n".join(f"> {sentence}" for sentence in sentences))


def panel(*figures: KeyFigure) -> None:
    """Show the key figures side by side."""
    display(HTML(_PANEL.render(figures=figures)))


def table(caption: str, *columns: Column, mark: int | None = None) -> None:
    """Show columns of equal length as a table; the row of index `mark` stands out."""
    cells = [[(column, _formatted(value, column.format)) for value in column.values] for column in columns]
    display(HTML(_TABLE.render(caption=caption, columns=columns, rows=zip(*cells, strict=True), mark=mark)))


def provenance(request: Request) -> None:
    """Show what this report was made from, and how to make it again."""
    table(
        "What this page was made from",
        Column("Input", [f"model {request.model.slug}", f"card {request.hw.slug}"]),
        Column("SHA-256", [request.model.digest, request.hw.digest]),
    )
    say(made_by(request.command))


def made_by(command: str) -> str:
    """What made a page, and the command that makes it again."""
    tools = ", ".join(f"{name} {version(name)}" for name in ("numpy", "simpy", "matplotlib"))
    return (
        f"Numbers and figures by kvprefetch {__version__} with {tools}. To build it again: `{command}`, "
        "where a name that ends in eight hexadecimal digits stands for the file whose SHA-256 begins with them."
    )


def show(fig: Figure, alt: str, caption: str) -> None:
    """Show a figure as SVG, with its text for those who cannot see it, and a sentence under it."""
    _show({"image/svg+xml": _drawn(fig, "svg").decode()}, alt, caption)


def show_and_attach(fig: Figure, alt: str, caption: str) -> None:
    """`show`, with the figure attached as PNG for use elsewhere."""
    _show({"image/svg+xml": _drawn(fig, "svg").decode(), "image/png": _drawn(fig, "png")}, alt, caption)


def _show(pictures: dict[str, str | bytes], alt: str, caption: str) -> None:
    metadata = {kind: {"alt": alt} for kind in pictures}
    display({**pictures, "text/plain": alt}, raw=True, metadata=metadata)
    say(caption)


@styled
def _drawn(fig: Figure, kind: str) -> bytes:
    """The figure's file, without the date and version that would differ between runs."""
    file = io.BytesIO()
    metadata = dict.fromkeys(("Date", "Creator", "Format", "Type")) if kind == "svg" else {"Software": None}
    fig.savefig(file, format=kind, dpi=120, metadata=metadata)
    return file.getvalue()
