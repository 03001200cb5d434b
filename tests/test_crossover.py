"""How a bisection into many parts finds where something begins. The crossover itself: test_planner."""

from hypothesis import given
from hypothesis import strategies as st

from kvprefetch.crossover import first_where


@given(st.integers(-5, 10**9), st.integers(0, 10**9), st.integers(0, 10**9))
def test_a_bisection_into_many_parts_finds_where_it_begins(first, length, begins):
    last, asked = first + length, []
    begins = min(first + begins, last)

    def holds(numbers):
        asked.append(numbers)
        return numbers >= begins

    assert first_where(first, last, holds) == begins
    assert len(asked) <= 3
    assert all((numbers[:-1] <= numbers[1:]).all() and numbers[0] >= first and numbers[-1] < last for numbers in asked)
