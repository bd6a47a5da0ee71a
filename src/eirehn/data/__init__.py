"""Data sets, as configs that load themselves."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .dataset import Split, Splits
    from .har import HarData
    from .ptb import PtbData
    from .synthetic import SyntheticData
    from .table import FileData
    from .text import TextData
    from .vocabulary import Vocabulary

__all__ = ["FileData", "HarData", "PtbData", "Split", "Splits", "SyntheticData", "TextData", "Vocabulary"]

_MODULES = {
    "FileData": "table",
    "HarData": "har",
    "PtbData": "ptb",
    "Split": "dataset",
    "Splits": "dataset",
    "SyntheticData": "synthetic",
    "TextData": "text",
    "Vocabulary": "vocabulary",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:  # on first use, so that `import eirehn` stays fast
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
