from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge.spending import alpha_for_try, left_after


def test_the_bar_rises_with_every_try() -> None:
    assert [round(alpha_for_try(0.05, j), 5) for j in (1, 2, 5, 20)] == [0.025, 0.00833, 0.00167, 0.00012]


def test_the_budget_adds_up_exactly_and_never_runs_out() -> None:
    spent = sum(Fraction(1, j * (j + 1)) for j in range(1, 1001))
    assert spent == 1 - Fraction(1, 1001)
    assert left_after(0.05, 1000) == pytest.approx(0.05 / 1001)


@given(st.floats(0.001, 0.49), st.integers(1, 10_000))
def test_what_is_spent_and_what_is_left_are_the_budget(alpha: float, tries: int) -> None:
    assert left_after(alpha, tries - 1) - left_after(alpha, tries) == pytest.approx(alpha_for_try(alpha, tries))


@pytest.mark.parametrize(("alpha", "j"), [(0.05, 0), (0.05, -1), (0.0, 1), (1.0, 1)])
def test_out_of_range_is_refused(alpha: float, j: int) -> None:
    with pytest.raises(ValueError):
        alpha_for_try(alpha, j)
