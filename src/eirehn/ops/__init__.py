"""Recurrences over whole sequences, each by the fastest backend that can run them."""

from .dispatch import cross_entropies, scan, use_backend
from .reference import Scan, masked_rows, states_before

__all__ = ["Scan", "cross_entropies", "masked_rows", "scan", "states_before", "use_backend"]
