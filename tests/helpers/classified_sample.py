"""A made-up report of classifiers with everything in it, of the size a full run has."""

import numpy as np

from eirehn.report.content import ClassDepth, Confusion, Curve, DepthHistogram, EarlyCurve, Report, Saving, Window
from helpers.sample import row

CLASSES = ("walking", "walking upstairs", "walking downstairs", "sitting", "standing", "laying")
SIGNALS = tuple(f"{name} {axis}" for name in ("body acceleration", "angular velocity") for axis in "xyz")
COUNTS = (496, 471, 420, 491, 532, 537)
ROWS = (  # model, hidden, layers, depth, parameters, ours, paper, its deviation
    ("RNN", 32, 2, None, 3942, 80.1, 82.26, 2.57),
    ("RNN", 48, 2, None, 8214, 81.9, 81.31, 5.53),
    ("LSTM", 16, 2, None, 4038, 90.4, 90.88, 0.96),
    ("LSTM", 32, 2, None, 14214, 91.3, 92.12, 0.40),
    ("RHN", 32, 2, 1, 7366, 90.9, 90.58, 0.95),
    ("RHN", 32, 2, 3, 15814, 88.2, 83.06, 4.62),
    ("EIREHN", 48, 1, 4, 16950, 92.1, 92.48, 0.61),
    ("EIREHN", 48, 2, 4, 36000, 91.6, None, None),
)
NAMES = ("RNN-32", "RNN-48", "LSTM-16", "LSTM-32", "RHN-32, depth 1", "RHN-32, depth 3")
NAMES += ("EI-REHN-48", "EI-REHN-48, 2 layers")


def confusion(random: np.random.Generator, label: str, seeds: int = 5) -> Confusion:
    mistaken = np.full((6, 6), 0.2)
    mistaken[:3, :3], mistaken[3:5, 3:5] = 2.0, 11.0
    mistaken[5, 5] = 0.0
    shares = mistaken * (1 - np.eye(6))
    shares += np.diag(100 - shares.sum(1))
    counts = [
        [random.multinomial(number, row / row.sum()).tolist() for number, row in zip(COUNTS, shares, strict=True)]
        for _ in range(seeds)
    ]
    return Confusion(label, CLASSES, counts)


def results(seeds: int = 5) -> dict:
    random = np.random.default_rng(0)
    rows = []
    for (model, _, layers, depth, parameters, ours, paper, paper_std), label in zip(ROWS, NAMES, strict=True):
        values = (0.01 * (ours + 0.5 * random.standard_normal(seeds))).tolist()
        rows.append(
            row(
                model,
                float(np.mean(values)),
                values,
                recipe=f"har-{label.lower().replace(', ', '-').replace(' ', '-')}",
                label=label,
                layers=layers,
                max_depth=depth,
                weight_update="paper" if model == "EIREHN" else None,
                parameters=parameters,
                metric="accuracy",
                std=float(np.std(values, ddof=1)),
                final_mean=float(np.mean(values)),
                paper=None if paper is None else paper / 100,
                paper_std=None if paper_std is None else paper_std / 100,
                seconds=60.0 + parameters / 40,
            )
        )
    return {"experiment": "har", "command": "eirehn reproduce har", "quick": False, "rows": rows}


def curve(random: np.random.Generator, label: str, *, validated: bool, seeds: int = 5, epochs: int = 100) -> Curve:
    epoch = np.arange(1, epochs + 1)
    loss = (0.08 + 1.6 * np.exp(-epoch / 7)) * np.exp(0.08 * random.standard_normal((seeds, epochs)))
    accuracy = 0.93 - 0.55 * np.exp(-epoch / 6) + 0.008 * random.standard_normal((seeds, epochs))
    depth = 1.5 + 2.5 * np.exp(-epoch / 30) + 0.05 * random.standard_normal((seeds, epochs))
    elastic = validated and "EI-REHN" in label
    return Curve(label, epoch, None, accuracy if validated else None, depth if elastic else None, loss)


def window(random: np.random.Generator, true: int, predicted: int, layers: int = 1) -> Window:
    steps = np.arange(128)
    swing = 2.5 if true < 3 else 0.05
    phase = random.uniform(0, 6, len(SIGNALS))
    x = swing * np.sin(steps[:, None] / 6 + phase) + 0.1 * random.standard_normal((128, len(SIGNALS)))
    spent = np.clip(np.rint(1.5 + np.abs(x[:, 0])), 1, 4)
    depth = spent if layers == 1 else (spent + np.roll(spent, 3)) / 2
    return Window(
        "EI-REHN-48, penalty 0.3",
        SIGNALS,
        x,
        depth,
        CLASSES[true],
        CLASSES[predicted],
        random.uniform(0.5, 1),
        layers,
    )


def class_depth(random: np.random.Generator, label: str, same: bool = False) -> ClassDepth:
    depth = np.full(6, 4.0) if same else np.array([3.1, 3.2, 3.3, 1.4, 1.2, 1.9])
    return ClassDepth(
        label,
        CLASSES,
        np.array([0.97, 0.93, 0.95, 0.79, 0.88, 0.99]) + 0.01 * random.standard_normal(6),
        depth,
        COUNTS,
        np.full(6, 0.02),
        np.zeros(6) if same else np.full(6, 0.15),
        layers=2 if "layers" in label else 1,
    )


def classified_report(*, validated: bool = True) -> Report:
    random = np.random.default_rng(1)
    stored = results()
    if validated:
        for row in stored["rows"]:
            row["final_mean"] -= 0.004
    return Report(
        title="Human activity: Table 2",
        summary="Made-up figures, to look at the page.",
        results=stored,
        curves=[curve(random, label, validated=validated) for label in NAMES],
        confusions=[confusion(random, label) for label in ("RNN-48", "LSTM-32", "RHN-32, depth 3", "EI-REHN-48")],
        histograms=[DepthHistogram("EI-REHN-48, 2 layers", [0, 9000, 6000, 4000, 1000], 2)],
        class_depths=[
            class_depth(random, "EI-REHN-48", same=True),
            class_depth(random, "EI-REHN-48, penalty 0.3"),
            class_depth(random, "EI-REHN-48, 2 layers"),
        ],
        windows=[window(random, i, i) for i in range(6)] + [window(random, 3, 4), window(random, 0, 1, layers=2)],
        windows_chosen="They are the first of each class.",
        savings=[
            Saving(f"EI-REHN-48, penalty {penalty:g}", "elastic", penalty, depth, 200 + 90 * depth, mean, 0.006)
            for penalty, depth, mean in ((0.0, 4.0, 0.921), (1e-3, 2.6, 0.922), (1e-2, 1.5, 0.913))
        ]
        + [
            Saving(f"RHN-32, depth {d}", "fixed", None, d, 150 + 90 * d, 0.91 - 0.013 * d, 0.009) for d in (1, 2, 3)
        ],
        early=[
            EarlyCurve("EI-REHN-48", range(1, 5), [0.74, 0.90, 0.92, 0.921], [0.06, 0.01, 0.005, 0.005]),
            EarlyCurve("RHN-32, depth 3", range(1, 4), [0.22, 0.48, 0.88], [0.05, 0.08, 0.01]),
        ],
        loss_name="training loss (cross-entropy)",
    )
