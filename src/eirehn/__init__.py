"""eirehn: recurrent networks with elastic depth, for PyTorch."""

from ._internal.checks import UnstableTraining
from .cells import (
    GRU,
    LSTM,
    RNN,
    ACTCell,
    EIREHNCell,
    RHNCell,
    SREHNCell,
    SRHNCell,
    depth_bound,
    elastic_gate,
    one_bias,
)
from .layers import ACT, EIREHN, RHN, SREHN, SRHN
from .models.io import load
from .ops import use_backend

__version__ = "0.2.0"

__all__ = [
    "ACT",
    "EIREHN",
    "GRU",
    "LSTM",
    "RHN",
    "RNN",
    "SREHN",
    "SRHN",
    "ACTCell",
    "EIREHNCell",
    "RHNCell",
    "SREHNCell",
    "SRHNCell",
    "UnstableTraining",
    "depth_bound",
    "elastic_gate",
    "load",
    "one_bias",
    "use_backend",
]
