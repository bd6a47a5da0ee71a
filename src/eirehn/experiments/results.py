"""The results file: runs, where they were trained, their results and those of the paper."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from ..data.har import HarData
from ..data.table import FileData
from ..data.text import TextData
from ..models import SHALLOW, LanguageNetwork
from ..recipes import find, har
from ..report.tables import NAMES, as_float
from ..training.callbacks import stopped_seeds
from ..training.config import Hardware, Recipe


def spread(values: Sequence[float]) -> float | None:
    """The standard deviation of a sample; NaN if one value is. (`statistics.stdev` raises an error.)"""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


OWN = ("-best", "ptb-short", "ptb-early", "ptb-pointer", "ptb-scaling")
"""Endings of the names of recipes that are not the paper's."""


def is_own(recipe: Recipe) -> bool:
    """Whether the data are the user's own."""
    return isinstance(recipe.data, FileData | TextData)


def short_label(recipe: Recipe) -> str:
    """The name of a single run."""
    return f"{NAMES.get(recipe.network.kind, recipe.network.kind)}-{recipe.network.hidden_size}"


def label(recipe: Recipe) -> str:
    """The name of a run in tables and plots."""
    network = recipe.network
    text = short_label(recipe)
    by_depth = recipe.data.task == "language" and network.kind not in SHALLOW
    if network.kind == "SRHN" or by_depth:
        text += f", depth {network.max_depth}"
    if isinstance(network, LanguageNetwork):
        text += ", pointer" if network.pointer else ""
        text += ", calibrated" if network.calibrated else ""
        if network.embedding_size not in (None, network.hidden_size):
            text += f", embedding size {network.embedding_size}"
    elif isinstance(recipe.data, HarData):
        text += har.distinction(network, recipe.data)
    if recipe.name.endswith(OWN):
        text += ", our recipe"
    if recipe.name.endswith("ptb-short"):
        text += ", short"
    if recipe.optimisation.early:
        text += f", {100 * recipe.optimisation.early:g}% stopped early"
    if "-penalty-" in recipe.name or recipe.optimisation.depth_penalty:
        text += f", penalty {recipe.optimisation.depth_penalty:g}"
    usual = "bounded" if is_own(recipe) else "paper"
    if network.kind == "EIREHN" and network.weight_update != usual:
        text += f", {network.weight_update}"
    return text


def row(recipe: Recipe, result: dict[str, Any]) -> dict[str, Any]:
    """One line of a results file from the result of a run."""
    network = recipe.network
    values = list(map(as_float, result["values"]))
    paper, paper_std = paper_result(recipe)
    return {
        "recipe": recipe.name,
        "label": label(recipe),
        "model": network.kind,
        "hidden": network.hidden_size,
        "layers": network.num_layers,
        "max_depth": network.max_depth if network.kind not in SHALLOW else None,
        "weight_update": network.weight_update if network.kind == "EIREHN" else None,
        "parameters": result["parameters"],
        "metric": result["metric"],
        "values": values,
        "mean": statistics.fmean(values),
        "std": spread(values),
        "final_mean": statistics.fmean(map(as_float, result["final_values"])),
        "paper": paper,
        "paper_std": paper_std,
        "seconds": result["seconds"],
        "depth": statistics.fmean(map(as_float, result["depth"])),
        "best_epoch": result["best_epoch"],
        "stopped_seeds": list(stopped_seeds(recipe.seeds, result)),
        "commit": result.get("commit"),
        "machine": result.get("machine"),
    }


@cache
def published() -> dict[str, Any]:
    """The paper's own results: Tables 1 to 4 and the ablation."""
    tables: dict[str, Any] = json.loads(files(__package__).joinpath("published.json").read_text("utf-8"))
    return tables


@cache
def _paper_rows() -> dict[str, tuple[float, float | None]]:
    """The mean of each row of the paper by the name of its recipe, and its standard deviation if the paper has it
    for the same metric."""
    tables = published()
    ablation = tables["synthetic_ablation_mse_e3_hidden_20"]
    small = {row["recipe"]: row["mean"] for row in tables["synthetic_mse_e3"]}
    small |= {f"synthetic-srhn-20-depth-{d}": mse for d, mse in enumerate(ablation["SRHN_depth_1_to_6"], 1)}
    small |= {"synthetic-srehn-20": ablation["SREHN"]}
    words = {row["recipe"]: row["test"] for row in tables["ptb_comparison"] if row["recipe"]}
    for kind, table in tables["ptb_test_perplexity_by_depth_hidden_1200"].items():
        for depth, perplexity in zip(table["depth"], table["perplexity"], strict=True):
            words[depth_row(kind, depth)] = perplexity
    return {
        **{name: (mse * 1e-3, None) for name, mse in small.items()},
        **{row["recipe"]: (row["mean"] / 100, row["std"] / 100) for row in tables["har_accuracy_percent"]},
        **{name: (perplexity, None) for name, perplexity in words.items()},
    }


def depth_row(kind: str, depth: int) -> str:
    """The recipe of a row of Table 3."""
    return f"ptb-{NAMES.get(kind, kind).lower()}-1200-r{depth}"


def paper_result(recipe: Recipe) -> tuple[float | None, float | None]:
    """The paper's mean and standard deviation for this row; None if it has none, or if only the name of the recipe
    is the same."""
    found = _paper_rows().get(recipe.name)
    return found if found is not None and _same_row(recipe, find(recipe.name)) else (None, None)


def _same_row(one: Recipe, other: Recipe) -> bool:
    """Whether they differ at most in seeds, epochs and training sequences, which a notice in the report states."""

    def whole(recipe: Recipe) -> Recipe:
        return replace(
            recipe,
            seeds=(0,),
            hardware=Hardware(),
            optimisation=replace(recipe.optimisation, epochs=1),
            data=recipe.data.smaller(1),
        )

    return whole(one) == whole(other)
