"""Fast recurrences on the CPU. Nothing is compiled, and numba is not imported, before the first call."""

from .recurrence import Gradients, Projection, Recurrence, Result

__all__ = ["Gradients", "Projection", "Recurrence", "Result"]
