"""What the golden files record: every layer with every option, and some dozen training steps of a recipe per task.

    python tests/golden/record.py            writes the files anew
    python tests/golden/record.py --check    compares with them bit for bit, on the machine that wrote them

All in float64 on the plain path. A change that is not meant to change numbers leaves them as they are.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import eirehn
from eirehn.recipes import find
from eirehn.training.config import Recipe
from eirehn.training.trainer import train

FOLDER = Path(__file__).parent
LAYERS = FOLDER / "layers.npz"
RECIPES = FOLDER / "recipes.json"

# Layers

UPDATES = ("bounded", "recursive", "paper", "additive", "scaling", "outer", "none")
SYSTEMS: dict[str, tuple[type[nn.Module], dict[str, Any]]] = {
    "RNN": (eirehn.RNN, {}),
    "GRU": (eirehn.GRU, {}),
    "LSTM": (eirehn.LSTM, {}),
    "RHN": (eirehn.RHN, {"depth": 3}),
    "SRHN": (eirehn.SRHN, {"depth": 3}),
    "SREHN": (eirehn.SREHN, {"max_depth": 4}),
    **{f"EIREHN-{each}": (eirehn.EIREHN, {"max_depth": 4, "weight_update": each}) for each in UPDATES},
    **{f"ACT-{cell}": (eirehn.ACT, {"cell": cell, "max_depth": 4}) for cell in ("RNN", "GRU", "LSTM")},
}
STACKED = {"num_layers": 2, "bidirectional": True}
OPTIONS: dict[str, dict[str, Any]] = {
    "initial": {},
    "plain": {},
    "stacked": STACKED,
    "packed": {**STACKED, "batch_first": True},
    "unbatched": {"batch_first": True},
    "capped": {},
    "dropout": {"num_layers": 2, "dropout": 0.3, "input_dropout": 0.3, "hidden_dropout": 0.3},
    "hyper_size": {"hyper_size": 3},
}
STEPS, BATCH, INPUTS, UNITS = 5, 3, 2, 3
LENGTHS = torch.tensor([2, 5, 1])


def layer_cases() -> list[str]:
    return [f"{system}/{option}" for system in SYSTEMS for option in OPTIONS if _there(system, option)]


def _there(system: str, option: str) -> bool:
    highway = not system.startswith(("RNN", "GRU", "LSTM", "ACT"))
    if option == "hyper_size":
        return system.startswith("EIREHN")
    return highway or option != "capped" or system.startswith("ACT")


def make_layer(case: str) -> nn.Module:
    """With weights by which gates shut at different depths, unless the case is of the initial ones."""
    system, option = case.split("/")
    kind, options = SYSTEMS[system]
    own = dict(OPTIONS[option])
    if system.startswith(("RNN", "GRU", "LSTM", "ACT")):
        own = {name: value for name, value in own.items() if name not in ("input_dropout", "hidden_dropout")}
    torch.manual_seed(0)
    layer = kind(INPUTS, UNITS, **{"dtype": torch.float64, **options, **own})
    if option != "initial":
        _change(layer)
    if option != "dropout":
        layer.eval()
    return layer


@torch.no_grad()
def _change(layer: nn.Module) -> None:
    for name, parameter in layer.named_parameters():
        if parameter.requires_grad:
            parameter.add_(torch.randn_like(parameter), alpha=1.5 if ".W_a" in name else 0.5)
        if name.endswith("b_a"):
            parameter.add_(2.0)
        if name.endswith("b_p"):
            parameter.sub_(2.0)


def run_layer(case: str, layer: nn.Module | None = None) -> dict[str, np.ndarray]:
    """Parameters, outputs, depths and gradients of one case, by name."""
    system, option = case.split("/")
    layer = make_layer(case) if layer is None else layer
    generator = torch.Generator().manual_seed(1)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    x = normal(*((STEPS, INPUTS) if option == "unbatched" else (STEPS, BATCH, INPUTS)))
    cells = OPTIONS[option].get("num_layers", 1) * (2 if OPTIONS[option].get("bidirectional") else 1)
    size = (cells, UNITS) if option == "unbatched" else (cells, BATCH, UNITS)
    state: Any = (normal(*size), normal(*size)) if "LSTM" in system else normal(*size)
    if option == "packed":
        x = x.transpose(0, 1).contiguous()
    given = [x, *(state if isinstance(state, tuple) else (state,))]
    for each in given:
        each.requires_grad_()
    read = pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False) if option == "packed" else x
    asked = {} if system in ("RNN", "GRU", "LSTM") else {"return_depth": True, "return_cost": True}
    if option == "capped":
        asked["max_depth"] = 2
    torch.manual_seed(2)  # dropout
    found = list(layer(read, state, **asked))
    out = found[0].data if isinstance(found[0], PackedSequence) else found[0]
    last = list(found[1]) if isinstance(found[1], tuple) else [found[1]]
    floats = [out, *last, *found[3:]]
    names = ["out", "h_n", "c_n"][: 1 + len(last)] + ["cost"][: len(found) - 3]
    loss = sum((each * normal(*each.shape)).sum() for each in floats)
    trained = {name: value for name, value in layer.named_parameters() if value.requires_grad}
    gradients = torch.autograd.grad(loss, [*given, *trained.values()], allow_unused=True)
    results = dict(zip(names, floats, strict=True))
    if len(found) > 2:
        results["depth"] = found[2]
    results |= {f"parameter.{name}": value for name, value in layer.named_parameters()}
    at = ["x", "h_0", "c_0"][: len(given)] + list(trained)
    results |= {f"gradient.{name}": each for name, each in zip(at, gradients, strict=True) if each is not None}
    return {f"{case}/{name}": value.detach().numpy() for name, value in results.items()}


# Recipes


def recipe_cases() -> dict[str, Callable[[Path], Recipe]]:
    return {
        "synthetic-ei-rehn-20": lambda folder: _synthetic("synthetic-ei-rehn-20"),
        "synthetic-best": lambda folder: _synthetic("synthetic-best"),
        "synthetic-lstm-10": lambda folder: _synthetic("synthetic-lstm-10"),
        "synthetic-act-20": lambda folder: _synthetic("synthetic-act-20"),
        "synthetic-ei-rehn-20-penalty-0.1": lambda folder: _synthetic("synthetic-ei-rehn-20-penalty-0.1"),
        "har-best": lambda folder: _har("har-best"),
        "har-ei-rehn-48": lambda folder: _har("har-ei-rehn-48"),
        "lm": lambda folder: _language("lm", folder),
        "ptb-short": lambda folder: _language("ptb-short", folder),
        "ptb-early": lambda folder: _language("ptb-early", folder),
        "ptb-pointer": lambda folder: _language("ptb-pointer", folder),
        "ptb-rhn-1050-r4": lambda folder: _language("ptb-rhn-1050-r4", folder),
        "ptb-lstm-1500": lambda folder: _language("ptb-lstm-1500", folder),
        "classify": lambda folder: _own("classify", folder),
        "regress": lambda folder: _own("regress", folder),
    }


def _cut(name: str, epochs: int, seeds: int) -> Recipe:
    recipe = find(name)
    hardware = replace(recipe.hardware, accelerator="cpu", precision="64-true")
    optimisation = replace(recipe.optimisation, epochs=epochs)
    return replace(recipe, optimisation=optimisation, seeds=recipe.seeds[:seeds], hardware=hardware)


def _synthetic(name: str) -> Recipe:
    recipe = _cut(name, 2, 2)
    data = replace(recipe.data, train=20 * recipe.optimisation.batch_size // 2, validation=20, test=20)
    return replace(recipe, data=data)


def _har(name: str) -> Recipe:
    recipe = _cut(name, 8, 1)
    optimisation = replace(recipe.optimisation, batch_size=50)
    return replace(recipe, optimisation=optimisation, data=replace(recipe.data, held_out=2, windows=200))


def _language(name: str, folder: Path) -> Recipe:
    recipe = _cut(name, 2, 1)
    texts = find("lm").data
    paths = {each: str(folder / f"{each}.txt") for each in ("train", "validation", "test")}
    for number, path in enumerate(paths.values()):
        Path(path).write_text(_text(2000 if number == 0 else 300, number), "utf-8")
    network = replace(recipe.network, hidden_size=16, hyper_size=None)
    return replace(recipe, network=network, data=replace(texts, steps=10, **paths))


def _text(words: int, seed: int) -> str:
    """Each word follows from the last one, up to chance."""
    draw = np.random.default_rng(seed)
    word, found = 0, []
    for _ in range(words):
        word = int(word * 5 + draw.choice([1, 8, 15])) % 24
        found.append(f"w{word}")
    return "\n".join(" ".join(found[at : at + 10]) for at in range(0, words, 10)) + "\n"


def _own(name: str, folder: Path) -> Recipe:
    recipe = _cut(name, 10, 2)
    draw = np.random.default_rng(0)
    X = draw.normal(size=(60, 7, 2))
    y = X[..., 0].sum(1)
    np.savez(folder / "own.npz", X=X, y=np.where(y > 0, "up", "down") if name == "classify" else y)
    return replace(recipe, data=replace(recipe.data, path=str(folder / "own.npz"), test=0.2, validation=0.1))


def run_recipe(name: str) -> dict[str, Any]:
    """Loss, metric and depth of every epoch and seed; the results on test data; sums and digests of the weights."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        result = train(recipe_cases()[name](folder), folder / "run")
        with open(folder / "run" / "metrics.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        weights = {}
        for kind in ("best", "last"):
            for key, value in sorted(load_file(folder / "run" / f"{kind}.safetensors").items()):
                digest = hashlib.sha256(value.numpy().tobytes()).hexdigest()[:16]
                weights[f"{kind}.{key}"] = [float(value.double().sum()), float(value.double().norm()), digest]
    history = {key: [float(row[key]) for row in rows] for key in rows[0]}
    reported = {key: result[key] for key in ("values", "final_values", "depth", "best_epoch", "parameters")}
    return {"history": history, "result": reported, "weights": weights}


def data_there(name: str) -> bool:
    return not name.startswith("har") or "EIREHN_DATA_DIR" in os.environ


def all_layers() -> dict[str, np.ndarray]:
    return {name: value for case in layer_cases() for name, value in run_layer(case).items()}


def save_layers(found: dict[str, np.ndarray]) -> None:
    """As one array and an index: thousands of small files in an archive take ten times the room."""
    index = [[name, *value.shape] for name, value in found.items()]
    values = np.concatenate([value.ravel().astype(np.float64) for value in found.values()])
    np.savez_compressed(LAYERS, values=values, index=json.dumps(index))


def load_layers() -> dict[str, np.ndarray]:
    with np.load(LAYERS) as file:
        values, index = file["values"], json.loads(str(file["index"]))
    ends = np.cumsum([int(np.prod(shape)) for _, *shape in index])[:-1]
    return {name: part.reshape(shape) for (name, *shape), part in zip(index, np.split(values, ends), strict=True)}
