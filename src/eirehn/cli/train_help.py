"""What `eirehn train --help` shows: the common flags, a line for each, with the values they have in a recipe."""

from __future__ import annotations

from collections.abc import Mapping

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
        "--logger": "tensorboard, wandb, mlflow, csv; also a,b",
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
        "--optimisation.depth_penalty": "cost of an inner step, share of the loss",
    },
    "Hardware": {
        "--hardware.accelerator": "cpu, gpu or auto",
        "--hardware.devices": "number of devices, or auto for all",
        "--hardware.precision": "32-true, 64-true or bf16-mixed",
    },
}
_TOKENS = {"steps": "tokens of a training sequence", "first": "train on this many tokens; default all"}
DATA = {
    "files": {
        "path": "npz, CSV or Parquet file",
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
        "seed": "seed of the random split",
        "standardise": "scale signals to mean 0 and deviation 1",
        "class_weights": "none, or balanced: weigh classes equally",
    },
    "har": {
        "held_out": "people held out for validation",
        "seed": "seed of their choice",
        "standardise": "scale signals to mean 0 and deviation 1",
        "frame": "time steps read at once",
        "tilt": "augmentation: rotation, in degrees",
        "gain": "augmentation: deviation of a scaling",
        "windows": "number of training windows; default all",
    },
    "ptb": _TOKENS,
    "synthetic": {
        "noise_std": "standard deviation of the noise",
        "train": "number of training sequences",
        "validation": "number of validation sequences",
        "test": "number of test sequences",
        "seed": "seed of the sequences",
        "turn": "augmentation: quarter turns",
    },
    "text": {
        **_TOKENS,
        "level": "word or char",
        "most": "size of the vocabulary; default all tokens",
        "encoding": "encoding of the files",
    },
}
"""The flags of data, by kind."""
SHOWN = {"--data.path": "--data"}
INDENT = 36


def short_help(parser: Parser, recipe: str | None, kind: str) -> str:
    """The help of a recipe whose data are of this kind."""
    texts = {"--text": "training, validation and test files"} if kind == "text" else {}
    data = {SHOWN.get(f"--data.{name}", f"--data.{name}"): text for name, text in DATA[kind].items()}
    groups = {"Run": COMMON["Run"], "Data": texts | data, **COMMON}
    lines = [line for title, flags in groups.items() for line in _group(parser, title, flags)]
    of = f"with the values of the recipe {recipe}" if recipe else "with default values (--recipe NAME shows others)"
    end = "all fields: `eirehn train --help-all`"
    return "\n".join([f"{USAGE}\nTrains the model of a recipe.\n\nCommon flags, {of}:", *lines, "", end])


def _group(parser: Parser, title: str, flags: Mapping[str, str]) -> list[str]:
    defaults, lines = parser.get_defaults(), ["", f"{title}:"]
    for flag, text in flags.items():
        value = written(defaults.get(parser.short.get(flag, flag)[2:]))
        lines.append(f"{f'  {hyphenated(flag)} {value}':{INDENT - 2}}  {text}")
    return lines
