"""Texts made up for tests, of which it is known how well they can be predicted."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from eirehn.data.text import TextData
from eirehn.models import LanguageNetwork
from eirehn.training.config import Hardware, LanguageOptimisation, Recipe

CHANCES = (0.7, 0.2, 0.1)
RATE = -sum(chance * math.log(chance) for chance in CHANCES)
"""Nats a word: what is left to guess when the last word is known."""
WORDS = [f"w{index}" for index in range(24)]


def chain(count: int, seed: int) -> list[str]:
    """Words each of which follows from the one before it: three may, with chances of their own."""
    random = np.random.default_rng(seed)
    follows = (np.arange(len(WORDS))[:, None] * 5 + np.array([1, 8, 15])) % len(WORDS)
    word, found = 0, []
    for choice in random.choice(3, size=count, p=CHANCES):
        word = int(follows[word, choice])
        found.append(WORDS[word])
    return found


def written(folder: Path, *, train: int = 6000, test: int = 1500) -> TextData:
    """Three files of such words, ten a line."""
    for name, count, seed in (("train", train, 0), ("validation", test, 1), ("test", test, 2)):
        words = chain(count, seed)
        lines = [" ".join(words[at : at + 10]) for at in range(0, count, 10)]
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n", "utf-8")
    return TextData(8, None, *(str(folder / f"{name}.txt") for name in ("train", "validation", "test")))


def small_language_recipe(data: TextData, **options: object) -> Recipe:
    settings = {"epochs": 3, "batch_size": 10, "optimizer": "adam", "learning_rate": 0.01, "clip": 1.0, **options}
    return Recipe(
        name="small-language",
        network=LanguageNetwork(
            "EIREHN",
            24,
            max_depth=2,
            weight_update="paper",
            start={"alpha": 0.05, "gate_bias": 0.0},  # it learns these small texts sooner
            word_dropout=0.05,
            input_dropout=0.1,
            hidden_dropout=0.05,
            output_dropout=0.1,
        ),
        data=data,
        optimisation=LanguageOptimisation(**settings),  # type: ignore[arg-type]
        seeds=(0,),
        hardware=Hardware(accelerator="cpu"),
    )


def calibrated(recipe: Recipe, **network: Any) -> Recipe:
    return replace(recipe, network=replace(recipe.network, calibrated=True, **network))


def temperatures(run: Path) -> list[list[float]]:
    """Of each epoch, one of each member."""
    with (run / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    seeds = len({row["seed"] for row in rows})
    found = [float(row["temperature"]) for row in rows]
    return [found[at : at + seeds] for at in range(0, len(found), seeds)]
