"""The cells' HTML, as nbconvert writes it, ordered into one flat article.

Every function takes the parsed page and changes it in place; `article` runs them in order.
"""

import re
from dataclasses import dataclass

from lxml.html import HtmlElement, HTMLParser, fragment_fromstring, tostring

from kvprefetch.checks import InputError
from kvprefetch.html.frames import classes_of, frame_formulas, frame_tables, text_of

WRAPPERS = {
    *("cell", "input", "inner_cell", "input_area", "text_cell_render"),
    *("output_wrapper", "output", "output_area", "output_subarea"),
}
PARSER = HTMLParser(remove_comments=True, remove_pis=True, huge_tree=True)
FORBIDDEN = ["script", "link", "iframe", "object", "embed", "base", "form"]


class PageError(InputError):
    """A page that breaks a promise of the report: one title, alt texts, nothing external."""


@dataclass(frozen=True)
class Heading:
    """One line of the table of contents."""

    id: str  # anchor on the page
    text: str  # plain text of the heading


@dataclass(frozen=True)
class Article:
    """The page's content, ready for the shell."""

    title: str  # text of the one h1
    body: str  # HTML
    contents: tuple[Heading, ...]  # the h2 headings in order


def article(html: str) -> Article:
    """Return the article made of nbconvert's HTML. Raises PageError (see there)."""
    text = html.encode(errors="replace").decode()  # half a surrogate pair would end the page
    page = fragment_fromstring(text, create_parent="article", parser=PARSER)
    check_offline(page)
    caption_figures(page)
    place_code(page)
    for div in page.findall(".//div"):
        if WRAPPERS & classes_of(div):
            unwrap(div)
    merge_code(page)
    frame_tables(page)
    frame_formulas(page)
    number_headings(page)
    contents = tuple(Heading(h2.get("id"), text_of(h2)) for h2 in page.iter("h2"))
    body = tostring(page, encoding="unicode").removeprefix("<article>").removesuffix("</article>")
    return Article(title_of(page), body.strip(), contents)


def unwrap(div: HtmlElement) -> None:
    """Leave what is in `div` in its place, without the blank lines around it."""
    div.text = (div.text or "").lstrip()
    div.tail = "\n" + (div.tail or "").lstrip()
    div.drop_tag()


def title_of(page: HtmlElement) -> str:
    """Return the text of the page's only h1. Raises PageError if there is none or several."""
    headings = [text_of(h1) for h1 in page.iter("h1")]
    if len(headings) != 1 or not headings[0]:
        raise PageError(f"a report has exactly one h1 heading; this one has {headings}")
    return headings[0]


def check_offline(page: HtmlElement) -> None:
    """Raise PageError for an element that runs, loads or embeds something from elsewhere."""
    for element in page.iter(FORBIDDEN):
        raise PageError(f"a report may not hold a <{element.tag}> element: {_source(element)}")
    for image in page.iter("img"):
        if not image.get("src", "").startswith("data:"):
            raise PageError(f"an image must be embedded, not linked: {_source(image)}")


def caption_figures(page: HtmlElement) -> None:
    """Move the Markdown output that follows a figure in its cell into the figure."""
    for figure in page.findall(".//figure"):
        area = next((div for div in figure.iterancestors("div") if "output_area" in classes_of(div)), None)
        if area is None or area.getnext() is None:
            continue
        for caption in area.getnext().find_class("output_markdown")[:1]:
            caption.tag = "figcaption"
            caption.attrib.clear()
            figure.append(caption)


def place_code(page: HtmlElement) -> None:
    """Move the code of each cell below its output, that of the title and answer below both."""
    for fold in page.findall(".//details"):
        if "code" in classes_of(fold):
            _cell_of(fold).append(fold)
    first_section = page.find(".//h2")
    if first_section is not None:
        for fold in first_section.xpath("preceding::details"):
            if "code" in classes_of(fold):
                _cell_of(first_section).addprevious(fold)


def merge_code(page: HtmlElement) -> None:
    """Put the code of folds that follow each other under the first of them."""
    for fold in page.findall(".//details"):
        previous = fold.getprevious()
        if previous is None or (previous.tail or "").strip():
            continue
        if "code" in classes_of(fold) & classes_of(previous):
            previous.extend(fold.findall("div"))
            fold.drop_tree()


def number_headings(page: HtmlElement) -> None:
    """Give each heading below the title an anchor made of its text, unique on the page."""
    seen: dict[str, int] = {}
    for heading in page.iter("h2", "h3", "h4", "h5", "h6"):
        slug = re.sub(r"[^a-z0-9]+", "-", text_of(heading).lower()).strip("-") or "section"
        seen[slug] = seen.get(slug, 0) + 1
        heading.set("id", slug if seen[slug] == 1 else f"{slug}-{seen[slug]}")


def _cell_of(element: HtmlElement) -> HtmlElement:
    return next(div for div in element.iterancestors("div") if "cell" in classes_of(div))


def _source(element: HtmlElement) -> str:
    return tostring(element, encoding="unicode", with_tail=False)[:80]
