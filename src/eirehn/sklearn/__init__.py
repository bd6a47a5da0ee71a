"""Networks of elastic depth as scikit-learn estimators: fit, predict, clone, search, pipe."""

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise ImportError("eirehn.sklearn needs scikit-learn: pip install 'eirehn[sklearn]'") from error

from .classifier import ElasticClassifier
from .regressor import ElasticRegressor

__all__ = ["ElasticClassifier", "ElasticRegressor"]
