"""What trained language models do on their test text: how well they tell its words, and how deep they go for it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_map

from ..data.splits import Split
from ..data.vocabulary import end_of_line
from ..models import ELASTIC, LanguageModel
from ..report.content import DepthHistogram, EarlyCurve, Passage, WordGroups
from ..report.tables import count
from ..training.columns import Windows
from . import analysis
from .analysis import Trained

WORK = 6e11
"""Multiplications that one reading of the text may take: about half a minute on one core."""
COLUMNS, LONG_COLUMN = 16, 500
"""Columns side by side are read much faster than one; none may be short, as each starts without its own past."""
LEAD = 200
"""Tokens to start columns from: a model that has to start from nothing within a sentence may never find its way."""
FREQUENCIES = (0, *(step * 10**power for power in range(10) for step in (1, 3)))
PLACES = (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 100, 200, 500, 1000)
"""Where groups begin."""
PASSAGES = 4
WORDS, CHARACTERS = 45, 240
"""Of a passage, which goes on to the end of its line but not to twice as many."""

Ints = npt.NDArray[np.int64]


class Reading(NamedTuple):
    """What one model makes of a text of N tokens."""

    nats: Tensor  # (N,): of what follows each token
    depth: Tensor  # (layers, N)
    effective: Tensor | None  # (layers, N): how far gates were open, summed over inner steps, mean over units


_readings: WeakKeyDictionary[Trained, dict[int, list[Reading]]] = WeakKeyDictionary()


def readings(run: Trained, tokens: int) -> list[Reading]:
    """What each of the run's models makes of so many tokens of the test text, read once."""
    kept = _readings.setdefault(run, {})
    if tokens not in kept:
        kept[tokens] = [read(model, text(run, tokens), lead(run)) for model in run.models]
    return kept[tokens]


def text(run: Trained, tokens: int) -> Split:
    """The first so many tokens of the test text, and what follows each, (1, N)."""
    run.recipe.data.check_trained_on(run.folder)  # type: ignore[attr-defined]  # these data are a text
    whole = analysis.split_for_test(run.recipe.data)
    side = columns(tokens)
    tokens = tokens // side * side  # columns have one length
    return whole.map(lambda each: each[:, :tokens])


def lead(run: Trained) -> Tensor:
    """What is read before columns: the beginning of the validation text, (1, at most LEAD)."""
    return run.recipe.data.load().validation.x[:, :LEAD].long()


