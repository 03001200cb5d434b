"""Markdown to HTML with MathML; a tag in Markdown is text.

nbconvert already splits formulas from prose; only the last step of its renderer is replaced.
"""

from functools import lru_cache

from nbconvert.filters.markdown_mistune import (
    IPythonRenderer,
    MarkdownWithMath,
    MathBlockParser,
    MathInlineParser,
)

from kvprefetch.html.mathml import to_mathml


class ReportRenderer(IPythonRenderer):
    """nbconvert's Markdown renderer with formulas as MathML."""

    def inline_math(self, body: str) -> str:
        """Return the formula between single dollars."""
        return to_mathml(body, "inline")

    def block_math(self, body: str) -> str:
        """Return the formula between double dollars."""
        return to_mathml(body, "block")

    def latex_environment(self, name: str, body: str) -> str:
        r"""Return the formula between \begin{name} and \end{name}."""
        return to_mathml(rf"\begin{{{name}}}{body}\end{{{name}}}", "block")


@lru_cache(maxsize=1024)
def to_html(source: str) -> str:
    """Return the HTML of a Markdown text. Raises TexError for a formula it cannot render."""
    renderer = ReportRenderer(escape=False, allow_harmful_protocols=False, exclude_anchor_links=True)
    blocks, inline = MathBlockParser(), MathInlineParser()
    blocks.rules.remove("raw_html")
    inline.rules.remove("inline_html")
    return MarkdownWithMath(renderer, blocks, inline).render(source)
