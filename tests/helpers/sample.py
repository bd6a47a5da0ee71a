"""A made-up report with everything in it, of the size a full run has."""

import dataclasses
import math

import numpy as np

from eirehn.data.synthetic import synthetic
from eirehn.report.content import Curve, DepthHistogram, EarlyCurve, Example, Report, Saving, TrueDepth
from eirehn.report.tables import NAMES

FLOOR = 0.000427
MODELS = {  # ours at 20 units; by units the paper's result and the parameters
    "RNN": (0.80, {20: (1.01, 502), 30: (0.97, 1052), 40: (1.02, 1802)}),
    "LSTM": (0.72, {10: (0.76, 542), 15: (0.76, 1112), 20: (0.72, 1882)}),
    "RHN": (0.57, {10: (0.58, 1162), 15: (0.54, 2492), 20: (0.53, 4322)}),
    "EIREHN": (0.52, {10: (0.55, 807), 15: (0.50, 1732), 20: (0.47, 2862)}),
    "SRHN": (0.59, {20: (0.54, 942)}),
    "SREHN": (0.61, {20: (0.54, 1442)}),
    "ACT": (0.66, {20: (None, 1020)}),
}
ROWS = [
    (model, hidden, f"{NAMES.get(model, model)}-{hidden}", ours + 0.0035 * (20 - min(hidden, 20)), *rest)
    for model, (ours, sizes) in MODELS.items()
    for hidden, rest in sizes.items()
]
DIVERGED = "EI-REHN-15"
"""One of its seeds."""
OTHERS = ("max_depth", "weight_update", "parameters", "paper", "paper_std", "seconds")


def row(model: str, values: list, **more: object) -> dict:
    """A row of a results file from the values of the seeds; what is neither given nor follows from them is None."""
    finite = all(value is not None and math.isfinite(value) for value in values)
    mean = float(np.mean(values)) if finite else None
    std = float(np.std(values, ddof=1)) if finite and len(values) > 1 else None
    own = {
        "label": f"{NAMES.get(model, model)}-20",
        "model": model,
        "recipe": "paper",
        "layers": 1,
        "metric": "mse",
    }
    found = {"values": values, "mean": mean, "std": std, "final_mean": mean}
    return {**own, **dict.fromkeys(OTHERS), **found, **more}


def results(seeds: int = 5) -> dict:
    random, rows = np.random.default_rng(0), []
    for model, _, label, ours, paper, parameters in ROWS:
        values = (1e-3 * (ours + 0.012 * random.standard_normal(seeds))).tolist()
        if label == DIVERGED:
            values[2] = math.nan
        rows.append(
            row(
                model,
                values,
                label=label,
                max_depth=None if model in ("RNN", "LSTM") else 5 if model == "RHN" else 6,
                weight_update="paper" if model == "EIREHN" else None,
                parameters=parameters,
                final_mean=None if label == DIVERGED else float(np.mean(values)) * 1.08,
                paper=None if paper is None else paper * 1e-3,
                seconds=95.0 + parameters / 9,
            )
        )
    return {
        "experiment": "synthetic",
        "command": "eirehn reproduce table1 --seeds 5 --out results/synthetic.json",
        "commit": "1e62b41c0ffee",
        "machine": "x86_64, 2 threads",
        "versions": {"python": "3.11.7", "torch": "2.13.0", "eirehn": "0.1.0"},
        "noise_std": 0.056,
        "bayes_floor": FLOOR,
        "quick": False,
        "rows": rows,
    }


def curves(seeds: int = 5, epochs: int = 100) -> list[Curve]:
    random, drawn = np.random.default_rng(1), []
    epoch = np.arange(1, epochs + 1)
    for model, _, label, ours, *_ in ROWS:
        fall = 9.0 * np.exp(-epoch / 3.0) + 0.9 / epoch**0.7
        validation = 1e-3 * (ours + fall) * np.exp(0.05 * random.standard_normal((seeds, epochs)))
        train = 1e-3 * (ours - 0.03 + fall) * np.exp(0.02 * random.standard_normal((seeds, epochs)))
        if label == DIVERGED:
            validation[2, 60:70] *= np.geomspace(1, 30, 10)
            validation[2, 70:] = train[2, 70:] = np.nan
        depth = 1.6 + 4.4 * np.exp(-epoch / 20) + 0.1 * random.standard_normal((seeds, epochs))
        elastic = model in ("EIREHN", "SREHN", "ACT")
        drawn.append(Curve(label, epoch.tolist(), train, validation, depth if elastic else None))
    return drawn


