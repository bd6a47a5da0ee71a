"""Whole models: a recurrent network of the family and a head for regression, classification or language."""

from ..data.dataset import Scaling
from .language import LanguageModel, word_mask
from .network import ELASTIC, FIXED, LAYERS, SHALLOW, Network, Outcome
from .sequence import SequenceModel

__all__ = [
    "ELASTIC",
    "FIXED",
    "LAYERS",
    "SHALLOW",
    "LanguageModel",
    "Network",
    "Outcome",
    "Scaling",
    "SequenceModel",
    "word_mask",
]
