"""A function for each table of the paper, and our own best recipes."""

from __future__ import annotations

from .._internal.checks import nearest
from ..training.config import Recipe
from . import har, own, ptb, synthetic


def recipes() -> dict[str, Recipe]:
    """All recipes by name."""
    known = (*synthetic.recipes(), *har.recipes(), *ptb.recipes(), *own.recipes())
    return {recipe.name: recipe for recipe in known}


def find(name: str) -> Recipe:
    known = recipes()
    if name not in known:
        raise ValueError(
            f"unknown recipe {name!r}; did you mean {nearest(name, known)!r}? `eirehn recipes` lists all"
        )
    return known[name]