def full_report() -> Report:
    random = np.random.default_rng(2)
    data = synthetic(1000, seed=3)
    taken = data.depth[:, :20]
    spent = np.rint(1.0 + 0.6 * (taken - 1) + 0.35 * random.standard_normal(taken.shape)).clip(1, 6).astype(int)
    groups = {int(depth): spent[taken == depth] for depth in np.unique(taken) if depth > 0}
    elastic = TrueDepth(
        "EI-REHN-20, penalty 0.1",
        list(groups),
        [float(group.mean()) for group in groups.values()],
        [float(group.std()) for group in groups.values()],
        [group.size for group in groups.values()],
    )
    flat = {"spent_mean": [6.0] * len(groups), "spent_std": [0.0] * len(groups)}
    return Report(
        title="EI-REHN on the synthetic task",
        summary="Recurrent networks with elastic depth beside fixed ones, at the paper’s sizes and recipe: five "
        "seeds, 100 epochs, the epoch chosen by validation. Made-up figures, to look at the page.",
        results=results(),
        notice="Quick run: 2 seeds, 8 epochs: not comparable with the paper.",
        curves=curves(),
        histograms=[
            DepthHistogram("EI-REHN-20, penalty 0", [0, 0, 0, 0, 0, 0, 20000]),
            DepthHistogram("EI-REHN-20, penalty 0.1", np.bincount(spent.ravel(), minlength=7).tolist()),
            DepthHistogram("SREHN-20, penalty 0.1", [120, 9800, 6500, 2400, 900, 250, 30]),
        ],
        examples=[
            Example(data.x[i, :20], spent[i].tolist(), taken[i].tolist(), 1e-3 * random.gamma(0.7, 0.8, 20))
            for i in (7, 8, 2, 41)
        ],
        savings=[
            Saving("EI-REHN-20", "elastic", penalty, depth, 0.25 + 0.24 * depth, 1e-3 * mean, 1.1e-5)
            for penalty, depth, mean in (
                (0.0, 6.0, 0.522),
                (1e-4, 3.9, 0.526),
                (3e-4, 2.7, 0.534),
                (1e-3, 1.54, 0.561),
                (3e-3, 1.12, 0.641),
            )
        ]
        + [
            Saving(f"RHN-20, depth {d}", "fixed", None, d, 0.2 + 0.19 * d, 1e-3 * m, 1.4e-5)
            for d, m in enumerate((0.81, 0.63, 0.59, 0.575, 0.57, 0.568), 1)
        ]
        + [Saving("LSTM-20", "fixed", None, 1, 0.31, 0.717e-3, 0.2e-5)],
        early=[
            EarlyCurve(label, range(1, len(means) + 1), 1e-3 * np.array(means), 1e-3 * np.array(stds))
            for label, means, stds in (
                ("EI-REHN-20", [1.9, 0.9, 0.63, 0.55, 0.53, 0.522], [0.08] * 6),
                ("EI-REHN-20, penalty 0.1", [0.9, 0.62, 0.57, 0.562, 0.561, 0.561], [0.03] * 6),
                ("SRHN-20", [9, 4, 2.1, 1.2, 0.75, 0.59], [0.4] * 6),
                ("RHN-20", [20, 9, 4, 1.6, 0.57], [1, 1, 0.5, 0.2, 0.02]),
            )
        ],
        true_depth=[elastic, dataclasses.replace(elastic, label="EI-REHN-20, penalty 0", **flat)],
    )


def bare_report(**changes: object) -> Report:
    """No section but the table."""
    return dataclasses.replace(Report("A title", "A summary.", results(), own=True), **changes)
