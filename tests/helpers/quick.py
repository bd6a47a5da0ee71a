"""Which cases of a test that takes long are run all day; `make test` runs all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def quick(*kept: Any, of: Iterable[Any]) -> list[Any]:
    """The cases `of` a parametrised test, all but the `kept` ones marked slow."""
    cases = list(of)
    assert set(kept) <= set(cases), f"{set(kept) - set(cases)} is no case"
    return [case if case in kept else pytest.param(case, marks=pytest.mark.slow) for case in cases]
