"""Errors that mean that memory ran out."""

from __future__ import annotations


def out_of_memory(error: Exception) -> bool:
    """Whether memory ran out on a device or on the machine; torch has an exception of its own for devices only."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return "can't allocate memory" in str(error) or "not enough memory" in str(error)
