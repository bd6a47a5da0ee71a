"""A made-up report of classifiers with everything in it, of the size a full run has."""

import numpy as np

from eirehn.report.content import ClassDepth, Confusion, Curve, DepthHistogram, EarlyCurve, Report, Saving, Window
from helpers.sample import row

CLASSES = ("walking", "walking upstairs", "walking downstairs", "sitting", "standing", "laying")
SIGNALS = tuple(f"{name} {axis}" for name in ("body acceleration", "angular velocity") for axis in "xyz")
COUNTS = (496, 471, 420, 491, 532, 537)
ROWS = (  # model, label, layers, depth, parameters, ours, paper, its deviation
    ("RNN", "RNN-32", 2, None, 3942, 0.801, 0.8226, 0.0257),
    ("RNN", "RNN-48", 2, None, 8214, 0.819, 0.8131, 0.0553),
    ("LSTM", "LSTM-16", 2, None, 4038, 0.904, 0.9088, 0.0096),
    ("LSTM", "LSTM-32", 2, None, 14214, 0.913, 0.9212, 0.0040),
    ("RHN", "RHN-32, depth 1", 2, 1, 7366, 0.909, 0.9058, 0.0095),
    ("RHN", "RHN-32, depth 3", 2, 3, 15814, 0.882, 0.8306, 0.0462),
    ("EIREHN", "EI-REHN-48", 1, 4, 16950, 0.921, 0.9248, 0.0061),
    ("EIREHN", "EI-REHN-48, 2 layers", 2, 4, 36000, 0.916, None, None),
)
NAMES = [label for _, label, *_ in ROWS]


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
    rows = [
        row(
            model,
            (ours + 0.005 * random.standard_normal(seeds)).tolist(),
            recipe=f"har-{label.lower().replace(', ', '-').replace(' ', '-')}",
            label=label,
            layers=layers,
            max_depth=depth,
            weight_update="paper" if model == "EIREHN" else None,
            parameters=parameters,
            metric="accuracy",
            paper=paper,
            paper_std=paper_std,
            seconds=60.0 + parameters / 40,
        )
        for model, label, layers, depth, parameters, ours, paper, paper_std in ROWS
    ]
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
    named, chance = (CLASSES[true], CLASSES[predicted]), random.uniform(0.5, 1)
    return Window("EI-REHN-48, penalty 0.3", SIGNALS, x, depth, *named, chance, layers)


def class_depth(random: np.random.Generator, label: str, same: bool = False) -> ClassDepth:
    accuracy = np.array([0.97, 0.93, 0.95, 0.79, 0.88, 0.99]) + 0.01 * random.standard_normal(6)
    depth = np.full(6, 4.0) if same else np.array([3.1, 3.2, 3.3, 1.4, 1.2, 1.9])
    deviations = np.full(6, 0.02), np.full(6, 0.0 if same else 0.15)
    return ClassDepth(label, CLASSES, accuracy, depth, COUNTS, *deviations, layers=2 if "layers" in label else 1)


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
