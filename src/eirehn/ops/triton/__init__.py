"""The recurrences of small networks on the GPU: a whole sequence in one launch, written in Triton.

Nothing here imports Triton until `forward` or `backward` is called.
"""

from .launch import GATED, KINDS, Launch, backward, default_launch, forward

__all__ = ["GATED", "KINDS", "Launch", "backward", "default_launch", "forward"]
