"""Fast recurrences on the CPU. Nothing is compiled, and numba is not imported, before the first call."""

from .recurrence import Gradients, Parameters, Recurrence, Result, backward, forward

__all__ = ["Gradients", "Parameters", "Recurrence", "Result", "backward", "forward"]
