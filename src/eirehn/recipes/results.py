"""The results file: what was run, where, and what came out, beside what the paper says."""

from __future__ import annotations

import platform
import statistics
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from ..report.published import published
from ..training.recipe import Recipe
from ..training.workers import cores

PACKAGES = ("eirehn", "torch", "numpy", "numba", "pytorch-lightning", "triton")


def label(recipe: Recipe) -> str:
    """What tables and figures call a run."""
    network = recipe.network
    name = "EI-REHN" if network.kind == "EIREHN" else network.kind
    text = f"{name}-{network.hidden_size}"
    if network.kind == "SRHN":
        text += f", depth {network.max_depth}"
    if recipe.name.endswith("-best"):
        text += ", our recipe"
    if "-price-" in recipe.name or recipe.optimisation.price:
        text += f", price {recipe.optimisation.price:.0e}".replace("e-0", "e-").replace("0e+00", "0")
    if network.kind == "EIREHN" and network.weight_update != "printed":
        text += f", {network.weight_update}"
    return text


def row(recipe: Recipe, result: dict[str, Any]) -> dict[str, Any]:
    """One line of a results file from what a run left."""
    network = recipe.network
    values = [float("nan") if value is None else value for value in result["values"]]
    final = [float("nan") if value is None else value for value in result["final_values"]]
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
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "final_mean": statistics.fmean(final),
        "paper": None,
        "seconds": result["seconds"],
        "depth": statistics.fmean(result["depth"]),
        "best_epoch": result["best_epoch"],
    }


def with_paper(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of the synthetic experiment with the paper's figure beside each that it has."""
    tables = published()
    table1 = {(each["model"], each["hidden"]): each["mean"] for each in tables["synthetic_mse_e3"]}
    ablation = tables["synthetic_ablation_mse_e3_hidden_20"]
    fixed = dict(enumerate(ablation["SRHN_depth_1_to_6"], 1))

    def paper(each: dict[str, Any]) -> float | None:
        plain = f"synthetic-{'ei-rehn' if each['model'] == 'EIREHN' else each['model'].lower()}-{each['hidden']}"
        if each["model"] == "SRHN":
            return fixed.get(each["max_depth"])
        if each["recipe"] != plain:
            return None
        return ablation["SREHN"] if each["model"] == "SREHN" else table1.get((each["model"], each["hidden"]))

    return [{**each, "paper": None if (mean := paper(each)) is None else mean * 1e-3} for each in rows]


def about_this_run(command: str) -> dict[str, Any]:
    """Where figures came from: the command, the code, the machine and the versions."""
    return {"command": command, "commit": _commit(), "machine": machine(), "versions": versions()}


def machine() -> str:
    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{cores()} cores of {name}{gpu}"


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _commit() -> str | None:
    """The commit of the checkout this code runs from, marked where files differ from it."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        asked = subprocess.run(["git", "-C", str(here), *arguments], capture_output=True, text=True, check=True)
        return asked.stdout.strip()

    try:
        commit = git("rev-parse", "HEAD")
        return f"{commit} with changes" if git("status", "--porcelain", "--", str(here.parent)) else commit
    except (OSError, subprocess.CalledProcessError):
        return None
