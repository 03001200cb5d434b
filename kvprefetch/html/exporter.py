"""The nbconvert exporter `kvprefetch`: `jupyter nbconvert --to kvprefetch report.ipynb`."""

import re
from functools import lru_cache
from typing import Any

from jinja2 import pass_context
from jinja2.runtime import Context
from nbconvert.exporters.templateexporter import TemplateExporter
from nbconvert.filters.highlight import Highlight2HTML
from nbformat import NotebookNode
from traitlets import default
from traitlets.config import Config

from kvprefetch.html.markdown import to_html
from kvprefetch.html.mathml import TexError
from kvprefetch.html.page import TEMPLATES, page
from kvprefetch.html.structure import PageError, article

UNCOLOURED = re.compile('<span class="(?:n|o|p|w)">([^<]*)</span>')  # names, operators, brackets, blanks
HIDDEN_INPUTS = {"remove-input", "parameters", "injected-parameters"}


class ReportExporter(TemplateExporter):
    """A notebook as one self-contained page; the notebook itself is left as it is.

    Raises TexError for a formula that cannot be rendered and PageError for a figure without alt
    text, a missing or second title, or content that is not on the page itself.
    """

    export_from_notebook = None  # not in the notebook's own menu
    output_mimetype = "text/html"

    @default("file_extension")
    def _file_extension_default(self) -> str:
        return ".html"

    @default("template_name")
    def _template_name_default(self) -> str:
        return "kvprefetch"

    @default("extra_template_basedirs")
    def _extra_template_basedirs_default(self) -> list[str]:
        return [str(TEMPLATES)]

    @property
    def default_config(self) -> Config:
        """Traits of the exporter and its preprocessors: no prompts, tags obeyed, no scripts."""
        config = super().default_config.copy()
        config.TemplateExporter.exclude_input_prompt = True
        config.TemplateExporter.exclude_output_prompt = True
        config.TagRemovePreprocessor.enabled = True
        config.Exporter.optimistic_validation = True  # once, not after each of a dozen preprocessors
        config.TagRemovePreprocessor.remove_cell_tags = {"remove-cell"}
        config.TagRemovePreprocessor.remove_input_tags = HIDDEN_INPUTS
        config.NbConvertBase.display_data_priority = [
            "text/html", "text/markdown", "image/svg+xml", "image/png", "text/latex", "text/plain",
        ]  # fmt: skip
        return config

    def default_filters(self) -> Any:
        """Yield nbconvert's filters and this page's own."""
        yield from super().default_filters()
        yield "markdown2html", self.markdown2html
        yield "highlight_code", highlighted
        yield "alt_text", alt_text

    @pass_context
    def markdown2html(self, context: Context, source: str) -> str:
        """Return the HTML of a Markdown cell or output, naming the cell if a formula fails."""
        try:
            return to_html(source)
        except TexError as error:
            one_line = " ".join(str(error).split())
            raise TexError(f"cell {context['cell'].get('id')!r}: {one_line}") from error

    def rehearse(self, nb: NotebookNode) -> None:
        """Render the cells of a notebook that is still to be run: what a run leaves as it is, is remembered."""
        super().from_notebook_node(nb)

    def from_notebook_node(
        self, nb: NotebookNode, resources: dict[str, Any] | None = None, **options: Any
    ) -> tuple[str, dict[str, Any]]:
        """Return the page and nbconvert's resources for an executed notebook."""
        html, resources = super().from_notebook_node(nb, resources, **options)
        content = article(html)
        return page(content.title, content.body, content.contents), resources


@lru_cache(maxsize=1024)
def highlighted(source: str) -> str:
    """The HTML of Python code, without the spans of tokens that have no colour: a third of a page's code."""
    return UNCOLOURED.sub(r"\1", Highlight2HTML(pygments_lexer="python")(source))


@pass_context
def alt_text(context: Context, output: NotebookNode, mime_type: str) -> str:
    """Return an image output's alt text. Raises PageError that names the cell if it has none."""
    text = output.metadata.get(mime_type, {}).get("alt", "").strip()
    if not text:
        cell = context["cell"].get("id")
        raise PageError(f"cell {cell!r}: its {mime_type} output has no alt text in its metadata")
    return text
