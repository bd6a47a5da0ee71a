"""Recurrences of large networks in CUDA C++ that keep their weights on the chip, compiled at first use.

Nothing is compiled or loaded at import. Where the compiler, the device, the dtypes or the sizes do not fit, the
passes say so, and the Triton kernels do the work.
"""

from .resident import backward_pass, forward_pass

__all__ = ["backward_pass", "forward_pass"]
