"""Texts made up for tests, of which it is known how well they can be predicted."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eirehn.data.text import TextData
from eirehn.models import LanguageModel, LanguageNetwork
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


def loss_at(temperature: float, logits: NDArray[Any], wanted: NDArray[Any]) -> float:
    """Nats a token if `logits`, (N, V), are divided by a temperature and the tokens `wanted`, (N,), come."""
    scaled = logits / temperature
    whole = np.logaddexp.reduce(scaled, -1)
    return float(np.mean(whole - np.take_along_axis(scaled, wanted[:, None], -1)[:, 0]))


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


def chances(
    model: LanguageModel, tokens: Tensor, columns: int, max_depth: int | None = None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Logits of a text in so many columns, as of a model that has no temperature, and what came."""
    length = (len(tokens) - 1) // columns
    x, target = (each[: columns * length].view(columns, length) for each in (tokens[:-1], tokens[1:]))
    own = 1.0 if model.temperature is None else model.temperature.item()
    with torch.no_grad():
        logits = own * model(x, max_depth=max_depth).flatten(0, 1).double().numpy()
    return logits, target.flatten().numpy()


def best_temperature(logits: NDArray[np.float64], wanted: NDArray[np.int64]) -> float:
    """By trying all there are."""
    low, high = 0.1, 10.0
    for _ in range(4):
        tried = np.geomspace(low, high, 41)
        at = int(np.argmin([loss_at(each, logits, wanted) for each in tried]))
        low, high = tried[max(at - 1, 0)], tried[min(at + 1, 40)]
    return float(tried[at])


def temperatures(run: Path) -> list[list[float]]:
    """Of each epoch, one of each member."""
    with (run / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    seeds = len({row["seed"] for row in rows})
    found = [float(row["temperature"]) for row in rows]
    return [found[at : at + seeds] for at in range(0, len(found), seeds)]
