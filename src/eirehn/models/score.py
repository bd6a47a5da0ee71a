"""The surprisal of each token of a text under a language model, and the depth it takes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .._internal.files import RunError
from ..data.vocabulary import Vocabulary, characters, end_of_line, words
from .config import ELASTIC
from .generate import beginning
from .language import LanguageModel

WINDOW = 1024
"""Tokens read at once, over all lines side by side: each has as many logits as there are words."""
LINES = 32
"""Lines side by side, where each is a text of its own."""


class Scored(NamedTuple):
    line: int
    place: int
    """Of its line; both from 1 on."""
    token: str
    """As it stands in the text."""
    known: bool
    """Whether the vocabulary has it; otherwise it is read as `<unk>`, whose chance the bits are of."""
    bits: float
    """How unexpected it came after all before it: minus the binary logarithm of its chance."""
    depth: float
    """Inner steps, the mean over layers, taken once it had been read."""
    open: float | None
    """How far elastic gates were open then, summed over the inner steps, the mean over units and layers."""


def text_tokens(path: Path, level: str, encoding: str = "utf-8") -> Iterator[str]:
    """The words of a text, `<eos>` after each line, or its characters; read a piece at a time."""
    pieces = words(path, encoding) if level == "word" else (map(chr, each) for each in characters(path, encoding))
    token = None
    for token in chain.from_iterable(pieces):
        yield token
    if token is None:
        raise RunError(f"{path} is empty")


@torch.no_grad()
def score(
    model: LanguageModel,
    vocabulary: Vocabulary,
    tokens: Iterable[str],
    *,
    apart: bool = False,
    max_depth: int | None = None,
) -> Iterator[Scored]:
    """Each of `tokens`, read in order, with the state carried on; or, with `apart`, each line as a text of its own.

    A line begins before a text, as texts that were learned from begin. Texts of any length are read in pieces.

    >>> scored = score(model, model.tokens, "the company said <eos>".split())  # doctest: +SKIP
    """
    if isinstance(tokens, str) and vocabulary.level == "word":
        raise TypeError("tokens should be words, got: str")
    model = model.eval()
    line, place = 1, 0
    end = end_of_line(vocabulary)
    elastic = model.network.kind in ELASTIC
    for token, (bits, depth, opened) in _read(model, vocabulary, tokens, max_depth, apart):
        place += 1
        yield Scored(line, place, token, token in vocabulary, bits, depth, opened if elastic else None)
        if token == end:
            line, place = line + 1, 0


def _read(
    model: LanguageModel, vocabulary: Vocabulary, tokens: Iterable[str], max_depth: int | None, apart: bool
) -> Iterator[tuple[str, list[float]]]:
    """Each token with its bits, its depth and, in elastic networks, how far gates were open."""
    if not apart:
        reader, left = _Reader(model, vocabulary, 1, max_depth), iter(tokens)
        while window := list(islice(left, WINDOW)):
            yield from zip(window, reader.read(_numbers(vocabulary, [window]))[0].tolist(), strict=True)
        return
    for side in _sides(_lines(tokens, end_of_line(vocabulary))):
        reader = _Reader(model, vocabulary, len(side), max_depth)
        pieces = _numbers(vocabulary, side).split(max(1, WINDOW // len(side)), 1)
        for line, found in zip(side, torch.cat([reader.read(each) for each in pieces], 1).tolist(), strict=True):
            yield from zip(line, found, strict=False)  # `found` goes on to the end of the longest


def _lines(tokens: Iterable[str], end: str) -> Iterator[list[str]]:
    line: list[str] = []
    for token in tokens:
        line.append(token)
        if token == end:
            yield line
            line = []
    if line:
        yield line


def _sides(lines: Iterable[list[str]]) -> Iterator[list[list[str]]]:
    """Lines to be read side by side, in their order: few where one is long, or most would be filling."""
    side: list[list[str]] = []
    for line in lines:
        longest, tokens = max(map(len, [*side, line])), sum(map(len, [*side, line]))
        if len(side) == LINES or (side and longest * (len(side) + 1) > 2 * tokens + WINDOW):
            yield side
            side = []
        side.append(line)
    if side:
        yield side


def _numbers(vocabulary: Vocabulary, side: Sequence[Sequence[str]]) -> Tensor:
    """Of lines side by side, (B, T), the short ones filled up with what is not looked at."""
    longest = max(map(len, side))
    filled = [[*vocabulary.encode(line).tolist(), *[vocabulary.unk] * (longest - len(line))] for line in side]
    return torch.tensor(filled)


class _Reader:
    """Reads B texts on, side by side."""

    def __init__(self, model: LanguageModel, vocabulary: Vocabulary, batch: int, max_depth: int | None) -> None:
        self.model, self.max_depth = model, max_depth
        self.logits = model.bias.new_zeros(batch, 1, len(vocabulary))  # before anything is read all are alike
        self.state = None
        self.elastic = model.network.kind in ELASTIC
        if begun := beginning(vocabulary):
            self.read(torch.tensor([begun] * batch))

    def read(self, tokens: Tensor) -> Tensor:
        """Bits, depths and, in elastic networks, how far gates were open, (B, T, 3), of `tokens` (B, T)."""
        tokens = tokens.to(self.logits.device)
        outcome = self.model.run(tokens, self.state, max_depth=self.max_depth, with_cost=self.elastic)
        logits = torch.cat([self.logits, outcome.prediction[:, :-1].to(self.logits)], 1)  # (B, T, V)
        self.logits, self.state = outcome.prediction[:, -1:].to(self.logits), outcome.state
        nats = F.cross_entropy(logits.flatten(0, 1), tokens.flatten(), reduction="none").view(tokens.shape)
        if not nats.isfinite().all():
            raise ValueError("the logits are not finite: the training of this model has diverged")
        cost = outcome.depth if outcome.cost is None else outcome.cost
        bits = nats.double().abs() / math.log(2)
        return torch.stack([bits, outcome.depth.double().mean(0), cost.double().mean(0)], -1)
