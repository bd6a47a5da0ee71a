"""The equations, one system of the paper a file, in plain PyTorch: the oracle for everything faster."""

from .act import ACTCell
from .base import RecurrentCell
from .eirehn import EIREHNCell
from .gate import depth_bound, elastic_gate
from .lstm import GRU, LSTM, RNN, one_bias
from .rhn import RHNCell, SRHNCell
from .srehn import SREHNCell

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "ACTCell",
    "EIREHNCell",
    "RHNCell",
    "RecurrentCell",
    "SREHNCell",
    "SRHNCell",
    "depth_bound",
    "elastic_gate",
    "one_bias",
]
