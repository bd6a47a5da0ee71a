"""What all recipes have in common."""

from __future__ import annotations

from eirehn.recipes import recipes


def test_recipes_come_back_from_a_file() -> None:
    for recipe in recipes().values():
        assert type(recipe).from_dict(recipe.to_dict()) == recipe
