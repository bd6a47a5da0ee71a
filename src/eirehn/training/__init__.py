"""Training, resuming and evaluating recipes."""

from typing import TYPE_CHECKING, Any

from .._internal.extras import need

need("pytorch_lightning")

from .config import ClassifierOptimisation, Hardware, LanguageOptimisation, Optimisation, Recipe  # noqa: E402

if TYPE_CHECKING:
    from .trainer import train

__all__ = ["ClassifierOptimisation", "Hardware", "LanguageOptimisation", "Optimisation", "Recipe", "train"]


def __getattr__(name: str) -> Any:
    if name == "train":  # on first use, since it imports Lightning
        from .trainer import train

        return train
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
