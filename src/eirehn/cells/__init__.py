"""The equations, one system of the paper a file, in plain PyTorch: the oracle for everything faster."""

from .act import ACTCell
from .base import RecurrentCell
from .baselines import one_bias
from .eirehn import EIREHNCell
from .gate import depth_bound, elastic_gate
from .rhn import RHNCell
from .srehn import SREHNCell
from .srhn import SRHNCell
from .weight_update import WEIGHT_UPDATES

__all__ = [
    "WEIGHT_UPDATES",
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
