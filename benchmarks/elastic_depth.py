"""What elastic depth saves in the recipes for your own data, and what it costs in quality.

    python benchmarks/elastic_depth.py [--tasks classification regression language] [--penalties 0.3 …] [--seeds 5]
        [--json results/elastic-depth.json]
    python benchmarks/elastic_depth.py --table results/elastic-depth.json

Trains the recipes `classify`, `regress` and `lm` on

    classification  1500 windows of UCI HAR, 20 epochs
    regression      2000 sequences of the paper's synthetic task, 60 epochs
    language        150,000 words of the Penn Treebank, 4 epochs (2 seeds at most)

with each depth penalty, and once at full depth: no penalty, and gates that begin wide open (`alpha=0.05`), so that
every time step takes all inner steps. Scores are of the epoch that validation chooses. Times are of one CPU thread
and the first seed's model, the models of a task in turns, medians: a prediction for 200 sequences, and a
training step. Trainings that are in the file already are not repeated; times are measured anew.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from eirehn._internal.files import write_json
from eirehn.data.har import HarData
from eirehn.data.ptb import PtbData
from eirehn.data.synthetic import SyntheticData
from eirehn.models.io import read_values
from eirehn.recipes import find
from eirehn.training.config import DEPTH_PENALTIES, Recipe
from eirehn.training.loaders import training_batches
from eirehn.training.provenance import cores, provenance
from eirehn.training.trainer import make_task, train

FULL = "full depth"
ROUNDS, SEQUENCES = 7, 200


def recipe(task: str, penalty: str, seed: int) -> Recipe:
    """`penalty` as a number, or FULL."""
    name, data, epochs = {
        "classification": ("classify", HarData(windows=1500), 20),
        "regression": ("regress", SyntheticData(train=2000), 60),
        "language": ("lm", PtbData().smaller(150_000), 4),
    }[task]
    found = find(name)
    network = found.network
    if penalty == FULL:
        network = replace(network, start={**network.start, "alpha": 0.05, "decay_bias": -4.0, "decay_scale": 0.1})
    value = 0.0 if penalty == FULL else float(penalty)
    optimisation = replace(found.optimisation, epochs=epochs, depth_penalty=value)
    return replace(found, data=data, network=network, optimisation=optimisation, seeds=(seed,))


def trained(task: str, penalty: str, seed: int) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        result = train(recipe(task, penalty, seed), folder)
        values = read_values(Path(folder) / "best.safetensors")
    row = {"task": task, "penalty": penalty, "seed": seed, "metric": result["metric"]}
    row |= {"validation": result["best_validation"][0], "test": result["values"][0], "depth": result["depth"][0]}
    return row, values


def times(task: str, models: dict[str, dict[str, torch.Tensor]]) -> dict[str, dict[str, float]]:
    """Milliseconds of each kind of call, by penalty."""
    torch.set_num_threads(1)
    calls = {penalty: _calls(recipe(task, penalty, 0), values) for penalty, values in models.items()}
    taken: dict[str, dict[str, list[float]]] = {penalty: {} for penalty in models}
    for number in range(ROUNDS + 1):
        for penalty, own in calls.items():
            for name, call in own.items():
                began = time.perf_counter()
                call()
                if number:  # the first one compiles
                    taken[penalty].setdefault(name, []).append(1e3 * (time.perf_counter() - began))
    return {
        penalty: {name: round(statistics.median(each), 3) for name, each in own.items()}
        for penalty, own in taken.items()
    }


def _calls(own: Recipe, values: dict[str, torch.Tensor]) -> dict[str, Callable[[], Any]]:
    task = make_task(own)
    task.ensemble.load(values)
    data = own.data.load()
    batch = next(iter(training_batches(own, data.train)))
    model = task.ensemble.member(0).eval()
    x = batch[0][0] if own.data.task == "language" else data.test.x[:SEQUENCES]

    @torch.no_grad()
    def predict(count: int) -> None:
        model.run(x[:count])

    return {
        "many": lambda: predict(SEQUENCES),
        "step": lambda: task.loss(batch).backward(),
    }


def _order(item: tuple[str, Any]) -> float:
    return -1.0 if item[0] == FULL else float(item[0])


def table(found: dict[str, Any]) -> str:
    columns = ["task, metric", "depth penalty", "seeds", "validation", "test", "inner steps"]
    columns += [f"{SEQUENCES} sequences, ms", "training step, ms"]
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for task in found["times"]:
        for penalty, taken in sorted(found["times"][task].items(), key=_order):
            runs = [each for each in found["runs"] if (each["task"], each["penalty"]) == (task, penalty)]
            means = {
                name: statistics.fmean(each[name] for each in runs) for name in ("validation", "test", "depth")
            }
            scale = 1e3 if runs[0]["metric"] == "mse" else 1.0
            shown = [f"{scale * means[name]:.4g}" for name in ("validation", "test")]
            if len(runs) > 1:
                shown[1] += f" ± {scale * statistics.stdev(each['test'] for each in runs):.2g}"
            note = ", default" if penalty != FULL and float(penalty) == DEPTH_PENALTIES[task] else ""
            title = f"{task}, {runs[0]['metric']}" + (" ×10⁻³" if scale > 1 else "")
            cells = [title, penalty + note, str(len(runs)), *shown, f"{means['depth']:.2f}"]
            lines.append("| " + " | ".join([*cells, f"{taken['many']:.3g}", f"{taken['step']:.3g}"]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="What elastic depth saves in the recipes for your own data.")
    parser.add_argument("--tasks", nargs="+", choices=DEPTH_PENALTIES, default=list(DEPTH_PENALTIES))
    parser.add_argument("--penalties", nargs="+", type=float, help="default: none and that of the recipe")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path, default=Path("results/elastic-depth.json"))
    parser.add_argument("--table", type=Path, help="print the table of this file, and do nothing else")
    asked = parser.parse_args()
    if asked.table is not None:
        print(table(json.loads(asked.table.read_text())))
        return
    found: dict[str, Any] = {"runs": [], "times": {}}
    if asked.json.exists():
        found = json.loads(asked.json.read_text())
    found |= {"command": "python benchmarks/elastic_depth.py", **provenance()}
    for task in asked.tasks:
        penalties = [f"{each:g}" for each in asked.penalties or (0.0, DEPTH_PENALTIES[task])]
        seeds = range(min(asked.seeds, 2) if task == "language" else asked.seeds)
        known = {(each["task"], each["penalty"], each["seed"]) for each in found["runs"]}
        models = {}
        with ProcessPoolExecutor(cores()) as pool:
            wanted = [
                (task, penalty, seed)
                for penalty in (FULL, *penalties)
                for seed in seeds
                if seed == 0 or (task, penalty, seed) not in known
            ]
            for key, (row, values) in zip(wanted, pool.map(trained, *zip(*wanted, strict=True)), strict=True):
                if key not in known:
                    found["runs"].append(row)
                    write_json(asked.json, found)
                    print(*row.values(), flush=True)
                if key[2] == 0:
                    models[key[1]] = values
        found["times"].setdefault(task, {}).update(times(task, models))
        write_json(asked.json, found)
    print(table(found))


if __name__ == "__main__":
    main()
