"""Numbers as a person reads them over coffee."""

from __future__ import annotations

import math


def number(x: float) -> str:
    """Three significant digits, no exponent for what a service shows: 41, 0.138, 1,380."""
    return f"{x:,.0f}" if 1000 <= abs(x) < 1e9 else f"{x:.3g}"


def measured(metric: str, x: float) -> str:
    """With the unit that the metric's name carries: 41 ms."""
    words = metric.split("_")
    unit = " ms" if "ms" in words else " s" if words[-1] == "s" and words[-2:-1] != ["per"] else ""
    return number(x) + unit


def ratio(log_ratio: float) -> float:
    """exp, kept finite for JSON: an interval so wide says nothing anyway."""
    return math.exp(min(max(log_ratio, -100.0), 100.0))


def times(log_ratio: float) -> str:
    """1.71x; four digits near 1, where the difference is the news: 1.013x."""
    x = ratio(log_ratio)
    return f"{x:.3f}x" if 0.9 < x < 1.1 else f"{x:.2f}x" if x < 100 else f"{x:.3g}x"


def interval(estimate: float, lower: float, upper: float, confidence: float) -> str:
    """1.71x (98.3 % interval 1.66 to 1.77 without the closing bracket: what it rests on follows."""
    return f"{times(estimate)} ({percent(confidence)} interval {times(lower)[:-1]} to {times(upper)[:-1]}"


def percent(share: float) -> str:
    """98.3 %, and never a false 100 %: 99.996 %."""
    for digits in range(1, 8):
        text = f"{100 * share:.{digits}f}".rstrip("0").rstrip(".")
        if text != "100" or share == 1:
            return f"{text} %"
    return "over 99.99999 %"


def count(n: int, noun: str) -> str:
    return f"{n} {noun}" + ("" if n == 1 else "s")
