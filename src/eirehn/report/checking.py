"""Checks of a report's content, where it is put together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any


def is_number(value: object) -> bool:
    return hasattr(value, "__float__") and not isinstance(value, (str, bool))


def check_text(name: str, value: object) -> None:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name} must be text that is not empty, got {value!r}")


def check_length(name: str, values: Sequence[Any], expected: int, of: str) -> None:
    if len(values) != expected:
        raise ValueError(f"{name} must have one value for each of the {expected} {of}, got {len(values)}")


def check_numbers(name: str, values: Iterable[object]) -> None:
    """NaN, infinity and None are numbers that diverged, and are shown as such."""
    for value in values:
        if value is not None and not is_number(value):
            raise ValueError(f"{name} must hold numbers, got {value!r}")


def check_spread(name: str, values: Iterable[Any]) -> None:
    for value in values:
        if value is not None and (not is_number(value) or value < 0):
            raise ValueError(f"{name} must be a number of at least zero, got {value!r}")


def check_at_least_zero(name: str, value: object) -> None:
    if not is_number(value) or not 0 <= float(value) < math.inf:  # type: ignore[arg-type]
        raise ValueError(f"{name} must be a finite number of at least zero, got {value!r}")


def check_whole(name: str, values: Sequence[Any]) -> None:
    for value in values:
        if not hasattr(value, "__index__") or isinstance(value, bool) or value < 0:
            raise ValueError(f"{name} must hold whole numbers of at least zero, got {value!r}")


def check_rising(name: str, values: Sequence[Any]) -> None:
    check_whole(name, values)
    if len(values) == 0:
        raise ValueError(f"{name} must not be empty")
    for before, after in pairwise(values):
        if after <= before:
            raise ValueError(f"{name} must rise from one to the next, got {after} after {before}")


def check_positive(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number greater than zero, got {value!r}")


def check_names(name: str, values: Sequence[object]) -> None:
    if isinstance(values, str) or len(values) == 0:
        raise ValueError(f"{name} must be a list of names, got {values!r}")
    for index, value in enumerate(values):
        check_text(f"{name}[{index}]", value)
    if len(set(values)) < len(values):
        raise ValueError(f"{name} must differ from each other, got: {', '.join(map(str, values))}")
