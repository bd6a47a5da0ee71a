"""The report of trained language models: perplexity and depth on their test text."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_map

from ..data.dataset import Split
from ..data.vocabulary import end_of_line
from ..models import ELASTIC, LanguageModel
from ..report.content import Curve, EarlyCurve, Passage, TableRow, WordGroups
from ..report.tables import NAMES, count
from ..training.loaders import Windows
from .results import depth_row, paper_result, published
from .trained import Trained, early_curve, histogram, learning_curve

TASK = "Trained to model language."
KEPT = ("early", "histograms", "frequencies", "positions")
"""The parts of a report that the results file keeps; not passages, because of copyright."""
WORK = 6e11
"""Most multiplications for one reading of the text: about half a minute on one core."""
COLUMNS, LONG_COLUMN = 16, 500
"""Parallel streams of a text are read much faster than one; each starts without its past, so none may be short."""
LEAD = 200
"""Tokens read before each stream: a model may never recover from a zero state within a sentence."""
FREQUENCIES = (0, *(step * 10**power for power in range(10) for step in (1, 3)))
PLACES = (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 100, 200, 500, 1000)
"""First values of the groups."""
PASSAGES = 4
WORDS, CHARACTERS = 45, 240
"""Tokens of a passage, which ends with a line but has at most twice as many."""

Ints = npt.NDArray[np.int64]


def about(runs: Sequence[Trained]) -> dict[str, Any]:
    return {"evaluation": "perplexity of the whole text, read in order as one stream"}


def about_row(run: Trained) -> dict[str, Any]:
    """Its learning curve and GPU time."""
    curve = learning_curve(run)
    curves = {"train_loss": curve.loss, "validation_perplexity": curve.validation}
    return {
        "gpu_hours": run.result.get("gpu_hours"),
        "learning_curve": {
            name: [[round(value, 4) for value in seed] for seed in values]
            for name, values in curves.items()
            if values is not None
        },
    }


def parts(runs: Sequence[Trained]) -> dict[str, Any]:
    """The parts of the report of these runs."""
    deep = [run for run in runs if run.models and run.deep]
    best = best_of_each(deep)
    shown = [run for run in deep if run in best or run.penalty]
    texts = [Text(run, tokens_to_read(shown)) for run in shown]
    elastic = [text for text in texts if text.run.elastic]
    return {
        "curves": [timed(run) for run in runs],
        "histograms": [histogram(text.run, (each.depth for each in text.readings)) for text in elastic],
        "frequencies": [by_frequency(text) for text in elastic],
        "positions": [by_place(text) for text in elastic],
        "passages": passages(max(elastic, key=variety)) if elastic else (),
        "early": [early(text) for text in texts],
        "tables": tables(runs) if runs[0].recipe.data.kind == "ptb" else (),
        "measured_on": what_was_read(texts[0]) if texts else "",
        "loss_name": "training loss (nats a token, with dropout)",
    }


def more(run: Trained) -> dict[str, list[float]]:
    return {}


def baseline(run: Trained) -> dict[str, Any]:
    """Predicting each token by its frequency in the training text, with one added to each count."""
    known, splits = run.recipe.data.output_size, run.recipe.data.load()
    train, test = (occurrences(split, known) for split in (splits.train, splits.test))
    test[splits.test.x[0, 0]] -= 1  # the first is not predicted
    share = (train + 1) / (train.sum() + known)
    return {
        "label": f"{run.recipe.data.level} frequencies alone (unigram)",  # type: ignore[attr-defined]  # a text
        "value": math.exp(-(test * np.log(share)).sum() / test.sum()),
        "more": {},
    }


def timed(run: Trained) -> Curve:
    """The learning curve with times; all epochs are assumed to take equally long."""
    curve = learning_curve(run)
    each = run.result["seconds"] / curve.epochs[-1]
    return replace(curve, seconds=[each * epoch for epoch in curve.epochs])


def best_of_each(runs: Sequence[Trained]) -> list[Trained]:
    """The run with the best validation result of each kind of network, preferably without a depth penalty."""

    def order(run: Trained) -> tuple[bool, float]:
        found = perplexities(run)[0]
        return run.penalty > 0, math.inf if found is None else found

    best: dict[str, Trained] = {}
    for run in sorted(runs, key=order):
        best.setdefault(run.recipe.network.kind, run)
    return list(best.values())


def perplexities(run: Trained | None) -> tuple[float | None, float | None]:
    """On validation and test data, means over the seeds that have a result."""
    if run is None:
        return None, None
    validation, test = (
        [value for value in values or () if value is not None]
        for values in (run.result.get("best_validation"), run.result["values"])
    )
    return statistics.fmean(validation) if validation else None, statistics.fmean(test) if test else None


def tables(runs: Sequence[Trained]) -> list[TableRow]:
    """Tables 3 and 4 of the paper with our results, and then the runs that are not in them."""
    ours = {run.recipe.name: run for run in runs if paper_result(run.recipe)[0] is not None}
    rows = []
    for kind, table in published()["ptb_test_perplexity_by_depth_hidden_1200"].items():
        sizes = table["parameters_millions"]
        for index, (depth, perplexity) in enumerate(zip(table["depth"], table["perplexity"], strict=True)):
            own = perplexities(ours.get(depth_row(kind, depth)))
            model = f"{NAMES.get(kind, kind)}-1200, depth {depth}"
            size = sizes[index] if isinstance(sizes, list) else sizes
            rows.append(TableRow("Table 3: by depth", model, size, None, perplexity, *own))
    for row in published()["ptb_comparison"]:
        size = None if row["size"] is None else float(row["size"].removesuffix("M"))
        own = perplexities(ours.get(row["recipe"]))
        rows.append(
            TableRow("Table 4: compared with other models", row["model"], size, row["valid"], row["test"], *own)
        )
    for run in runs:
        if run.recipe.name not in ours:
            millions = run.result["parameters"] / 1e6
            rows.append(TableRow("Other models of ours", run.label, millions, None, None, *perplexities(run)))
    return rows


class Reading(NamedTuple):
    """The results of one model on a text of N tokens."""

    nats: Tensor  # (N,): cross-entropy of the next token
    depth: Tensor  # (layers, N)
    effective: Tensor | None  # (layers, N): the depth before rounding


class Text:
    """The first `tokens` of a run's test text, as its models read them."""

    def __init__(self, run: Trained, tokens: int) -> None:
        run.recipe.data.check_trained_on(run.folder)  # type: ignore[attr-defined]  # these data are a text
        length = tokens // columns(tokens) * columns(tokens)  # streams have equal lengths
        self.run, self.split = run, run.test.map(lambda each: each[:, :length])  # (1, N)
        self.x = self.split.x[0].numpy()  # (N,)
        self.vocabulary = run.models[0].tokens
        self.end = end_of_line(self.vocabulary)
        known = self.end in self.vocabulary
        self.ends = self.x == (self.vocabulary.encode([self.end])[0] if known else -1)  # (N,)

    @cached_property
    def readings(self) -> list[Reading]:
        self.run.tell(f"reading the test text with the models of {self.run.folder}")
        return self.read()

    def read(self, max_depth: int | None = None) -> list[Reading]:
        lead = self.run.recipe.data.load().validation.x[:, :LEAD].long()
        return [read(model, self.split, lead, max_depth) for model in self.run.models]


