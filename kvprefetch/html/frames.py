"""What may be wider than a phone stands in a frame of its own that scrolls.

Tables always, formulas only if they are likely to be too wide: each frame is a tab stop. The
functions change the parsed page in place.
"""

import re

from lxml.html import Element, HtmlElement

SHORT = 24  # characters; a longer table cell is prose and needs room
PHONE_EM = 16.0  # em of math that fit a phone's text column, with a margin
SPACED = re.compile("[=+\N{MINUS SIGN}\N{LESS-THAN OR EQUAL TO}\N{GREATER-THAN OR EQUAL TO}<>]")
LENGTH = re.compile(r"-?[\d.]+(?=em)")
STACKED = {"mfrac", "munder", "mover", "munderover", "mtable"}
SCRIPTED = {"msub", "msup", "msubsup"}
HEADINGS = {f"h{level}" for level in range(1, 7)}


def text_of(element: HtmlElement) -> str:
    """Return the element's text with single blanks."""
    return " ".join(element.text_content().split())


def classes_of(element: HtmlElement) -> set[str]:
    """Return the element's classes."""
    return set(element.get("class", "").split())


def frame_tables(page: HtmlElement) -> None:
    """Scope the headers of every table and put it into a labelled frame that scrolls."""
    labels: dict[str, int] = {}
    heading = None
    for element in list(page.iter("table", *HEADINGS)):
        if element.tag != "table":
            heading = element
            continue
        scope_headers(element)
        caption = element.find("caption")
        named_by = heading if caption is None else caption
        label = "Table" if named_by is None else text_of(named_by)
        labels[label] = labels.get(label, 0) + 1
        label += f" ({labels[label]})" if labels[label] > 1 else ""
        if caption is not None:
            wrap_content(caption, Element("span"))  # stays in view while the table scrolls
        wrap(element, Element("div", {"class": "table", "role": "region", "tabindex": "0", "aria-label": label}))


def wrap(element: HtmlElement, frame: HtmlElement) -> None:
    """Put `frame` in the place of `element`, and that inside."""
    element.addprevious(frame)
    frame.tail, element.tail = element.tail, None
    frame.append(element)


def wrap_content(element: HtmlElement, inner: HtmlElement) -> None:
    """Put `inner` into `element`, around all that is in it."""
    inner.text, element.text = element.text, None
    inner.extend(element)
    element.append(inner)


def scope_headers(table: HtmlElement) -> None:
    """Give headers their scope and prose its class; the first cell heads a row if none does."""
    for row in table.iter("tr"):
        in_head = row.getparent().tag == "thead"
        if not in_head and row.find("th") is None and row.find("td") is not None:
            row.find("td").tag = "th"
        for cell in row:
            text = text_of(cell)
            if cell.tag == "td" and "class" not in cell.attrib and len(text) > SHORT:
                cell.set("class", "text")
            elif cell.tag == "th" and not text:
                cell.tag = "td"
            elif cell.tag == "th":
                cell.set("scope", cell.get("scope", "col" if in_head else "row"))
                math = cell.find(".//math")
                if math is not None and text == text_of(math):
                    name_formula(cell, math)


def name_formula(header: HtmlElement, math: HtmlElement) -> None:
    """Give a header that is only a formula its TeX as the text that screen readers speak."""
    name = Element("span", {"class": "spoken"})
    name.text = math.attrib["alttext"]
    math.set("aria-hidden", "true")
    header.append(name)


def frame_formulas(page: HtmlElement) -> None:
    """Put each formula that a phone may not hold into a frame."""
    for math in page.findall(".//math"):
        if width_em(math) > PHONE_EM:
            kind = f"formula {math.attrib['display']}"
            wrap(math, Element("span", {"class": kind, "role": "group", "tabindex": "0", "aria-label": "Formula"}))


def width_em(element: HtmlElement) -> float:
    """Return a rough width of MathML in em: half an em a character, more around relations."""
    parts = [width_em(child) for child in element]
    if element.tag == "mspace":
        width = LENGTH.match(element.get("width", ""))
        return float(width[0]) if width else 0.0
    if not parts:
        text = element.text or ""
        return len(text) / 2 + (0.5 if SPACED.fullmatch(text) else 0.0)
    if element.tag in STACKED:
        return max(parts)
    if element.tag in SCRIPTED:
        return parts[0] + 0.7 * max(parts[1:])
    return sum(parts)
