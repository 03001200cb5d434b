"""How does a value look in a notebook? Prose, equations, tables and figures as displayed outputs.

Text from outside (names, sources) goes through `plain` before it enters Markdown; tables and
panels escape their cells themselves.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

from IPython.display import display
from markupsafe import escape
from matplotlib.figure import Figure

from kvprefetch import __version__
from kvprefetch.charts import styled
from kvprefetch.request import Request

NAME = 20  # characters of a name that leaves room for the row beside it on a phone


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
    text = format(value, spec).replace("_", "\N{NARROW NO-BREAK SPACE}") if spec else str(value)
    return text.removeprefix("-") if re.fullmatch(r"-0(\.0*)?", text) else text


def _together(text: str) -> str:
    """`text` in which a number and its unit are not to be parted by the end of a line."""
    return re.sub(r"(?<=\d) (?=%|(?:ms|[kMGT]B)\b)", "\N{NO-BREAK SPACE}", text)


def say(text: str) -> None:
    """Show Markdown; raw, as all that is shown here: to look for other forms of it takes half a millisecond."""
    display({"text/markdown": _together(text)}, raw=True)


def takeaway(*sentences: str) -> None:
    """Show what a section comes to, a paragraph for each sentence."""
    say("\n>\n".join(f"> {sentence}" for sentence in sentences))


def panel(*figures: KeyFigure) -> None:
    """Show the key figures side by side."""
    rows = [
        f'<div><dt>{escape(each.name)}</dt><dd>{escape(value)}</dd><dd class="note">{escape(note)}</dd></div>'
        for each, value, note in ((each, _together(each.value), _together(each.note)) for each in figures)
    ]
    _show_html('<dl class="answer">', *rows, "</dl>")


def table(caption: str, *columns: Column, mark: int | None = None) -> None:
    """Show columns of equal length as a table; the row of index `mark` stands out."""
    kinds = ["num" if column.format else "text" for column in columns]
    if kinds[0] == "text" and all(len(str(name)) <= NAME for name in columns[0].values):
        kinds[0] = "name"  # stays in view while the table scrolls, as a number does
    heads = [
        f'<th scope="col">{title}</th>' if kind == "text" else f'<th scope="col" class="{kind}">{title}</th>'
        for kind, title in zip(kinds, (escape(column.title) for column in columns), strict=True)
    ]
    lines = ["<table>", f"<caption>{escape(caption)}</caption>", "<thead><tr>", *heads, "</tr></thead>", "<tbody>"]
    cells = [[escape(_formatted(value, column.format)) for value in column.values] for column in columns]
    for index, (first, *others) in enumerate(zip(*cells, strict=True)):
        lines += ['<tr class="mark">' if index == mark else "<tr>", f'<th scope="row" class="{kinds[0]}">{first}</th>']
        lines += [f'<td class="{kind}">{cell}</td>' for kind, cell in zip(kinds[1:], others, strict=True)]
        lines += ["</tr>"]
    _show_html(*lines, "</tbody>", "</table>")


def _show_html(*lines: str) -> None:
    display({"text/html": "\n".join(lines)}, raw=True)


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
        "where a name that ends in eight hexadecimal digits stands for the file whose SHA-256 begins with them. "
        "[All reports](../index.html)."
    )


def show(fig: Figure, alt: str, caption: str) -> None:
    """Show a figure as SVG, with its text for those who cannot see it, and a sentence under it."""
    _show({"image/svg+xml": _svg(fig)}, alt, caption)


def show_and_attach(fig: Figure, alt: str, caption: str) -> None:
    """`show`, with the figure attached as PNG for use elsewhere."""
    _show({"image/svg+xml": _svg(fig), "image/png": _drawn(fig, "png")}, alt, caption)


def _show(pictures: dict[str, str | bytes], alt: str, caption: str) -> None:
    metadata = {kind: {"alt": alt} for kind in pictures}
    display({**pictures, "text/plain": alt}, raw=True, metadata=metadata)
    say(caption)


def _svg(fig: Figure) -> str:
    """The figure at half its length: the font named once, no blanks between elements, hundredths of a point."""
    drawn = _drawn(fig, "svg").decode()
    font = "font-family: 'DejaVu Sans', sans-serif"
    drawn = drawn.replace(f"{font}; ", "").replace("*{stroke-linejoin", f"text{{{font}}} *{{stroke-linejoin", 1)
    return re.sub(r"(\d+\.\d\d)\d+", r"\1", re.sub(r">\s+<", "><", drawn))


@styled
def _drawn(fig: Figure, kind: str) -> bytes:
    """The figure's file, without the date and version that would differ between runs."""
    file = io.BytesIO()
    metadata = dict.fromkeys(("Date", "Creator", "Format", "Type")) if kind == "svg" else {"Software": None}
    fig.savefig(file, format=kind, dpi=120, metadata=metadata)
    return file.getvalue()