def columns(tokens: int) -> int:
    return max(1, min(COLUMNS, tokens // LONG_COLUMN))


@torch.no_grad()
def read(model: LanguageModel, split: Split, lead: Tensor, max_depth: int | None = None) -> Reading:
    """Reads a text in one stream from a zero state, or in several from the state after `lead` (1, T)."""
    side, device = columns(split.x.size(1)), model.bias.device
    state, nats, depths, effective = None, [], [], []
    elastic = model.network.kind in ELASTIC
    if side > 1 and model.pointer is None:  # a pointer would need the words before
        left = model.run(lead.to(device), max_depth=max_depth).state
        state = tree_map(lambda part: part.expand(-1, side, -1).contiguous(), left)  # (layers, B, H)
    for x, target, _ in Windows(split, side):
        outcome = model.run(x.to(device), state, max_depth=max_depth, with_cost=elastic)
        state = outcome.state
        entropies = F.cross_entropy(outcome.prediction.flatten(0, 1), target.flatten().to(device), reduction="none")
        nats.append(entropies.view(target.shape).double().cpu())  # (B, T)
        depths.append(outcome.depth.to("cpu", torch.int16))  # (layers, B, T)
        if outcome.cost is not None:
            effective.append(outcome.cost.double().cpu())  # (layers, B, T)
    return Reading(
        torch.cat(nats, -1).flatten(),
        torch.cat(depths, -1).flatten(1),
        torch.cat(effective, -1).flatten(1) if effective else None,
    )


def tokens_to_read(runs: Sequence[Trained], bearable: float = WORK) -> int:
    """The number of tokens that the slowest of these runs can read with `bearable` work, the same for all."""
    whole = min(run.test.x.size(1) for run in runs)
    slowest = max(work(run.models[0]) * len(run.models) for run in runs)
    return min(whole, max(int(bearable / slowest), 1000))


def work(model: LanguageModel) -> int:
    """The approximate number of multiplications for a token."""
    body = sum(parameter.numel() for parameter in model.body.parameters())
    again = 1 if model.network.kind == "RHN" else model.network.max_depth  # RHN has weights for every depth
    maps = [model.embedding.weight, model.narrowing]
    return int(sum(each.numel() for each in maps if each is not None) + again * body)


def what_was_read(text: Text) -> str:
    """In words."""
    read, whole = len(text.x), text.run.test.x.size(1)
    kind = "words" if text.vocabulary.level == "word" else "characters"
    # Numbers in a sentence must not be broken.
    some, all_of = (count(number).replace(" ", "\N{NO-BREAK SPACE}") for number in (read, whole))
    part = f"all {all_of} {kind}" if read == whole else f"the first {some} of {all_of} {kind}"
    several = f"in {columns(read)} parallel streams, each after {LEAD} {kind} of the validation text"
    return f"Measured on {part} of the test text, read {several if columns(read) > 1 else 'in order'}."


def variety(text: Text) -> tuple[float, float]:
    """How much depth differs between tokens, and then effective depth: the run with the most is shown."""
    first = text.readings[0]
    effective = 0.0 if first.effective is None else first.effective.mean(0).std().item()
    return first.depth.double().mean(0).std().item(), effective


def early(text: Text) -> EarlyCurve:
    return early_curve(text.run, lambda _, cap: perplexities_and_depths(text, cap))


def perplexities_and_depths(text: Text, max_depth: int | None = None) -> list[tuple[float, float]]:
    """The perplexity and the mean depth of each of the run's models."""
    uncapped = max_depth in (None, text.run.recipe.network.max_depth)
    found = text.readings if uncapped else text.read(max_depth)
    return [(math.exp(each.nats.mean().item()), each.depth.double().mean().item()) for each in found]


def by_frequency(text: Text) -> WordGroups:
    """Words by their frequency in the training text."""
    seen = occurrences(text.run.recipe.data.load().train, len(text.vocabulary))
    group = np.digitize(seen[text.x], FREQUENCIES) - 1  # (N,)
    names = ["never", *(f"{span(low, high)} times" for low, high in _pairs(FREQUENCIES[1:]))]
    return _grouped(text, group, names, [short(low) for low in FREQUENCIES])


def occurrences(text: Split, known: int) -> Ints:
    """The count of each of `known` tokens in a text, which may be larger than memory."""
    seen = np.zeros(known, np.int64)
    for piece in (*text.x[0].split(1 << 20), text.target[0, -1:]):
        seen += np.bincount(piece.numpy(), minlength=known)
    return seen


def by_place(text: Text) -> WordGroups:
    """Tokens by their position in the line, with its end as a group of its own."""
    group = np.where(text.ends, len(PLACES), np.digitize(places(text.ends), PLACES) - 1)
    names = [f"position{'s' if high != low + 1 else ''} {span(low, high)}" for low, high in _pairs(PLACES)]
    return _grouped(text, group, [*names, "the end"], [*map(short, PLACES), "¶"])


def places(ends: npt.NDArray[np.bool_]) -> Ints:
    """The position of each token in its line, from 1, (N,); lines end at `ends`, (N,)."""
    index = np.arange(len(ends))
    last = np.maximum.accumulate(np.where(ends, index, -1))
    found: Ints = index - np.concatenate([[-1], last[:-1]])
    return found


def _pairs(edges: Sequence[int]) -> list[tuple[int, int | None]]:
    return list(zip(edges, [*edges[1:], None], strict=True))


def span(low: int, high: int | None) -> str:
    """From `low` to the number before `high`."""
    if high is None:
        return f"{count(low)} or more"
    return count(low) if high == low + 1 else f"{count(low)}–{count(high - 1)}"


def short(number: int) -> str:
    for size, letter in ((10**9, "G"), (10**6, "M"), (1000, "k")):
        if number >= size:
            return f"{number // size}{letter}"
    return str(number)


def _grouped(text: Text, group: Ints, names: Sequence[str], ticks: Sequence[str]) -> WordGroups:
    """The groups that have words; `group` (N,) is the number of each word's group."""
    there = np.unique(group).tolist()
    network = text.run.recipe.network
    counts = np.zeros((len(names), network.max_depth + 1), np.int64)
    perplexity, follows, effective = [], [], []  # [model][group]
    for reading in text.readings:
        for depth in reading.depth.numpy():  # of each layer
            np.add.at(counts, (group, depth), 1)
        nats = reading.nats.numpy()
        own = np.concatenate([[math.nan], nats[:-1]])  # of the word itself; the first is not predicted
        perplexity.append([_perplexity(own[group == each]) for each in there])
        follows.append([_perplexity(nats[group == each]) for each in there])
        if reading.effective is not None:
            effective.append([reading.effective.numpy()[:, group == each].mean() for each in there])
    return WordGroups(
        text.run.label,
        [names[each] for each in there],
        [ticks[each] for each in there],
        counts[there].tolist(),
        [statistics.fmean(models) for models in zip(*perplexity, strict=True)],
        [statistics.fmean(models) for models in zip(*follows, strict=True)],
        network.num_layers,
        [statistics.fmean(models) for models in zip(*effective, strict=True)] if effective else None,
    )


def _perplexity(nats: npt.NDArray[np.float64]) -> float:
    known = nats[np.isfinite(nats)]
    return math.exp(known.mean()) if len(known) else math.nan


def passages(text: Text) -> list[Passage]:
    """Evenly spaced pieces of the test text, as the run's first model reads them; with the effective depth if all
    tokens take the same number of inner steps."""
    reading, spaced = text.readings[0], text.vocabulary.level == "word"
    depth, taken = reading.depth.double().mean(0), None
    # Gates may be non-finite in damaged weights.
    effective = reading.effective if reading.effective is not None and reading.effective.isfinite().all() else None
    if effective is not None and bool((depth == depth[0]).all()):
        depth, taken = effective.mean(0), depth[0].item()
    chance = [None, *(-reading.nats[:-1]).exp().tolist()]
    return [
        Passage(
            label=text.run.label,
            tokens=[text.vocabulary.tokens[number] for number in text.x[piece].tolist()],
            depth=depth[piece].tolist(),
            chance=chance[piece],
            end=text.end,
            spaced=spaced,
            taken=taken,
        )
        for piece in pieces(text.ends.nonzero()[0].tolist(), len(text.x), WORDS if spaced else CHARACTERS)
    ]


def pieces(ends: Sequence[int], tokens: int, size: int) -> list[slice]:
    """`PASSAGES` pieces of whole lines, of about `size` tokens each; `ends` are the ends of the lines."""
    found: list[slice] = []
    for number in range(PASSAGES):
        near = number * tokens // PASSAGES
        before = [end + 1 for end in ends if near <= end + 1 < tokens]
        first = 0 if number == 0 else before[0] if before else near
        if found and first < found[-1].stop:
            continue
        last = next((end + 1 for end in ends if end + 1 >= first + size), tokens)
        found.append(slice(first, min(last, first + 2 * size, tokens)))
    return found
