"""The shell around a page's content: head, stylesheet, math font, table of contents.

Reports and plain pages share it, so they share looks and promises.
"""

import base64
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from kvprefetch.html.structure import Heading

TEMPLATES = Path(__file__).parent / "templates"
SHELL = TEMPLATES / "kvprefetch"
STYLES = ("base.css", "blocks.css", "code.css", "print.css")
FONT = "stix-two-math-subset.woff2"


def page(title: str, body: str, contents: Sequence[Heading] = ()) -> str:
    """Return a whole HTML document.

    `title` is plain text, `body` is HTML with one h1. With `contents`, the list of sections stands
    beside the text on wide screens and folded before the first h2 on narrow ones.
    """
    shell = shell_template("page.html.j2")
    opening, first_h2, sections = body.partition("<h2")
    return shell.render(
        title=title,
        opening=Markup(opening),
        sections=Markup(first_h2 + sections),
        contents=contents,
        style=Markup(stylesheet()),
    )


def shell_template(name: str) -> Template:
    """One of the templates beside the shell; what is filled in is escaped."""
    return Environment(loader=FileSystemLoader(SHELL), autoescape=True, undefined=StrictUndefined).get_template(name)


@cache
def stylesheet() -> str:
    """Return the CSS of every page with the math font embedded."""
    font = base64.b64encode((SHELL / "static" / FONT).read_bytes()).decode("ascii")
    face = f'@font-face{{font-family:"Report Math";src:url(data:font/woff2;base64,{font})}}'
    return "\n".join([*((SHELL / "static" / name).read_text("utf-8") for name in STYLES), face])
