"""The layers, each with the interface of `nn.LSTM`."""

from .base import RecurrentLayer
from .family import ACT, EIREHN, RHN, SREHN, SRHN

__all__ = ["ACT", "EIREHN", "RHN", "SREHN", "SRHN", "RecurrentLayer"]
