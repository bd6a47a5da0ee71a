"""Whole models: a recurrent network of the family and a head for regression, classification or language."""

from .language import LanguageModel, word_mask
from .network import ELASTIC, FIXED, LAYERS, SHALLOW, Network, Outcome
from .sequence import Scaling, SequenceModel

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
