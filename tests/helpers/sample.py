"""A made-up report with everything in it, of the size a full run has."""

import dataclasses
import math

import numpy as np

from eirehn.data.synthetic import synthetic
from eirehn.report.content import Curve, DepthHistogram, EarlyCurve, Example, Report, Saving, TrueDepth
from eirehn.report.tables import NAMES

FLOOR = 0.000427
PAPER = {
    ("RNN", 20): (1.01, 502),
    ("RNN", 30): (0.97, 1052),
    ("RNN", 40): (1.02, 1802),
    ("LSTM", 10): (0.76, 542),
    ("LSTM", 15): (0.76, 1112),
    ("LSTM", 20): (0.72, 1882),
    ("RHN", 10): (0.58, 1162),
    ("RHN", 15): (0.54, 2492),
    ("RHN", 20): (0.53, 4322),
    ("EIREHN", 10): (0.55, 807),
    ("EIREHN", 15): (0.50, 1732),
    ("EIREHN", 20): (0.47, 2862),
    ("SRHN", 20): (0.54, 942),
    ("SREHN", 20): (0.54, 1442),
    ("ACT", 20): (None, 1020),
}
MEASURED = {"RNN": 0.80, "LSTM": 0.72, "RHN": 0.57, "EIREHN": 0.52, "SRHN": 0.59, "SREHN": 0.61, "ACT": 0.66}


OTHERS = ("max_depth", "weight_update", "parameters", "std", "final_mean", "paper", "paper_std", "seconds")


def row(model: str, mean: float | None, values: list, **more: object) -> dict:
    """A row of a results file; what is not given is None."""
    row = {
        "label": f"{NAMES.get(model, model)}-20",
        "model": model,
        "recipe": "paper",
        "layers": 1,
        "metric": "mse",
    }
    return {**row, **dict.fromkeys(OTHERS), "mean": mean, "values": values, **more}


def results(seeds: int = 5) -> dict:
    random = np.random.default_rng(0)
    rows = []
    for (model, hidden), (paper, parameters) in PAPER.items():
        centre = MEASURED[model] + 0.0035 * (20 - min(hidden, 20))
        values = (1e-3 * (centre + 0.012 * random.standard_normal(seeds))).tolist()
        if (model, hidden) == ("EIREHN", 15):
            values[2] = math.nan
        diverged = any(map(math.isnan, values))
        mean = None if diverged else float(np.mean(values))
        rows.append(
            row(
                model,
                mean,
                values,
                label=f"{NAMES.get(model, model)}-{hidden}",
                max_depth=None if model in ("RNN", "LSTM") else 5 if model == "RHN" else 6,
                weight_update="paper" if model == "EIREHN" else None,
                parameters=parameters,
                std=None if diverged else float(np.std(values)),
                final_mean=None if diverged else mean * 1.08,
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
    random = np.random.default_rng(1)
    drawn = []
    for model, hidden in PAPER:
        end = MEASURED[model] + 0.0035 * (20 - min(hidden, 20))
        epoch = np.arange(1, epochs + 1)
        fall = 9.0 * np.exp(-epoch / 3.0) + 0.9 / epoch**0.7
        wobble = np.exp(0.05 * random.standard_normal((seeds, epochs)))
        validation = 1e-3 * (end + fall) * wobble
        train = 1e-3 * (end - 0.03 + fall) * np.exp(0.02 * random.standard_normal((seeds, epochs)))
        if (model, hidden) == ("EIREHN", 15):
            validation[2, 60:70] *= np.geomspace(1, 30, 10)
            validation[2, 70:] = train[2, 70:] = np.nan
        elastic = model in ("EIREHN", "SREHN", "ACT")
        depth = 1.6 + 4.4 * np.exp(-epoch / 20) + 0.1 * random.standard_normal((seeds, epochs))
        label = f"{NAMES.get(model, model)}-{hidden}"
        drawn.append(Curve(label, epoch.tolist(), train, validation, depth if elastic else None))
    return drawn


def spent_on(taken: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return np.clip(np.rint(1.0 + 0.6 * (taken - 1) + 0.35 * random.standard_normal(taken.shape)), 1, 6).astype(int)


def full_report() -> Report:
    random = np.random.default_rng(2)
    data = synthetic(1000, seed=3)
    taken = data.depth[:, :20]
    spent = spent_on(taken, random)
    deepest = int(taken.max())
    groups = [(d, spent[taken == d]) for d in range(1, deepest + 1) if (taken == d).any()]
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
            Example(
                data.x[i, :20],
                spent[i].tolist(),
                taken[i].tolist(),
                (1e-3 * random.gamma(0.7, 0.8, 20)).tolist(),
            )
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
            for d, m in zip(range(1, 7), (0.81, 0.63, 0.59, 0.575, 0.57, 0.568), strict=True)
        ]
        + [Saving("LSTM-20", "fixed", None, 1, 0.31, 0.717e-3, 0.2e-5)],
        early=[
            EarlyCurve(
                "EI-REHN-20", range(1, 7), [1.9e-3, 0.9e-3, 0.63e-3, 0.55e-3, 0.53e-3, 0.522e-3], [8e-5] * 6
            ),
            EarlyCurve(
                "EI-REHN-20, penalty 0.1",
                range(1, 7),
                [0.9e-3, 0.62e-3, 0.57e-3, 0.562e-3, 0.561e-3, 0.561e-3],
                [3e-5] * 6,
            ),
            EarlyCurve("SRHN-20", range(1, 7), [9e-3, 4e-3, 2.1e-3, 1.2e-3, 0.75e-3, 0.59e-3], [4e-4] * 6),
            EarlyCurve("RHN-20", range(1, 6), [2e-2, 9e-3, 4e-3, 1.6e-3, 0.57e-3], [1e-3, 1e-3, 5e-4, 2e-4, 2e-5]),
        ],
        true_depth=[
            TrueDepth(
                "EI-REHN-20, penalty 0.1",
                [d for d, _ in groups],
                [float(g.mean()) for _, g in groups],
                [float(g.std()) for _, g in groups],
                [g.size for _, g in groups],
            ),
            TrueDepth(
                "EI-REHN-20, penalty 0",
                [d for d, _ in groups],
                [6.0] * len(groups),
                [0.0] * len(groups),
                [g.size for _, g in groups],
            ),
        ],
    )


def bare_report(**changes: object) -> Report:
    """No section but the table."""
    return dataclasses.replace(Report("A title", "A summary.", results(), figure1=False), **changes)
