"""How numbers are written: the same in the page, the terminal and the README."""

from __future__ import annotations

import math

MISSING = "–"
MINUS = "−"


def as_float(value: object) -> float:
    """NaN for None: a value that a diverged run does not have."""
    return math.nan if value is None else float(value)  # type: ignore[arg-type]


def decimals(value: float) -> int:
    return 3 if abs(value) < 10 else 2 if abs(value) < 1000 else 0


def measured(value: float, places: int | None = None) -> str:
    if not math.isfinite(value):
        return MISSING
    text = f"{value:.{decimals(value) if places is None else places}f}"
    return text.replace("-", MINUS)


def with_spread(mean: float, std: float) -> str:
    """`0.571 ± 0.009`; the mean alone where there is no spread to give."""
    text = measured(mean)
    return f"{text} ± {measured(std, decimals(mean))}" if math.isfinite(std) and math.isfinite(mean) else text


def printed(value: float) -> str:
    """A figure somebody else printed: no more digits than needed, but two."""
    text = measured(value)
    return text[:-1] if "." in text and text.endswith("0") and len(text.split(".")[1]) == 3 else text


def signed(value: float, beside: float) -> str:
    """A difference, with as many digits as the value it stands beside."""
    if not math.isfinite(value):
        return MISSING
    text = measured(abs(value), decimals(beside))
    return ("+" if value > 0 else MINUS if value < 0 else "±") + text


def percent(share: float) -> str:
    if not math.isfinite(share):
        return MISSING
    places = 0 if abs(share) >= 0.01 else 1
    return ("+" if share > 0 else MINUS if share < 0 else "±") + f"{100 * abs(share):.{places}f} %"


def count(value: int | None) -> str:
    return MISSING if value is None else f"{value:,}".replace(",", " ")


def duration(seconds: float) -> str:
    if not math.isfinite(seconds):
        return MISSING
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def or_diverged(mean: float, std: float) -> str:
    return with_spread(mean, std) if math.isfinite(mean) else "diverged"
