"""The promises of a page that can be checked without a browser."""

import re

from bs4 import BeautifulSoup, Tag

SIZE_LIMIT = 300_000  # bytes of a report's HTML
LOADING = "script, link, iframe, object, embed, base, form, frame, audio, video"
EXTERNAL_CSS = re.compile(r"@import|url\(\s*['\"]?(?!data:|#)", re.IGNORECASE)
RAW_TEX = re.compile(r"\$\$|\\begin\{|\\\(|\\\[|\\frac\b")
LOCAL_PATH = re.compile(r"(?<![\w./+-])/(home|root|tmp|usr|var|Users|mnt|opt)/[\w.-]+")


def broken_rules(html: str) -> list[str]:
    """Return one line for each broken promise of a page; an empty list is a good page."""
    soup = BeautifulSoup(html, "html.parser")
    return [
        *_frame(soup, html),
        *_nothing_external(soup),
        *_images(soup),
        *_tables(soup),
        *_anchors(soup),
        *_text(soup, html),
    ]


def _frame(soup: BeautifulSoup, html: str) -> list[str]:
    found = []
    h1 = soup.find_all("h1")
    title = soup.title.get_text(strip=True) if soup.title else ""
    if len(h1) != 1:
        found.append(f"{len(h1)} h1 headings instead of one")
    elif title != " ".join(h1[0].get_text().split()):
        found.append(f"the title {title!r} is not the h1")
    if not soup.html or soup.html.get("lang") != "en":
        found.append("html has no lang=en")
    if not soup.select_one("meta[http-equiv='Content-Security-Policy'][content*=\"'none'\"]"):
        found.append("no policy that keeps the page from loading anything")
    if not title:
        found.append("no title")
    if (size := len(html.encode())) > SIZE_LIMIT:
        found.append(f"{size} bytes; the limit is {SIZE_LIMIT}")
    return found


def _nothing_external(soup: BeautifulSoup) -> list[str]:
    found = [f"a <{element.name}> element" for element in soup.select(LOADING)]
    for element in soup.find_all(True):
        for name, value in element.attrs.items():
            if name.startswith("on"):
                found.append(f"an {name} handler on <{element.name}>")
            elif name in {"src", "srcset", "href", "xlink:href", "data", "poster", "background"}:
                if not _is_allowed(element, name, str(value)):
                    found.append(f"<{element.name} {name}={str(value)[:60]!r}>")
            elif name == "style" and EXTERNAL_CSS.search(str(value)):
                found.append(f"an external style on <{element.name}>")
    styles = "".join(style.get_text() for style in soup.find_all("style"))
    return found + [f"css {hit[0]!r}" for hit in EXTERNAL_CSS.finditer(styles)]


def _is_allowed(element: Tag, name: str, value: str) -> bool:
    if element.name == "a" and name == "href":
        return re.match(r"#|https?://|[\w./%-]+\.html(#|$)", value) is not None
    return value.startswith("data:")


def _images(soup: BeautifulSoup) -> list[str]:
    alts = [str(image.get("alt", "")).strip() for image in soup.find_all("img")]
    return [
        f"an image with the alt text {alt!r}"
        for alt in alts
        if not alt or alt.startswith("No description has been provided")
    ]


def _tables(soup: BeautifulSoup) -> list[str]:
    found = []
    for table in soup.find_all("table"):
        frame = table.parent
        if "table" not in frame.get("class", []) or frame.get("tabindex") != "0":
            found.append("a table outside a frame that scrolls")
        elif frame.get("role") != "region" or not frame.get("aria-label"):
            found.append("a table's frame without a label")
        headers = table.find_all("th")
        if not headers:
            found.append("a table without header cells")
        found += ["a header cell without scope" for th in headers if not th.get("scope")]
        found += ["an empty header cell" for th in headers if not th.get_text(strip=True)]
        if len(table.select("tr.mark")) > 1:
            found.append("a table with several marked rows")
    return found


def _anchors(soup: BeautifulSoup) -> list[str]:
    ids = [element["id"] for element in soup.find_all(id=True)]
    targets = [str(a["href"])[1:] for a in soup.select("a[href^='#']")]
    found = [f"the id {name!r} twice" for name in sorted(set(ids)) if ids.count(name) > 1]
    return found + [f"a link to the missing #{name}" for name in targets if name not in ids]


def _text(soup: BeautifulSoup, html: str) -> list[str]:
    found = [f"the path {hit[0]!r}" for hit in LOCAL_PATH.finditer(html)]
    for element in soup.select("code, pre, style, .spoken"):
        element.extract()
    return found + [f"raw TeX {hit[0]!r}" for hit in RAW_TEX.finditer(soup.get_text())]
