"""eirehn: recurrent networks with elastic depth, for PyTorch."""

from importlib.metadata import version as _version

from .cells import ACTCell, EIREHNCell, RHNCell, SREHNCell, SRHNCell, depth_bound, elastic_gate, one_bias
from .layers import ACT, EIREHN, RHN, SREHN, SRHN

__version__ = _version("eirehn")

__all__ = [
    "ACT",
    "EIREHN",
    "RHN",
    "SREHN",
    "SRHN",
    "ACTCell",
    "EIREHNCell",
    "RHNCell",
    "SREHNCell",
    "SRHNCell",
    "depth_bound",
    "elastic_gate",
    "one_bias",
]
