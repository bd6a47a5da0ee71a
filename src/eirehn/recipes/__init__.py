"""Recipes: one function for each table and figure of the paper, and our own best recipes."""

from __future__ import annotations

from .._internal.checks import nearest
from ..training.config import Recipe
from . import har, own, ptb, synthetic

__all__ = ["find", "recipes"]


def recipes() -> dict[str, Recipe]:
    """Returns all recipes by name.

    Examples:
        >>> from eirehn.recipes import recipes
        >>> "har-best" in recipes()
        True
    """
    known = (*synthetic.recipes(), *har.recipes(), *ptb.recipes(), *own.recipes())
    return {recipe.name: recipe for recipe in known}


def find(name: str) -> Recipe:
    """Returns the recipe of a name.

    Args:
        name: as `eirehn recipes` lists it.

    Raises:
        ValueError: if there is no such recipe; the message suggests the most similar name.

    Examples:
        >>> from eirehn.recipes import find
        >>> find("classify").network.hidden_size
        32
    """
    known = recipes()
    if name not in known:
        raise ValueError(
            f"unknown recipe {name!r}; did you mean {nearest(name, known)!r}? `eirehn recipes` lists all"
        )
    return known[name]
