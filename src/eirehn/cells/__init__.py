"""The equations in plain PyTorch, one system of the paper per file; the faster kernels are tested against them."""

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
