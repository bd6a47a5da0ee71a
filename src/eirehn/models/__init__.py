"""Models: a recurrent network and a head for regression, classification or language."""

from ..data.dataset import Scaling
from .body import Outcome
from .config import ELASTIC, FIXED, KINDS, SHALLOW, LanguageNetwork, Network, SequenceNetwork
from .export import export_onnx
from .language import LanguageModel
from .sequence import SequenceModel

__all__ = [
    "ELASTIC",
    "FIXED",
    "KINDS",
    "SHALLOW",
    "LanguageModel",
    "LanguageNetwork",
    "Network",
    "Outcome",
    "Scaling",
    "SequenceModel",
    "SequenceNetwork",
    "export_onnx",
]
