"""The numbers of every layer, option and recipe are those of the golden files (golden/cases.py says how to renew
them). To 1e-10, since other processors round differently; the kernels agree with the plain path to that, too."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from golden import cases

import eirehn

TOLERANCE = 1e-10


@pytest.fixture(scope="module")
def known():
    return cases.load_layers()


@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize("case", cases.layer_cases())
def test_layers(case: str, backend: str, known: dict[str, np.ndarray]) -> None:
    with eirehn.use_backend(backend):
        found = cases.run_layer(case)
    assert set(found) == {name for name in known if name.startswith(f"{case}/")}
    for name, value in found.items():
        np.testing.assert_allclose(value, known[name], rtol=TOLERANCE, atol=TOLERANCE, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("name", cases.recipe_cases())
def test_recipes(name: str) -> None:
    if not cases.data_there(name):
        pytest.skip("UCI HAR is not here: set EIREHN_DATA_DIR")
    golden = json.loads(cases.RECIPES.read_text("utf-8"))[name]
    found = json.loads(json.dumps(cases.run_recipe(name)))
    compare(found, golden, name)


def compare(found: Any, wanted: Any, where: str) -> None:
    if isinstance(wanted, dict):
        assert set(found) == set(wanted), where
        for key in wanted:
            compare(found[key], wanted[key], f"{where}.{key}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), where
        for index, each in enumerate(wanted):
            compare(found[index], each, f"{where}.{index}")
    elif isinstance(wanted, float):
        assert math.isclose(found, wanted, rel_tol=TOLERANCE, abs_tol=TOLERANCE), (where, found, wanted)
    elif not isinstance(wanted, str):  # digests are of one machine
        assert found == wanted, where
