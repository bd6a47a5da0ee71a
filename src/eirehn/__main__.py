"""`python -m eirehn` is `eirehn`."""

from .cli import entry

entry()
