"""Networks with elastic depth as scikit-learn estimators."""

from .._internal.extras import need

need("sklearn", "pytorch_lightning")

from .estimators import ElasticClassifier, ElasticRegressor  # noqa: E402

__all__ = ["ElasticClassifier", "ElasticRegressor"]
