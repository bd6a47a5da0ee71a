"""scikit-learn's own checks of what calls itself an estimator."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from eirehn.sklearn import ElasticClassifier, ElasticRegressor

SMALL: dict[str, Any] = {"hidden_size": 8, "max_depth": 2}
EXPECTED_FAILURES: dict[str, str] = {}
"""Check by check with its reason; there is none."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")  # of the checks' own data
@parametrize_with_checks(
    [ElasticClassifier(**SMALL, epochs=20), ElasticRegressor(**SMALL, epochs=80)],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
)
def test_check_estimator(estimator: Any, check: Any) -> None:
    check(estimator)
