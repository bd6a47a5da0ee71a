"""What `eirehn train --help` shows: the common flags, a line for each, with the values they have in a recipe."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import fields

from .parser import Parser, hyphenated, written

USAGE = """usage: eirehn train --recipe NAME [flags]
       eirehn train --config FILE [flags]
       eirehn train --text TRAIN VALIDATION TEST [flags]
       eirehn train --resume RUN [--epochs N]
"""
EXAMPLES = """
examples:
  eirehn train --recipe classify --data my.csv --data.target label
  eirehn train --text train.txt validation.txt test.txt --epochs 20
  eirehn train --recipe synthetic-ei-rehn-10 --lr 0.005 --seed 0

`eirehn recipes` lists the recipes; `eirehn train --help` lists the common flags.
"""
COMMON = {
    "Run": {
        "--recipe": "a recipe of `eirehn recipes`",
        "--config": "YAML file with any fields of a recipe",
        "--out": "folder of the run; default runs/NAME",
        "--resume": "resume the run of this folder",
        "--init": "run whose weights the training starts from",
        "--name": "name in tables and reports",
    },
    "Network": {
        "--network.kind": "RNN, GRU, LSTM, [S]RHN, SREHN, EIREHN, ACT",
        "--network.hidden_size": "units of a layer",
        "--network.num_layers": "layers, one above the other",
        "--network.max_depth": "largest number of inner steps",
        "--network.dropout": "dropout between layers",
        "--network.input_dropout": "dropout on the input inside a layer",
        "--network.hidden_dropout": "dropout on the state inside a layer",
    },
    "Optimisation": {
        "--epochs": "passes over the training data",
        "--lr": "largest learning rate of the schedule",
        "--batch_size": "sequences of a training step",
        "--seeds": "a model is trained for each; also --seed N",
        "--optimisation.optimizer": "adam, adamw, sgd or soap",
        "--optimisation.schedule": "constant, cosine or decay",
        "--optimisation.weight_decay": "L2 penalty, decoupled with adamw and soap",
        "--optimisation.clip": "largest norm of a gradient",
        "--optimisation.depth_penalty": "cost of an inner step, relative to the loss",
    },
    "Hardware": {
        "--hardware.accelerator": "cpu, gpu or auto",
        "--hardware.devices": "number of devices, or auto for all",
        "--hardware.precision": "32-true, 64-true or bf16-mixed",
    },
}
FILES = {
    "task": "classification or regression",
    "target": "column or array to predict",
    "values": "columns of the signals; default all others",
    "sequence": "column that says which sequence a row is of",
    "time": "column that orders the rows of a sequence",
    "group": "column or array whose values stay together",
    "split": "column or array: train, validation or test",
    "channels": "values of a time step in a wide file",
    "ragged": "sequences end where only gaps follow",
    "delimiter": "separator of a CSV file, or tab",
    "encoding": "encoding of a CSV file",
    "validation": "share of the sequences for validation",
    "test": "share of the sequences for the test",
    "seed": "seed of the division into those",
    "standardise": "scale signals to mean 0 and deviation 1",
    "class_weights": "balanced: weigh classes equally; or none",
}
WIDTH, INDENT = 80, 36


def short_help(parser: Parser, recipe: str | None, kind: str) -> str:
    """The help of a recipe whose data are of this kind."""
    from ..training.config import data_kind

    names = [field.name for field in fields(data_kind(kind)) if field.name != "sha256"]
    data = {f"--data.{name}": FILES.get(name, "") if kind == "files" else "" for name in names}
    if kind == "files":
        data = {"--data": "npz, CSV or Parquet file"} | {flag: data[flag] for flag in data if flag != "--data.path"}
    if kind == "text":
        given = [f"--data.{part}" for part in ("train", "validation", "test")]
        data = {"--text": "three files: training, validation, test"} | {
            flag: data[flag] for flag in data if flag not in given
        }
    groups = {"Run": COMMON["Run"], "Data": data, **COMMON}
    lines = [line for title, flags in groups.items() for line in _group(parser, title, flags)]
    shown = f"values of the recipe {recipe}" if recipe else "default values; with --recipe NAME, those of a recipe"
    return "\n".join(
        [
            f"{USAGE}\nTrains a recipe. Common flags and their {shown}:",
            *lines,
            "\nall fields: `eirehn train --help-all`",
        ]
    )


def _group(parser: Parser, title: str, flags: Mapping[str, str]) -> list[str]:
    actions, defaults = {each.dest: each for each in parser._actions}, parser.get_defaults()
    lines = ["", f"{title}:"]
    for flag, text in flags.items():
        field = parser.short.get(flag, flag)[2:]
        shown = f"  {hyphenated(flag)} {written(defaults.get(field))}".ljust(INDENT - 2) + "  "
        text = text or _first_sentence(actions[field].help or "")
        lines += textwrap.wrap(text, WIDTH, initial_indent=shown, subsequent_indent=" " * INDENT)
    return lines


def _first_sentence(text: str) -> str:
    first = re.split(r"\.(?:\s|$)", " ".join(text.split()))[0]
    return first[:1].lower() + first[1:] if first[1:2].islower() else first
