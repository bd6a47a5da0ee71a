"""The results file: what was run, where, and what came out, beside what the paper says."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

import numpy as np

from ..data.har import HarData
from ..models import SHALLOW, Network
from ..recipes import har, ptb, synthetic
from ..training.recipe import Hardware, Recipe
from ..training.stability import stopped_seeds


def spread(values: Sequence[float]) -> float | None:
    """The standard deviation of a sample; NaN where one of it is. (`statistics.stdev` cannot do that.)"""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


OWN = ("-best", "ptb-short", "ptb-early", "ptb-pointer", "ptb-scaling")
"""How the names of recipes end that are not the paper's."""


def label(recipe: Recipe) -> str:
    """What tables and figures call a run."""
    network = recipe.network
    name = "EI-REHN" if network.kind == "EIREHN" else network.kind
    text = f"{name}-{network.hidden_size}"
    by_depth = recipe.data.task == "language" and network.kind not in SHALLOW
    if network.kind == "SRHN" or by_depth:
        text += f", depth {network.max_depth}"
    if network.pointer:
        text += ", pointer"
    if network.mixture > 1:
        text += f", {network.mixture} softmaxes"
    if network.gated_output:
        text += ", gated output"
    if network.calibrated:
        text += ", calibrated"
    if isinstance(recipe.data, HarData):
        text += har.distinction(network, recipe.data)
    if network.embedding_size not in (None, network.hidden_size):
        text += f", words of {network.embedding_size}"
    if recipe.name.endswith(OWN):
        text += ", our recipe"
    if recipe.name.endswith("ptb-short"):
        text += ", short"
    if recipe.optimisation.early:
        text += f", {100 * recipe.optimisation.early:g}% stopped early"
    if "-price-" in recipe.name or recipe.optimisation.price:
        text += f", price {recipe.optimisation.price:.0e}".replace("e-0", "e-").replace("0e+00", "0")
    if network.kind == "EIREHN" and network.weight_update != "paper":
        text += f", {network.weight_update}"
    return text


def row(recipe: Recipe, result: dict[str, Any]) -> dict[str, Any]:
    """One line of a results file from what a run left."""
    network = recipe.network
    values = [math.nan if value is None else value for value in result["values"]]
    final = [math.nan if value is None else value for value in result["final_values"]]
    return {
        "recipe": recipe.name,
        "label": label(recipe),
        "model": network.kind,
        "hidden": network.hidden_size,
        "layers": network.num_layers,
        "max_depth": network.max_depth if network.kind not in ("RNN", "LSTM") else None,
        "weight_update": network.weight_update if network.kind == "EIREHN" else None,
        "parameters": result["parameters"],
        "metric": result["metric"],
        "values": values,
        "mean": statistics.fmean(values),
        "std": spread(values),
        "final_mean": statistics.fmean(final),
        "paper": paper_figure(recipe),
        "paper_std": paper_spread(recipe),
        "seconds": result["seconds"],
        "depth": statistics.fmean(math.nan if depth is None else depth for depth in result["depth"]),
        "best_epoch": result["best_epoch"],
        "stopped_seeds": list(stopped_seeds(recipe.seeds, result)),
        "commit": result.get("commit"),
        "machine": result.get("machine"),
    }


def published() -> dict[str, Any]:
    """The paper's own results: Tables 1 to 4 and the ablation."""
    tables: dict[str, Any] = json.loads(files(__package__).joinpath("published.json").read_text("utf-8"))
    return tables


def paper_figure(recipe: Recipe) -> float | None:
    """What the paper has for this row, and None for a recipe that only bears the name of one."""
    rows = (*synthetic.table1(), *synthetic.ablation(), *har.table2(), *ptb.tables())
    known = {each.name: each for each in rows}
    if recipe.name not in known or not _same_row(recipe, known[recipe.name]):
        return None
    figure = {"har": har_figure, "ptb": ptb_figure, "synthetic": synthetic_figure}[recipe.data.kind]
    return figure(recipe.network, published())


def synthetic_figure(network: Network, tables: dict[str, Any]) -> float:
    if network.kind == "SRHN":
        figure = tables["synthetic_ablation_mse_e3_hidden_20"]["SRHN_depth_1_to_6"][network.max_depth - 1]
    elif network.kind == "SREHN":
        figure = tables["synthetic_ablation_mse_e3_hidden_20"]["SREHN"]
    else:
        table = {(each["model"], each["hidden"]): each["mean"] for each in tables["synthetic_mse_e3"]}
        figure = table[network.kind, network.hidden_size]
    return float(figure) * 1e-3


def har_figure(network: Network, tables: dict[str, Any]) -> float:
    return float(_har_row(network, tables)["mean"]) / 100


def _har_row(network: Network, tables: dict[str, Any]) -> dict[str, Any]:
    depth = network.max_depth if network.kind == "RHN" else None
    wanted = (network.kind, network.hidden_size, depth)
    return next(
        row for row in tables["har_accuracy_percent"] if (row["model"], row["hidden"], row["depth"]) == wanted
    )


def paper_spread(recipe: Recipe) -> float | None:
    """The standard deviation the paper prints, which it does for HAR."""
    if recipe.data.kind != "har" or paper_figure(recipe) is None:
        return None
    return float(_har_row(recipe.network, published())["std"]) / 100


def ptb_figure(network: Network, tables: dict[str, Any]) -> float | None:
    by_depth = tables["ptb_test_perplexity_by_depth_hidden_1200"]
    if network.hidden_size == 1200:
        table = by_depth[network.kind]
        return float(table["perplexity"][table["depth"].index(network.max_depth)])
    others = {each["model"]: each["test"] for each in tables["ptb_comparison"]}
    names = {
        ("LSTM", 1500): "LSTM (Zaremba 2014)",
        ("LSTM", 650): "Pointer Sentinel (Merity 2016)",
        ("RHN", 830): "RHN depth 10 (Zilly 2016)",
        ("EIREHN", 1000): "EI-REHN-1000D",
    }
    name = names.get((network.kind, network.hidden_size))
    return None if name is None else float(others[name])


def _same_row(one: Recipe, other: Recipe) -> bool:
    """Whether they differ at most in what a report of a cut run tells: seeds, epochs, training sequences."""

    def whole(recipe: Recipe) -> Recipe:
        return replace(
            recipe,
            seeds=(0,),
            hardware=Hardware(),
            optimisation=replace(recipe.optimisation, epochs=1),
            data=recipe.data.smaller(1),
        )

    return whole(one) == whole(other)
