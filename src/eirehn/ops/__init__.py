"""Recurrences over whole sequences."""

from .reference import Scan, scan, states_before

__all__ = ["Scan", "scan", "states_before"]
