"""What the rows of Table 2 would be, had each seed's epoch been chosen on test data.

    python benchmarks/har_peak.py --json results/har-peak.json har-lstm-32 har-ei-rehn-48

Our rows take the last epoch. The paper does not say which it took; public code for these data takes the best epoch
on the test part. This measures the difference, a reason for a distance to the paper, and is no result to compare.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl

import eirehn.training.fit as fit
from eirehn.data.splits import Splits
from eirehn.experiments.results import spread
from eirehn.files import write_json
from eirehn.recipes import find
from eirehn.training.checkpoints import seeded
from eirehn.training.modules import Task
from eirehn.training.provenance import provenance
from eirehn.training.recipe import Recipe


class Curve(pl.Callback):
    def __init__(self) -> None:
        self.epochs: list[list[float]] = []  # accuracy of each seed on test data

    def on_train_epoch_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        assert isinstance(task, Task)
        self.epochs.append(task.latest["accuracy"].tolist())


def measured(recipe: Recipe) -> dict[str, Any]:
    splits = recipe.data.load()
    curve, begun = Curve(), time.monotonic()
    with fit.quiet(), seeded(recipe.seeds[0]):
        trainer = fit.make_trainer(recipe, None, [curve])
        trainer.fit(
            fit.make_task(recipe), datamodule=fit.Data(recipe, Splits(splits.train, splits.test, splits.test))
        )
    by_seed = list(zip(*curve.epochs, strict=True))
    last, peak = [each[-1] for each in by_seed], [float(np.nanmax(each)) for each in by_seed]
    return {
        "recipe": recipe.name,
        "last_epoch": {"mean": statistics.fmean(last), "std": spread(last)},
        "best_epoch_on_test_data": {"mean": statistics.fmean(peak), "std": spread(peak)},
        "best_epoch_of_the_mean": max(statistics.fmean(each) for each in curve.epochs),
        "accuracy_by_epoch": [[round(value, 5) for value in each] for each in by_seed],
        "seconds": round(time.monotonic() - begun, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="+")
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    rows = []
    for name in args.recipes:
        rows.append(measured(find(name)))
        print({key: value for key, value in rows[-1].items() if key != "accuracy_by_epoch"}, flush=True)
        note = "the epoch chosen on test data, to see what that would change; no result of ours"
        write_json(args.json, {"note": note, **provenance(), "rows": rows})


if __name__ == "__main__":
    main()
