"""What may be wider than a phone stands in a frame of its own that scrolls.

Tables always, formulas only if they are likely to be too wide: each frame is a tab stop. The
functions change the parsed page in place.
"""

import re

from bs4 import BeautifulSoup, Tag

SHORT = 24  # characters; a longer table cell is prose and needs room
PHONE_EM = 16.0  # em of math that fit a phone's text column, with a margin
SPACED = re.compile("[=+\N{MINUS SIGN}\N{LESS-THAN OR EQUAL TO}\N{GREATER-THAN OR EQUAL TO}<>]")
LENGTH = re.compile(r"-?[\d.]+(?=em)")
STACKED = {"mfrac", "munder", "mover", "munderover", "mtable"}
SCRIPTED = {"msub", "msup", "msubsup"}


def text_of(element: Tag) -> str:
    """Return the element's text with single blanks."""
    return " ".join(element.get_text().split())


def frame_tables(soup: BeautifulSoup) -> None:
    """Scope the headers of every table and put it into a labelled frame that scrolls."""
    labels: dict[str, int] = {}
    for table in soup.find_all("table"):
        scope_headers(table)
        caption = table.find("caption")
        if caption:
            words = list(caption.contents)
            caption.append(soup.new_tag("span"))  # stays in view while the table scrolls
            caption.contents[-1].extend(words)
        named_by = caption or table.find_previous(re.compile("^h[1-6]$"))
        label = text_of(named_by) if named_by else "Table"
        labels[label] = labels.get(label, 0) + 1
        label += f" ({labels[label]})" if labels[label] > 1 else ""
        frame = {"class": "table", "role": "region", "tabindex": "0", "aria-label": label}
        table.wrap(soup.new_tag("div", attrs=frame))


def scope_headers(table: Tag) -> None:
    """Give headers their scope and prose its class; the first cell heads a row if none does."""
    for row in table.find_all("tr"):
        in_head = row.parent.name == "thead"
        if not in_head and not row.find("th") and (first := row.find("td")):
            first.name = "th"
        for cell in row.find_all("td", class_=False):
            if len(text_of(cell)) > SHORT:
                cell["class"] = "text"
        for header in row.find_all("th"):
            if not text_of(header):
                header.name = "td"
                continue
            header.attrs.setdefault("scope", "col" if in_head else "row")
            if header.math and text_of(header) == text_of(header.math):
                name_formula(header)


def name_formula(header: Tag) -> None:
    """Give a header that is only a formula its TeX as the text that screen readers speak."""
    name = Tag(name="span", attrs={"class": "spoken"})
    name.string = str(header.math["alttext"])
    header.math["aria-hidden"] = "true"
    header.append(name)


def frame_formulas(soup: BeautifulSoup) -> None:
    """Put each formula that a phone may not hold into a frame."""
    for math in soup.find_all("math"):
        if width_em(math) > PHONE_EM:
            frame = {"class": f"formula {math['display']}", "role": "group", "tabindex": "0"}
            math.wrap(soup.new_tag("span", attrs=frame | {"aria-label": "Formula"}))


def width_em(element: Tag) -> float:
    """Return a rough width of MathML in em: half an em a character, more around relations."""
    parts = [width_em(child) for child in element.find_all(True, recursive=False)]
    if element.name == "mspace":
        width = LENGTH.match(str(element.get("width")))
        return float(width[0]) if width else 0.0
    if not parts:
        text = element.get_text()
        return len(text) / 2 + (0.5 if SPACED.fullmatch(text) else 0.0)
    if element.name in STACKED:
        return max(parts)
    if element.name in SCRIPTED:
        return parts[0] + 0.7 * max(parts[1:])
    return sum(parts)
