"""Writes the golden files, or with --check compares with them bit for bit; see cases.py."""

from __future__ import annotations

import json
import sys

import cases
import numpy as np
import torch

import eirehn


def main() -> int:
    check = "--check" in sys.argv[1:]
    torch.set_num_threads(1)
    with eirehn.use_backend("reference"):
        layers = cases.all_layers()
        recipes = {name: cases.run_recipe(name) for name in cases.recipe_cases() if cases.data_there(name)}
    recipes = json.loads(json.dumps(recipes))
    if not check:
        cases.save_layers(layers)
        cases.RECIPES.write_text(json.dumps(recipes, indent=1) + "\n", "utf-8")
        return 0
    known = cases.load_layers()
    wrong = [name for name in known if name not in layers or not np.array_equal(known[name], layers[name])]
    wrong += [f"{name} (new)" for name in layers if name not in known]
    golden = json.loads(cases.RECIPES.read_text("utf-8"))
    wrong += [name for name in golden if name not in recipes or golden[name] != recipes[name]]
    print(f"{len(layers)} arrays, {len(recipes)} recipes: {len(wrong)} differ", *wrong[:20], sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
