"""How far the elastic gates of a language model are open: by inner step, and by the word that was read.

    python benchmarks/gates.py RUN --json gates.json [--tokens 3000]

Of the first tokens of the test text, read from its beginning on with the weights of the best epoch. A word's figure
is the sum over inner steps of how far its units' gates were open, mean over the units and over the places where it
stands.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

import eirehn
from eirehn.cells.gate import ElasticSteps
from eirehn.files import write_json
from eirehn.models import ELASTIC, LanguageModel
from eirehn.training.folder import RunFolder
from eirehn.training.provenance import provenance

OFTEN = 8
"""Times a word must stand in the text to be told of."""


@torch.no_grad()
def gates(model: LanguageModel, tokens: torch.Tensor) -> dict[str, Any]:
    """Of the first layer, for `tokens` (N,)."""
    if model.network.kind not in ELASTIC:
        raise ValueError(f"{model.network.kind} has no elastic gates")
    cell, depth = model.body.cells[0], model.network.max_depth
    constants, h = cell.constants(), torch.zeros(1, cell.hidden_size)
    opened = torch.zeros(depth, dtype=torch.float64)
    shut = torch.zeros(depth, dtype=torch.float64)
    by_word: dict[int, list[float]] = defaultdict(list)
    for token in tokens.tolist():
        u = cell.project(model.embedding.weight[token].unsqueeze(0))
        steps = ElasticSteps(constants, cell.local_decay(u, h, None), with_cost=False)
        found = torch.zeros(depth, cell.hidden_size)
        for r, d in steps.walk(depth):
            found[r - 1] = d[0]
        opened += found.mean(1).double()
        shut += (found == 0).double().mean(1)
        by_word[token].append(found.sum(0).mean().item())
        h = cell.step(u, h, max_depth=depth, constants=constants).state
    assert model.tokens is not None
    words = {
        model.tokens.tokens[token]: {"mean": round(statistics.fmean(sums), 4), "times": len(sums)}
        for token, sums in sorted(by_word.items(), key=lambda item: statistics.fmean(item[1]))
        if len(sums) >= OFTEN
    }
    sums = [each for found in by_word.values() for each in found]
    return {
        "open_by_step": [round(each, 4) for each in (opened / len(tokens)).tolist()],
        "shut_by_step": [round(each, 4) for each in (shut / len(tokens)).tolist()],
        "sum": {
            name: round(of(sums), 4) for name, of in (("mean", statistics.fmean), ("least", min), ("most", max))
        },
        "words": words,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=3000)
    args = parser.parse_args()
    recipe, model = RunFolder(args.run).recipe(), eirehn.load(args.run).eval()
    tokens = recipe.data.load().test.x.flatten()[: args.tokens].long()
    about = {"recipe": recipe.name, "tokens": len(tokens), **provenance()}
    write_json(args.json, {**about, **gates(model, tokens)})


if __name__ == "__main__":
    main()
