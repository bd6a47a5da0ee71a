"""Checks of arguments and atomic files, for all modules."""
