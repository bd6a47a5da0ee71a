"""Functions and products of vectors, to the last places and with the registers of other processors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.processes import FEATURES, as_another
from helpers.vectors import apply


@pytest.mark.parametrize(("dtype", "wide"), [(np.float32, np.float64), (np.float64, np.longdouble)])
@pytest.mark.parametrize("share", [1, 2])
def test_functions_to_the_last_places(dtype: Any, wide: Any, share: int) -> None:
    draw = np.random.default_rng(0)
    x = np.concatenate([draw.normal(size=4096) * scale for scale in (1e-4, 0.1, 1, 10)]).astype(dtype)
    exact = x.astype(wide)
    truths = np.tanh(exact), 1 / (1 + np.exp(-exact)), np.expm1(exact)
    for value, truth in zip(apply(x, share=share), truths, strict=True):
        assert (np.abs(value - truth) <= 3 * np.spacing(np.abs(truth).astype(dtype))).all()
    special = np.zeros(16, dtype)
    special[:6] = [np.nan, np.inf, -np.inf, -0.0, 1e4, -1e4]
    tanh, sigmoid, _ = apply(special, share=share)
    assert np.array_equal(tanh[:6], [np.nan, 1, -1, 0, 1, -1], equal_nan=True)
    assert np.signbit(tanh[3])
    assert np.array_equal(sigmoid[:6], [np.nan, 1, 0, 0.5, 1, 0], equal_nan=True)


@pytest.mark.slow
@pytest.mark.parametrize("features", FEATURES)
def test_products_with_other_registers(features: str) -> None:
    out = as_another(
        features,
        """
        from eirehn.ops.cpu.simd import REGISTER_BYTES
        from helpers.vectors import largest_error
        print(REGISTER_BYTES, largest_error())
        """,
    )
    size, wrong = out.split()
    assert int(size) == FEATURES[features]
    assert float(wrong) < 1e-5
