"""The page in a real browser with the network blocked: phone to wide screen, dark, print."""

import io
import re
import shutil
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from sample_report import sample_report

sync_api = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")
pypdf = pytest.importorskip("pypdf")

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
PAGE_NUMBER = re.compile(r"\d+ / \d+$")


@pytest.fixture(scope="session", params=["sample", "llama3-8b--a100"])
def report_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page under test: one with everything a page may hold, and a real report."""
    if request.param == "sample":
        path = tmp_path_factory.mktemp("page") / "report.html"
        path.write_text(sample_report(), "utf-8")
        return path
    return request.getfixturevalue("fresh_reports") / request.param / "report.html"


@pytest.fixture(scope="session")
def browser() -> Iterator["sync_api.Browser"]:
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(PROGRAMS)} is installed")
    with sync_api.sync_playwright() as driver:
        yield driver.chromium.launch(executable_path=program, args=FLAGS)


class View:
    """A page opened at one width in one colour scheme; requests for anything remote are refused."""

    def __init__(self, browser: "sync_api.Browser", path: Path, width: int, scheme: str) -> None:
        self.remote: list[str] = []  # addresses asked for and refused
        self.context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        self.context.route("**/*", self._answer)
        self.page = self.context.new_page()
        self.page.goto(path.as_uri(), wait_until="load")
        self.page.evaluate("document.fonts.ready")

    def _answer(self, route: "sync_api.Route") -> None:
        if route.request.url.startswith(("file:", "data:")):
            route.continue_()
        else:
            self.remote.append(route.request.url)
            route.abort()

    def unfold(self) -> None:
        self.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")


DESKTOP, NIGHT, PHONE = (1280, "light"), (1280, "dark"), (375, "dark")


@pytest.fixture(params=[DESKTOP, NIGHT, PHONE], ids=["desktop", "dark desktop", "dark phone"])
def view(browser, report_path, request) -> Iterator[View]:
    opened = View(browser, report_path, *request.param)
    yield opened
    opened.context.close()


@pytest.fixture
def phone(browser, report_path) -> Iterator[View]:
    opened = View(browser, report_path, *PHONE)
    yield opened
    opened.context.close()


@pytest.fixture
def desktop(browser, report_path) -> Iterator[View]:
    opened = View(browser, report_path, *DESKTOP)
    yield opened
    opened.context.close()


def test_no_request_leaves(view: View) -> None:
    view.unfold()
    assert view.remote == []


def test_a_request_would_be_noticed(browser, tmp_path: Path) -> None:
    loading = tmp_path / "loading.html"
    loading.write_text("<img src='http://example.org/x.png'>")
    opened = View(browser, loading, *DESKTOP)
    assert opened.remote == ["http://example.org/x.png"]


def test_axe_finds_no_violation(view: View) -> None:
    view.unfold()
    found = axe.Axe().run(view.page)
    assert [
        (rule["id"], node["target"], node["failureSummary"])
        for rule in found.response["violations"]
        for node in rule["nodes"]
    ] == []


def test_nothing_overflows_on_a_phone(phone: View) -> None:
    phone.unfold()
    assert phone.page.evaluate("document.documentElement.scrollWidth") <= 375


def test_a_wide_table_scrolls_in_its_own_frame_under_a_caption_in_view(phone: View) -> None:
    frame = phone.page.locator("div.table").last
    assert frame.evaluate("e => e.scrollWidth > e.clientWidth")
    frame.evaluate("e => e.scrollLeft = 150")
    box = frame.locator("caption > span").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 375


@pytest.mark.parametrize("kind", ["num", "name"])
def test_what_heads_a_row_stays_in_view_while_its_table_scrolls(phone: View, kind: str) -> None:
    frame = phone.page.locator("div.table").last
    heads = frame.locator("tbody th, thead th:first-child")
    heads.evaluate_all(f"all => all.forEach(each => each.className = '{kind}')")
    assert frame.evaluate("e => (e.scrollLeft = 150, e.scrollLeft)") == 150
    left = frame.bounding_box()["x"]
    assert [head.bounding_box()["x"] for head in heads.all()] == [left] * heads.count()


def test_every_formula_has_a_box_in_the_embedded_font(view: View) -> None:
    view.unfold()
    boxes = view.page.evaluate(
        "[...document.querySelectorAll('math')].map(m => m.getBoundingClientRect()).map(b => [b.width, b.height])"
    )
    assert boxes
    assert all(width > 0 and height > 0 for width, height in boxes)
    assert view.page.evaluate("[...document.fonts].filter(f => f.status == 'loaded').map(f => f.family)") == [
        "Report Math"
    ]


def test_the_contents_stay_in_view_on_a_wide_screen(desktop: View) -> None:
    desktop.page.evaluate("window.scrollTo(0, document.documentElement.scrollHeight)")
    assert desktop.page.locator("nav.wide li").first.bounding_box()["y"] >= 0
    assert desktop.page.locator("nav.narrow").is_hidden()


def test_the_contents_are_folded_on_a_phone(phone: View) -> None:
    assert phone.page.locator("nav.wide").is_hidden()
    assert phone.page.locator("nav.narrow summary").is_visible()
    assert phone.page.locator("nav.narrow a").first.is_hidden()


def test_the_answer_is_four_figures_in_one_row_or_two(desktop: View, phone: View) -> None:
    def rows(view: View) -> int:
        tops = "[...document.querySelectorAll('dl.answer > div')].map(d => d.offsetTop)"
        return len(set(view.page.evaluate(tops)))

    assert (rows(desktop), rows(phone)) == (1, 2)


def test_printed_pages_hold_text_but_no_code_or_contents(desktop: View) -> None:
    printed = desktop.page.pdf(prefer_css_page_size=True)
    texts = [" ".join(p.extract_text().split()) for p in pypdf.PdfReader(io.BytesIO(printed)).pages]
    assert all(PAGE_NUMBER.sub("", text).strip() for text in texts)
    code = desktop.page.locator("details.code pre").first.text_content().splitlines()[0]
    assert code not in "".join(texts)
    assert "Contents" not in "".join(texts)


def test_no_table_is_cut_by_the_end_of_a_printed_page(desktop: View) -> None:
    printed = desktop.page.pdf(prefer_css_page_size=True)
    pages = [_words(p.extract_text()) for p in pypdf.PdfReader(io.BytesIO(printed)).pages]
    tables = desktop.page.evaluate(
        "[...document.querySelectorAll('table:not(:has(math))')].map("
        "t => [...t.tBodies[0].rows].map(r => [...r.cells].map(c => c.textContent).join(' ')))"
    )
    assert tables
    for rows in tables:
        assert any(_words(rows[0]) | _words(rows[-1]) <= page for page in pages), rows[0]


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", unicodedata.normalize("NFKC", text)))


@pytest.mark.parametrize(("width", "scheme"), [DESKTOP, PHONE], ids=["desktop", "dark phone"])
def test_the_index_of_all_reports_keeps_the_same_promises(
    browser, fresh_reports: Path, width: int, scheme: str
) -> None:
    opened = View(browser, fresh_reports / "index.html", width, scheme)
    found = axe.Axe().run(opened.page).response["violations"]
    wide = opened.page.evaluate("document.documentElement.scrollWidth")
    opened.context.close()
    assert (opened.remote, [rule["id"] for rule in found]) == ([], [])
    assert wide <= width