def columns(tokens: int) -> int:
    return max(1, min(COLUMNS, tokens // LONG_COLUMN))


@torch.no_grad()
def read(model: LanguageModel, split: Split, lead: Tensor, max_depth: int | None = None) -> Reading:
    """From nothing to the end in one column; several start from the state that `lead` (1, T) leaves."""
    side, device = columns(split.x.size(1)), model.bias.device
    state, nats, depths, effective = None, [], [], []
    elastic = model.network.kind in ELASTIC
    if side > 1 and model.pointer is None:  # a pointer remembers words, and has none to start with
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


def tokens_to_read(runs: Sequence[Trained]) -> int:
    """As much of the test text as the slowest of these runs can read in bearable time, the same for all."""
    whole = min(analysis.split_for_test(run.recipe.data).x.size(1) for run in runs)
    bearable = min(int(WORK / (work(run.models[0]) * len(run.models))) for run in runs)
    return min(whole, max(bearable, 1000))


def work(model: LanguageModel) -> int:
    """About how many multiplications a token takes."""
    body = sum(parameter.numel() for parameter in model.body.parameters())
    again = 1 if model.network.kind == "RHN" else model.network.max_depth  # RHN has weights for every depth
    maps = [model.embedding.weight, model.narrowing, None if model.gated is None else model.gated.weight]
    return int(sum(each.numel() for each in maps if each is not None) + again * body)


def what_was_read(run: Trained, tokens: int) -> str:
    """In words."""
    whole = analysis.split_for_test(run.recipe.data).x.size(1)
    read = text(run, tokens).x.size(1)
    kind = "words" if run.models[0].tokens.level == "word" else "characters"
    # Numbers in a sentence, unlike those in a table, may stand at the end of a line.
    some, all_of = (count(number).replace(" ", "\N{NO-BREAK SPACE}") for number in (read, whole))
    part = f"all {all_of} {kind}" if read == whole else f"the first {some} of {all_of} {kind}"
    side = columns(tokens)
    how = (
        f"in {side} columns side by side, with words of the validation text before each" if side > 1 else "in order"
    )
    return f"Measured on {part} of the test text, read {how}."


def perplexities_and_depths(run: Trained, tokens: int, max_depth: int | None = None) -> list[tuple[float, float]]:
    """The perplexity and the mean depth of each of the run's models on so many tokens."""
    if max_depth is None:
        found = readings(run, tokens)
    else:
        found = [read(model, text(run, tokens), lead(run), max_depth) for model in run.models]
    return [(math.exp(each.nats.mean().item()), each.depth.double().mean().item()) for each in found]


def early_curve(run: Trained, tokens: int) -> EarlyCurve:
    """The perplexity when no word may go deeper than 1, 2, … inner steps, without training for it."""
    deepest = run.recipe.network.max_depth
    return analysis.early_curve(
        run,
        lambda run, cap: perplexities_and_depths(run, tokens, None if cap == deepest else cap),  # the last is none
    )


def histogram(run: Trained, tokens: int) -> DepthHistogram:
    """How often the run's models spent each depth, in all layers."""
    depths = torch.cat([reading.depth.flatten() for reading in readings(run, tokens)])
    counts = torch.bincount(depths, minlength=run.recipe.network.max_depth + 1).tolist()
    return DepthHistogram(run.label, counts, run.recipe.network.num_layers)


def by_frequency(run: Trained, tokens: int) -> WordGroups:
    """Words by how often the text trained on has them."""
    seen = occurrences(run.recipe.data.load().train, len(run.models[0].tokens))
    group = np.digitize(seen[text(run, tokens).x[0].numpy()], FREQUENCIES) - 1  # (N,)
    names = ["never", *(f"{span(low, high)} times" for low, high in _pairs(FREQUENCIES[1:]))]
    return _grouped(run, tokens, group, names, [short(low) for low in FREQUENCIES])


def occurrences(text: Split, known: int) -> Ints:
    """How often each of so many tokens occurs in a text, which may be larger than memory."""
    seen = np.zeros(known, np.int64)
    for piece in (*text.x[0].split(1 << 20), text.target[0, -1:]):
        seen += np.bincount(piece.numpy(), minlength=known)
    return seen


def by_place(run: Trained, tokens: int) -> WordGroups:
    """Words by their place in the sentence, or characters by that in the line, and its end by itself."""
    x = text(run, tokens).x[0].numpy()
    ends = x == _index(run, end_of_line(run.models[0].tokens))
    group = np.where(ends, len(PLACES), np.digitize(places(ends), PLACES) - 1)
    names = [f"place{'s' if high != low + 1 else ''} {span(low, high)}" for low, high in _pairs(PLACES)]
    return _grouped(run, tokens, group, [*names, "the end"], [*map(short, PLACES), "¶"])


def places(ends: npt.NDArray[np.bool_]) -> Ints:
    """Of each token, the how-manieth of its line it is, from 1 on, where lines end at `ends`, (N,)."""
    index = np.arange(len(ends))
    last = np.maximum.accumulate(np.where(ends, index, -1))
    found: Ints = index - np.concatenate([[-1], last[:-1]])
    return found


def _index(run: Trained, token: str) -> int:
    own = run.models[0].tokens
    return int(own.encode([token])[0]) if token in own else -1


def _pairs(edges: Sequence[int]) -> list[tuple[int, int | None]]:
    return list(zip(edges, [*edges[1:], None], strict=True))


def span(low: int, high: int | None) -> str:
    """From `low` to what comes before `high`."""
    if high is None:
        return f"{count(low)} or more"
    return count(low) if high == low + 1 else f"{count(low)}–{count(high - 1)}"


def short(number: int) -> str:
    for size, letter in ((10**9, "G"), (10**6, "M"), (1000, "k")):
        if number >= size:
            return f"{number // size}{letter}"
    return str(number)


def _grouped(run: Trained, tokens: int, group: Ints, names: Sequence[str], ticks: Sequence[str]) -> WordGroups:
    """The groups that there are words of; `group` (N,) has the number of each word's."""
    there = np.unique(group).tolist()
    deepest = run.recipe.network.max_depth
    counts = np.zeros((len(names), deepest + 1), np.int64)
    perplexity, follows, effective = [], [], []  # [model][group]
    for reading in readings(run, tokens):
        for depth in reading.depth.numpy():  # of each layer
            np.add.at(counts, (group, depth), 1)
        nats = reading.nats.numpy()
        own = np.concatenate([[math.nan], nats[:-1]])  # what a word itself was told with: none tells the first
        perplexity.append([_perplexity(own[group == each]) for each in there])
        follows.append([_perplexity(nats[group == each]) for each in there])
        if reading.effective is not None:
            effective.append([reading.effective.numpy()[:, group == each].mean() for each in there])
    return WordGroups(
        run.label,
        [names[each] for each in there],
        [ticks[each] for each in there],
        counts[there].tolist(),
        [statistics.fmean(models) for models in zip(*perplexity, strict=True)],
        [statistics.fmean(models) for models in zip(*follows, strict=True)],
        run.recipe.network.num_layers,
        [statistics.fmean(models) for models in zip(*effective, strict=True)] if effective else None,
    )


def _perplexity(nats: npt.NDArray[np.float64]) -> float:
    known = nats[np.isfinite(nats)]
    return math.exp(known.mean()) if len(known) else math.nan


def passages(run: Trained, tokens: int) -> list[Passage]:
    """Pieces of the test text from evenly spaced places in it on, as the run's first model reads them; with how far
    its gates were open, where all words take the same number of inner steps."""
    x, reading = text(run, tokens).x[0], readings(run, tokens)[0]
    ends = (x == _index(run, end_of_line(run.models[0].tokens))).nonzero().flatten().tolist()
    known = run.models[0].tokens
    depth, taken = reading.depth.double().mean(0), None
    # Values that have no finite gates, however they came to be read, have none to show.
    effective = reading.effective if reading.effective is not None and reading.effective.isfinite().all() else None
    if effective is not None and bool((depth == depth[0]).all()):
        depth, taken = effective.mean(0), depth[0].item()
    chance = [None, *(-reading.nats[:-1]).exp().tolist()]
    return [
        Passage(
            label=run.label,
            tokens=[known.tokens[number] for number in x[piece].tolist()],
            depth=depth[piece].tolist(),
            chance=chance[piece],
            end=end_of_line(run.models[0].tokens),
            spaced=known.level == "word",
            taken=taken,
        )
        for piece in pieces(ends, len(x), WORDS if known.level == "word" else CHARACTERS)
    ]


def pieces(ends: Sequence[int], tokens: int, size: int) -> list[slice]:
    """Whole lines of about `size` tokens together, from `PASSAGES` places of the text on; `ends` are those of its
    lines."""
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
