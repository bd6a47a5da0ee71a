"""The recurrences of large networks on the GPU: a whole sequence in one launch that fills the chip.

Nothing here imports Triton until `forward` or `backward` is called.
"""

from .launch import backward, forward
from .plan import LargeLaunch, Saved, default_launch

__all__ = ["LargeLaunch", "Saved", "backward", "default_launch", "forward"]
