"""TeX to MathML at export time, or an error that names the formula.

latex2mathml prints what it does not know as text and says nothing. So the text is checked before
the conversion (braces, environments) and the tree after it (commands left over, operands missing).
"""

import re
from html import unescape
from typing import Literal
from xml.etree.ElementTree import Element, tostring

from latex2mathml.converter import Converter

from kvprefetch.checks import InputError

Display = Literal["inline", "block"]

ALIASES = {"aligned": "split", "gathered": "split", "dcases": "cases"}
MATRICES = {"array", "matrix", "pmatrix", "bmatrix", "Bmatrix", "vmatrix", "Vmatrix"}
ENVIRONMENTS = {"align*", "cases", "equation*", "split", *ALIASES, *MATRICES}
LIMITS = {"max", "min"}  # functions whose subscript stands below in display
SCRIPTS = {"msub", "msup", "msubsup", "munder"}
OPERANDS = {                               # children that an element must have
    "mfrac": 2, "mroot": 2, "msub": 2, "msup": 2, "munder": 2, "mover": 2,
    "msubsup": 3, "munderover": 3,
}  # fmt: skip
TOKENS = {"mi", "mn", "mo", "mtext"}

ENVIRONMENT = re.compile(r"\\(begin|end)\{([^}]*)\}")
ROW_SPACE = re.compile(r"\\\\\s*\[[^\]]*\]")


class TexError(InputError):
    """A formula that cannot be turned into MathML; the message quotes it."""


def to_mathml(tex: str, display: Display) -> str:
    r"""Return the `<math>` element for a formula given without its dollars.

    `aligned` and `gathered` become `split`, `dcases` becomes `cases`, the space in `\\[4pt]` is
    dropped. Raises TexError for blanks at the edge of an inline formula (two dollar amounts in a
    sentence look like one), unbalanced braces, unknown commands or environments, missing operands.
    """
    _check_source(tex, display)
    try:
        math = Converter(display=display).convert_to_element(_normalized(tex))
    except Exception as error:  # the converter has a dozen error classes and no common base
        raise TexError(f"formula ${tex}$: {type(error).__name__.removesuffix('Error')}") from error
    for element in math.iter():
        element.text = unescape(element.text or "")
        _check_element(element, tex)
    _set_functions(math, display)
    math.set("alttext", " ".join(tex.split()))
    return tostring(math, encoding="unicode", short_empty_elements=False)


def _check_source(tex: str, display: Display) -> None:
    if not tex.strip():
        raise TexError(f"formula ${tex}$ is empty; write \\$ for a dollar sign")
    if display == "inline" and tex != tex.strip():
        raise TexError(f"formula ${tex}$ has a blank at its edge; write \\$ for a dollar sign")
    depth = 0
    for brace in re.findall(r"\\.|[{}]", tex):
        depth += {"{": 1, "}": -1}.get(brace, 0)
        if depth < 0:
            break
    if depth:
        raise TexError(f"formula ${tex}$ has unbalanced braces")
    for _, name in ENVIRONMENT.findall(tex):
        if name not in ENVIRONMENTS:
            known = ", ".join(sorted(ENVIRONMENTS))
            raise TexError(f"formula ${tex}$ uses the environment {name!r}; known: {known}")


def _normalized(tex: str) -> str:
    def alias(match: re.Match[str]) -> str:
        verb, name = match.groups()
        return rf"\{verb}{{{ALIASES.get(name, name)}}}"

    return ENVIRONMENT.sub(alias, ROW_SPACE.sub(r"\\\\", tex))


def _check_element(element: Element, tex: str) -> None:
    text = element.text or ""
    if "\\" in text or "$" in text:
        raise TexError(f"formula ${tex}$: {text.strip()} is not known TeX")
    if (element.tag == "mi" and text == "&") or element.get("linebreak") == "newline":
        raise TexError(f"formula ${tex}$ uses & or \\\\ outside a table environment")
    if len(element) != OPERANDS.get(element.tag, len(element)):
        raise TexError(f"formula ${tex}$: {element.tag} lacks an operand")
    is_empty = element.tag == "mo" and not (text or element.attrib)
    if is_empty or (element.tag in TOKENS and len(element)):
        raise TexError(f"formula ${tex}$: an operator name must be letters only; use \\text{{}}")


def _set_functions(math: Element, display: Display) -> None:
    """Make max and min identifiers, with limits below in display, and space every function."""
    for element in math.iter():
        if element.tag == "mo" and element.text in LIMITS:
            element.tag = "mi"
        if element.tag == "msub" and display == "block" and element[0].text in LIMITS:
            element.tag = "munder"
    for row in [*math.iter("mrow"), *math.iter("mtd")]:
        spaced = []
        for before, element in zip([None, *row], row, strict=False):
            if _needs_space(before, element):
                spaced.append(Element("mspace", width="0.167em"))
            spaced.append(element)
        row[:] = spaced


def _needs_space(before: Element | None, element: Element) -> bool:
    """Say whether TeX puts a thin space between two neighbours because one is a function."""
    if before is None or {before.tag, element.tag} & {"mspace", "mtable"}:
        return False
    if _is_function(before):
        return element.tag != "mo"
    closes = before.tag != "mo" or before.text in {")", "]", "|"}
    return _is_function(element) and closes


def _is_function(element: Element) -> bool:
    base = element[0] if element.tag in SCRIPTS and len(element) else element
    return base.tag == "mi" and len(base.text or "") > 1 and (base.text or "").isalpha()
