"""A user's own sequences, from npz and CSV files."""

from .files import FileData

__all__ = ["FileData"]
