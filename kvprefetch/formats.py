"""How is a number written in a sentence? Each kind of quantity once."""

from __future__ import annotations

from kvprefetch.configs import GB


def tokens(count: int | None) -> str:
    """ "1 token", "1306 tokens"; "never" where there is no such context."""
    return "never" if count is None else f"{count} token" if count == 1 else f"{count} tokens"


def grouped(number: int | float) -> str:
    """A whole number with its digits in threes."""
    return f"{number:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def milliseconds(count: float) -> str:
    """Milliseconds to hundredths, from a thousand on to tenths, from ten thousand on to whole ones."""
    if round(count, 2) < 1e3:
        return f"{count:.2f}"
    return f"{count:.1f}" if round(count, 1) < 1e4 else grouped(count)


def megabytes(count: float) -> str:
    """Bytes as MB, to the MB or to three digits."""
    return f"{count / 1e6:.0f} MB" if count >= 100e6 else f"{count / 1e6:.3g} MB"


def gigabytes(count: float) -> str:
    """Bytes as GB, to ten MB."""
    return f"{round(count / GB, 2) + 0.0:.2f} GB"  # + 0.0: no -0.00


def size(count: float) -> str:
    """Bytes as GB where they are one or more, else as MB."""
    return gigabytes(count) if round(count / 1e6) >= 1e3 else megabytes(count)


def percent(share: float) -> str:
    """A share to two digits, or to whole percents."""
    if 0 < share < 1e-4:
        return "less than 0.01 %"
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def change(before: int | None, after: int | None) -> str:
    """What becomes of a crossover: completes "the crossover ..."."""
    if before == after:
        return "stays away" if after is None else f"stays at {tokens(after)}"
    if before is None:
        return f"is {tokens(after)}, where there was none"
    if after is None:
        return f"of {tokens(before)} is gone: the link is never the bound"
    return f"moves from {tokens(before)} to {tokens(after)}"
