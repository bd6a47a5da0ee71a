"""A made-up report of language models with everything in it, of the size a full run has."""

import numpy as np

from eirehn.report.content import Curve, DepthHistogram, EarlyCurve, Passage, Report, TableRow, WordGroups
from helpers.sample import row

PENALISED = "EI-REHN-1200, depth 4, penalty 0.01"
ROWS = (  # model, label, depth, parameters, ours, paper
    ("RHN", "RHN-1200, depth 2", 2, 20_700_000, 74.1, 73.4),
    ("RHN", "RHN-1200, depth 4", 4, 26_400_000, 68.9, 68.3),
    ("EIREHN", "EI-REHN-1200, depth 2", 2, 25_340_000, 69.9, 69.2),
    ("EIREHN", "EI-REHN-1200, depth 4", 4, 25_340_000, 66.0, 66.2),
    ("LSTM", "LSTM-1500", None, 66_000_000, 78.9, 78.4),
)
NAMES = [label for _, label, *_ in ROWS]
FREQUENCIES = ("never", "1–2 times", "3–9 times", "10–29 times", "30–99 times", "100–299 times", "300–999 times")
FREQUENCIES += ("1 000–2 999 times", "3 000–9 999 times", "10 000–29 999 times", "30 000–99 999 times")
TICKS = ("0", "1", "3", "10", "30", "100", "300", "1k", "3k", "10k", "30k")
PLACES = ("place 1", "place 2", "place 3", "places 4–5", "places 6–9", "places 10–19", "place 20 or more")
LINES = """no wind came that night <eos> but while the old harbour lights of the town did n't go out as the tide
fell N feet most of it in the last hour the boats barely managed to stay off the mud <eos> some ropes tied after the
storm of N held at their first test sailors say <eos> the N men on the long pier the keepers and menders of last
resort once again could n't sleep for the noise of the sea <eos>"""
TEXT = LINES.split()


def results() -> dict:
    rows = [
        row(
            model,
            [ours],
            recipe=f"ptb-{label.lower().replace(', ', '-').replace(' ', '-')}",
            label=label,
            max_depth=depth,
            parameters=parameters,
            metric="perplexity",
            final_mean=ours + 0.3,
            paper=paper,
            seconds=9000.0 + parameters / 1e4,
        )
        for model, label, depth, parameters, ours, paper in ROWS
    ]
    return {"experiment": "ptb", "command": "eirehn reproduce ptb", "quick": False, "rows": rows}


def curve(random: np.random.Generator, label: str, end: float, epochs: int = 500) -> Curve:
    epoch = np.arange(1, epochs + 1)
    noise = np.exp(0.004 * random.standard_normal((1, epochs)))
    perplexity = (end + 700 * np.exp(-epoch / 4) + 60 / epoch**0.5) * noise
    loss = np.log(perplexity) + 0.2
    depth = 4 - 1.5 * (1 - np.exp(-epoch / 60)) + 0.02 * random.standard_normal((1, epochs))
    elastic = "EI-REHN" in label
    seconds = epoch * (18.0 if elastic else 12.0)
    return Curve(label, epoch, None, perplexity, depth if elastic else None, loss, seconds)


def groups(random: np.random.Generator, label: str, names: tuple, ticks: tuple, layers: int = 1) -> WordGroups:
    counts = [
        random.multinomial(layers * (3 + 40 * i**2), [0.02, 0.5 - 0.04 * i, 0.28, 0.15, 0.05 + 0.04 * i])
        for i in range(len(names))
    ]
    perplexity = 9000 * np.exp(-0.7 * np.arange(len(names)))
    others = np.array(counts).tolist(), perplexity, np.full(len(names), 66.0), layers
    return WordGroups(label, names, ticks, *others, random.uniform(0.5, 1.5, len(names)))


def passage(random: np.random.Generator, tokens: list, *, layers: int = 1, spaced: bool = True) -> Passage:
    depth = random.integers(0, 5, (layers, len(tokens))).mean(0)
    chance = [None, *random.uniform(0, 1, len(tokens) - 1) ** 8]
    return Passage(PENALISED, tokens, depth, chance, "<eos>" if spaced else "\n", spaced)


def language_report(*, letters: bool = False) -> Report:
    random, stored, layers = np.random.default_rng(0), results(), 2 if letters else 1
    tokens = [list(" ".join(TEXT).replace("<eos>", "\n")), list(TEXT[5])] if letters else [TEXT, TEXT[6:60]]
    ticks = (*(name.split()[1].split("–")[0] for name in PLACES), "¶")
    return Report(
        title="Penn Treebank: Tables 3 and 4",
        summary="Made-up figures, to look at the page.",
        results=stored,
        curves=[curve(random, label, row["mean"] + 3) for label, row in zip(NAMES, stored["rows"], strict=True)],
        histograms=[DepthHistogram(PENALISED, [40, 4000, 3000, 1500, 660], layers)],
        frequencies=[
            groups(random, "EI-REHN-1200, depth 4", FREQUENCIES, TICKS),
            groups(random, PENALISED, FREQUENCIES, TICKS, layers),
        ],
        positions=[groups(random, PENALISED, (*PLACES, "the end"), ticks, layers)],
        passages=[passage(random, each, layers=layers, spaced=not letters) for each in tokens],
        early=[
            EarlyCurve("EI-REHN-1200, depth 4", range(1, 5), [190.0, 84.0, 67.5, 66.0]),
            EarlyCurve("RHN-1200, depth 4", range(1, 5), [9000.0, 2100.0, 410.0, 68.9]),
        ],
        tables=[
            TableRow("Table 3: by depth", "RHN-1200, depth 2", 20.7, None, 73.4, 77.2, 74.1),
            TableRow("Table 3: by depth", "EI-REHN-1200, depth 4", 25.3, None, 66.2, 68.9, 66.0),
            TableRow("Table 4: compared with other models", "Ensemble of LSTMs (Zaremba 2014)", None, 71.9, 68.7),
            TableRow("Other models of ours", PENALISED, 25.34, None, None, 70.1, 67.0),
        ],
        measured_on="Measured on the first 9 200 of 82 429 words of the test text.",
        loss_name="training loss (nats a token, with dropout)",
    )
