"""Every form in which a number is written, to either side of where one form gives way to the next."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvprefetch import formats


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "never"),
        (0, "0 tokens"),
        (1, "1 token"),
        (2, "2 tokens"),
        (1306, "1306 tokens"),
        (10**6, "1000000 tokens"),
    ],
)
def test_one_token_is_no_plural_and_no_context_is_never(count, text):
    assert formats.tokens(count) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1\u202f000"),
        (12345.6, "12\u202f346"),
        (6979321856, "6\u202f979\u202f321\u202f856"),
    ],
)
def test_digits_are_grouped_in_threes(number, text):
    assert formats.grouped(number) == text


@given(st.integers(0, 2**53))
def test_a_grouped_number_is_its_digits(number):
    groups = formats.grouped(number).split("\u202f")
    assert "".join(groups) == f"{number}"
    assert 1 <= len(groups[0]) <= 3 and all(len(group) == 3 for group in groups[1:])


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0.00"),
        (0.004, "0.00"),
        (6.8458, "6.85"),
        (261.784, "261.78"),
        (999.994, "999.99"),
        (1000, "1000.0"),
        (2621.65, "2621.7"),
        (9999.94, "9999.9"),
        (10_000, "10\u202f000"),
        (52_428.9, "52\u202f429"),
    ],
)
def test_milliseconds_to_hundredths_then_to_tenths_then_whole(count, text):
    assert formats.milliseconds(count) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 MB"),
        (12_345, "0.0123 MB"),
        (1_048_576, "1.05 MB"),
        (67_108_864, "67.1 MB"),
        (99_900_000, "99.9 MB"),
        (100e6, "100 MB"),
        (436_207_616, "436 MB"),
        (1_234_567_890, "1235 MB"),
    ],
)
def test_megabytes_to_three_digits(count, text):
    assert formats.megabytes(count) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0.00 GB"), (4e6, "0.00 GB"), (6e6, "0.01 GB"), (1e9, "1.00 GB"), (77.31e9, "77.31 GB"), (-4e9, "-4.00 GB")],
)
def test_gigabytes_to_ten_megabytes(count, text):
    assert formats.gigabytes(count) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 MB"), (171e6, "171 MB"), (999e6, "999 MB"), (1e9, "1.00 GB"), (6.53e9, "6.53 GB"), (65.536e9, "65.54 GB")],
)
def test_a_size_is_in_gigabytes_from_one_on(count, text):
    assert formats.size(count) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0 %"),
        (0.0028, "0.28 %"),
        (0.01, "1 %"),
        (0.0123, "1.2 %"),
        (0.0994, "9.9 %"),
        (0.1, "10 %"),
        (0.159, "16 %"),
        (0.994, "99 %"),
        (1, "100 %"),
    ],
)
def test_a_share_to_two_digits_or_to_whole_percents(share, text):
    assert formats.percent(share) == text


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (1306, 1306, "stays at 1306 tokens"),
        (1, 1, "stays at 1 token"),
        (None, None, "stays away"),
        (None, 1306, "is 1306 tokens, where there was none"),
        (1306, None, "of 1306 tokens is gone: the link is never the bound"),
        (1306, 2612, "moves from 1306 tokens to 2612 tokens"),
        (2, 1, "moves from 2 tokens to 1 token"),
    ],
)
def test_what_becomes_of_a_crossover(before, after, text):
    assert formats.change(before, after) == text
