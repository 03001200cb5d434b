"""TeX as MathML: what is rendered, and what is refused rather than shown wrongly."""

import re

import pytest
from bs4 import BeautifulSoup

from kvprefetch.html.mathml import TexError, to_mathml


@pytest.mark.parametrize(
    ("tex", "part"),
    [
        (r"t_l = \frac{2\,b\,n\,h_{kv}\,d_h\,s}{\text{PCIe}}", "<mfrac>"),
        (r"\begin{aligned}a &= b \\[4pt] c &= d\end{aligned}", "<mtable"),
        (r"\begin{gathered}a \\ b\end{gathered}", "<mtable"),
        (r"\begin{cases}c & t \le c \\ t & \text{otherwise}\end{cases}", "<mtable"),
        (r"\begin{dcases}c & t \le c \\ t & t > c\end{dcases}", "<mtable"),
        (r"\begin{pmatrix}1 & 2 \\ 3 & 4\end{pmatrix}", "<mtable"),
        (r"\sum_{l=1}^{L} \max(c_l, t_l)", "<mi>max</mi>"),
        (r"\max\limits_{s} r(s)", "<munder><mi>max</mi>"),
        (r"\max_s r(s)", "<munder><mi>max</mi>"),
        (r"L\max(c, t)", '<mi>L</mi><mspace width="0.167em"></mspace><mi>max</mi><mo'),
        (r"\begin{aligned}a &= b\min(c)\end{aligned}", '<mspace width="0.167em"></mspace><mi>min'),
        (r"\log_2 n", '<mspace width="0.167em"></mspace><mi>n</mi>'),
        (r"\underbrace{a + b}_{\text{both}}", "\N{BOTTOM CURLY BRACKET}"),
        (r"\left\{ x \right. \sqrt{x} \hat{x} \overline{x}", "<msqrt>"),
        (
            r"a \le b \ge c \times d \cdot e \approx f \ne g \infty \alpha",
            "\N{LESS-THAN OR EQUAL TO}",
        ),
        (r"\text{a < b & c}", "&lt;"),
        (r"x \lt y", "&lt;"),
        (r"8{,}000\,\text{GB/s} \quad \lceil n/2 \rceil \%", "GB/s"),
        (r"\mathbf{x} \mathbb{R} \mathcal{O}(n) \mathrm{kv}", "<math"),
    ],
)
def test_tex_becomes_mathml_that_keeps_its_source(tex: str, part: str) -> None:
    math = to_mathml(tex, "block")
    assert part in math
    assert BeautifulSoup(math, "html.parser").math["alttext"] == tex
    assert "&#x" not in math


@pytest.mark.parametrize(
    ("tex", "reason"),
    [
        (r"\foo{x}", r"\foo is not known TeX"),
        (r"a \label{eq} b", r"\label is not known TeX"),
        (r"\text{5 \% of it}", "is not known TeX"),
        (r"{a", "unbalanced braces"),
        (r"a}b{", "unbalanced braces"),
        (r"\frac{1}", "mfrac lacks an operand"),
        (r"x^", "MissingSuperScript"),
        (r"\left( x", "MissingRight"),
        (r"\begin{cases} a", "MissingEnd"),
        (
            r"\begin{align} a \end{align}",
            "uses the environment 'align'; known: Bmatrix, Vmatrix, align*",
        ),
        (r"a & b", "outside a table environment"),
        (r"a \\ b", "outside a table environment"),
        (r"\operatorname{GB/s}", "letters only"),
        ("5 and ", "a blank at its edge"),
        (" ", "is empty"),
    ],
)
def test_tex_that_would_be_shown_wrongly_is_refused_with_the_formula(tex: str, reason: str) -> None:
    with pytest.raises(TexError, match=re.escape(reason)) as refusal:
        to_mathml(tex, "inline")
    assert f"formula ${tex}$" in str(refusal.value)


def test_space_between_rows_is_dropped_not_printed() -> None:
    math = to_mathml(r"\begin{aligned}a &= b \\[4pt] c &= d\end{aligned}", "block")
    assert BeautifulSoup(math, "html.parser").get_text() == "a=bc=d"
