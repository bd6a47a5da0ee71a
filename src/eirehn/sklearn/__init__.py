"""Networks of elastic depth as scikit-learn estimators: fit, predict, clone, search, pipe."""

from .._internal.extras import need

need("sklearn", "pytorch_lightning")

from .estimators import ElasticClassifier, ElasticRegressor  # noqa: E402

__all__ = ["ElasticClassifier", "ElasticRegressor"]
