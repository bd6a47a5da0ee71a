"""Recurrences of large networks in CUDA C++ that keep their weights on the chip, compiled at first use.

Nothing is compiled or loaded at import; where the compiler, the device or the sizes do not fit, `plan` is None and
the Triton kernels do the work.
"""

from .resident import Plan, backward_pass, forward_pass, plan_for

__all__ = ["Plan", "backward_pass", "forward_pass", "plan_for"]
