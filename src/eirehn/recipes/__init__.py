"""One function for each table and figure of the paper, and our own best recipes."""

from __future__ import annotations

from ..checks import nearest
from ..training.recipe import Recipe
from . import har, own, synthetic


def recipes() -> dict[str, Recipe]:
    """All recipes by name."""
    return {recipe.name: recipe for recipe in (*synthetic.recipes(), *har.recipes(), *own.recipes())}


def find(name: str) -> Recipe:
    known = recipes()
    if name not in known:
        raise ValueError(
            f"there is no recipe {name!r}; did you mean {nearest(name, known)!r}? `eirehn recipes` lists all"
        )
    return known[name]
