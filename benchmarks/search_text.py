"""Tries settings of a language model on a part of the Penn Treebank small enough for a CPU.

    python benchmarks/search_text.py plan.json --json found.json [--tokens 200000] [--words 2000] [--caps]
        [--validation 20000]

The plan is a list of objects {"name", "network", "optimisation"} with fields of `Network` and `Optimisation` beside
the defaults below, tried in order while `--seconds` are left. The model reads the first `--tokens` of the training
part, in which all but the `--words` most frequent words are `<unk>`, and is validated on the first `--validation`
of the validation part, a tenth as many unless told. The test part is not read. A training that gets lost is
stopped.

Beside perplexity there is the rate at which two states of the trained network that differ a little draw apart as it
reads on, per token (its largest Lyapunov exponent). Above 0 it is chaotic: gradients over time grow without bound.
With `--caps` there is also validation perplexity when all words are stopped after 1, 2, … inner steps.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import Tensor

import eirehn.training.fit as fit
from eirehn.data.dataset import Split
from eirehn.data.download import kept
from eirehn.data.text import TextData
from eirehn.data.vocabulary import UNK
from eirehn.files import write_json
from eirehn.models import ELASTIC, FIXED, LanguageModel, Network
from eirehn.training.checkpoints import seeded
from eirehn.training.modules import Task
from eirehn.training.optimisation import Optimisation
from eirehn.training.provenance import provenance
from eirehn.training.recipe import Hardware, Recipe

NETWORK: dict[str, Any] = {
    "kind": "EIREHN",
    "weight_update": "paper",
    "hidden_size": 200,
    "max_depth": 4,
    "word_dropout": 0.1,
    "input_dropout": 0.5,
    "hidden_dropout": 0.1,
    "output_dropout": 0.5,
}
START = {"weight_bound": 0.04, "gate_bias": -2.0}
OPTIMISATION: dict[str, Any] = {
    "epochs": 30,
    "batch_size": 20,
    "optimizer": "sgd",
    "learning_rate": 0.2,
    "schedule": "decay",
    "decay": 1.1,
    "decay_from": 10,
    "penalty": 1e-7,
    "sum_steps": True,
    "clip": 10.0,
}


def write_texts(folder: Path, tokens: int, words: int, validation: int) -> TextData:
    train = kept("ptb", "ptb.train.txt").read_text("utf-8").replace("\n", " \n ").split(" ")
    valid = kept("ptb", "ptb.valid.txt").read_text("utf-8").replace("\n", " \n ").split(" ")
    parts = [[each for each in train if each][:tokens], [each for each in valid if each][:validation]]
    counts = Counter(word for word in parts[0] if word != "\n")
    known = {"\n", *(word for word, _ in counts.most_common(words))}
    for name, part in zip(("train", "validation"), parts, strict=True):
        text = " ".join(word if word in known else UNK for word in part)
        (folder / f"{name}.txt").write_text(text.replace(" \n ", "\n").strip() + "\n", "utf-8")
    own, other = (str(folder / f"{name}.txt") for name in ("train", "validation"))
    return TextData(train=own, validation=other, test=other)


class Curve(pl.Callback):
    def __init__(self, *, goes_back: bool) -> None:
        self.goes_back = goes_back
        self.epochs: list[dict[str, float]] = []

    def on_train_epoch_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        assert isinstance(task, Task)
        self.epochs.append({name: round(value.item(), 4) for name, value in task.latest.items()})
        lost = not self.epochs[-1]["perplexity"] < 2 * min(each["perplexity"] for each in self.epochs)
        if lost and not self.goes_back:
            trainer.should_stop = True


def attempt(settings: dict[str, Any], data: TextData, *, caps: bool = False) -> dict[str, Any]:
    network = {**NETWORK, **settings.get("network", {})}
    if network["kind"] in FIXED + ELASTIC:
        flat = {"alpha": 0.05} if network["kind"] in ELASTIC else {}
        network["start"] = {**START, **flat, **network.get("start", {})}
    recipe = Recipe(
        settings["name"],
        Network(**network),
        data,
        Optimisation(**{**OPTIMISATION, **settings.get("optimisation", {})}),
        seeds=(settings.get("seed", 0),),
        hardware=Hardware(precision="bf16-mixed" if torch.cuda.is_available() else "32-true"),
    )
    begun, task = time.monotonic(), fit.make_task(recipe)
    curve = Curve(goes_back=recipe.optimisation.retreat > 0)
    splits = data.load()
    with fit.quiet(), seeded(recipe.seeds[0]):
        fit.make_trainer(recipe, None, [curve]).fit(task, datamodule=fit.Data(recipe, splits))
    best = min((each["perplexity"] for each in curve.epochs), default=math.nan)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    task.to(device)
    deep = recipe.network.kind in FIXED + ELASTIC
    capped = by_max_depth(recipe, task, splits.validation) if caps and deep else None
    task.ensemble.load(task.best.values)
    model = task.ensemble.member(0).eval()
    assert isinstance(model, LanguageModel)
    known = deep and recipe.network.num_layers == 1
    tokens = splits.validation.x.flatten()[:1200].to(device)
    return {
        "settings": settings,
        "parameters": sum(value.numel() for value in model.parameters()),
        "best": best,
        "exponent": round(exponent(model, tokens), 4) if known else None,
        "seconds": round(time.monotonic() - begun, 1),
        **({} if capped is None else {"by_max_depth": capped}),
        "curve": curve.epochs,
    }


def by_max_depth(recipe: Recipe, task: Task, text: Split) -> list[float]:
    """Of the best weights, in as many columns as validation has during the training."""
    found = []
    for depth in range(1, recipe.network.max_depth + 1):
        parts = fit.final_parts(recipe, text, recipe.optimisation.batch_size)
        with fit.precision(recipe, task.device):
            metric, _ = task.measure(parts, task.best.values, max_depth=depth)
        found.append(round(metric[0], 4))
    return found


@torch.no_grad()
def exponent(model: LanguageModel, tokens: Tensor, columns: int = 4, apart: float = 1e-6) -> float:
    """The largest Lyapunov exponent per token, of a one-layer network without dropout: two states that are `apart`
    read on, and after each token are put so near again."""
    model = copy.deepcopy(model).double()
    cell = model.body.cells[0]
    steps = tokens[: len(tokens) // columns * columns].view(columns, -1).t()  # (T, B)
    h = torch.zeros(columns, cell.hidden_size, dtype=torch.float64, device=tokens.device)
    other = apart * F.normalize(torch.randn(h.shape, generator=torch.Generator().manual_seed(0)).to(h))
    growth = []
    constants = cell.constants()
    for each in steps:
        u = cell.project(model.embedding(each))
        h, other = (
            cell.step(u, state, max_depth=model.network.max_depth, constants=constants).state
            for state in (h, other)
        )
        distance = (other - h).norm(dim=-1, keepdim=True)
        growth.append(torch.log(distance / apart).mean().item())
        other = h + (other - h) * (apart / distance)
    settled = growth[len(growth) // 4 :]
    return sum(settled) / len(settled)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=200_000)
    parser.add_argument("--words", type=int, default=2000)
    parser.add_argument("--validation", type=int)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--caps", action="store_true")
    args = parser.parse_args()
    validation = args.tokens // 10 if args.validation is None else args.validation
    plan, rows, until = json.loads(args.plan.read_text()), [], time.monotonic() + args.seconds
    with tempfile.TemporaryDirectory() as folder:
        data = write_texts(Path(folder), args.tokens, args.words, validation)
        for settings in plan:
            if time.monotonic() > until:
                break
            rows.append(attempt(settings, data, caps=args.caps))
            row = {name: value for name, value in rows[-1].items() if name not in ("settings", "curve")}
            print(settings["name"], row, flush=True)
            about = {"tokens": args.tokens, "words": args.words, "validation": validation, **provenance()}
            write_json(args.json, {**about, "rows": rows})


if __name__ == "__main__":
    main()
