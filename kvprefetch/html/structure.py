"""The cells' HTML, as nbconvert writes it, ordered into one flat article.

Every function takes the parsed page and changes it in place; `article` runs them in order.
"""

import re
from dataclasses import dataclass

from bs4 import BeautifulSoup, NavigableString, Tag

from kvprefetch.checks import InputError
from kvprefetch.html.frames import frame_formulas, frame_tables, text_of

# Names and classes are asked for one by one: CSS selectors take a sixth of a page's time.
WRAPPERS = {
    *("cell", "input", "inner_cell", "input_area", "text_cell_render"),
    *("output_wrapper", "output", "output_area", "output_subarea"),
}
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
    soup = BeautifulSoup(html, "html.parser")
    check_offline(soup)
    caption_figures(soup)
    place_code(soup)
    for div in soup.find_all("div"):
        if WRAPPERS.intersection(div.get("class", ())):
            div.unwrap()
    merge_code(soup)
    frame_tables(soup)
    frame_formulas(soup)
    number_headings(soup)
    contents = tuple(Heading(str(h2["id"]), text_of(h2)) for h2 in soup.find_all("h2"))
    return Article(title_of(soup), str(soup).strip(), contents)


def title_of(soup: BeautifulSoup) -> str:
    """Return the text of the page's only h1. Raises PageError if there is none or several."""
    headings = [text_of(h1) for h1 in soup.find_all("h1")]
    if len(headings) != 1 or not headings[0]:
        raise PageError(f"a report has exactly one h1 heading; this one has {headings}")
    return headings[0]


def check_offline(soup: BeautifulSoup) -> None:
    """Raise PageError for an element that runs, loads or embeds something from elsewhere."""
    for element in soup.find_all(FORBIDDEN):
        raise PageError(f"a report may not hold a <{element.name}> element: {str(element)[:80]}")
    for image in soup.find_all("img"):
        if not str(image.get("src", "")).startswith("data:"):
            raise PageError(f"an image must be embedded, not linked: {str(image)[:80]}")


def caption_figures(soup: BeautifulSoup) -> None:
    """Move the Markdown output that follows a figure in its cell into the figure."""
    for figure in soup.find_all("figure"):
        area = figure.find_parent("div", class_="output_area")
        following = area.find_next_sibling() if area else None
        caption = following.select_one("div.output_markdown") if following else None
        if caption:
            figure.append(caption)
            caption.name, caption.attrs = "figcaption", {}


def place_code(soup: BeautifulSoup) -> None:
    """Move the code of each cell below its output, that of the title and answer below both."""
    for fold in soup.find_all("details", "code"):
        fold.find_parent("div", class_="cell").append(fold)
    first_section = soup.find("h2")
    if first_section:
        section = first_section.find_parent("div", class_="cell")
        for fold in reversed(section.find_all_previous("details", class_="code")):
            section.insert_before(fold)


def merge_code(soup: BeautifulSoup) -> None:
    """Put the code of folds that follow each other under the first of them."""
    for fold in soup.find_all("details", "code"):
        previous = fold.previous_sibling
        while isinstance(previous, NavigableString) and not previous.strip():
            previous = previous.previous_sibling
        if isinstance(previous, Tag) and "code" in previous.get("class", []):
            previous.extend(fold.find_all("div", recursive=False))
            fold.decompose()


def number_headings(soup: BeautifulSoup) -> None:
    """Give each heading below the title an anchor made of its text, unique on the page."""
    seen: dict[str, int] = {}
    for heading in soup.find_all(["h2", "h3", "h4", "h5", "h6"]):
        slug = re.sub(r"[^a-z0-9]+", "-", text_of(heading).lower()).strip("-") or "section"
        seen[slug] = seen.get(slug, 0) + 1
        heading["id"] = slug if seen[slug] == 1 else f"{slug}-{seen[slug]}"
