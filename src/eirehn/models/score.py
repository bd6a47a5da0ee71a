"""The surprisal of each token of a text under a language model, and the depth taken for it."""

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
"""Tokens read at once, over all lines of a batch; each has as many logits as the vocabulary has tokens."""
LINES = 32
"""Lines of a batch, if each is a text of its own."""


class Scored(NamedTuple):
    """A token of a text with its surprisal and its depth, see `score`.

    Examples:
        >>> from eirehn.models.score import Scored
        >>> Scored(line=1, place=3, token="said", known=True, bits=4.2, depth=2.0, cost=2.3).bits
        4.2
    """

    line: int
    """Line of the text, from 1."""
    place: int
    """Place in the line, from 1."""
    token: str
    """The token as the text has it."""
    known: bool
    """Whether it is in the vocabulary; otherwise the model reads `<unk>`, and the bits are those of `<unk>`."""
    bits: float
    """Its surprisal given all tokens before it: minus the binary logarithm of its probability."""
    depth: float
    """Inner steps taken to read it, the mean over layers."""
    cost: float | None
    """The depth before rounding (`return_cost` of a layer), the mean over layers; None for networks without an
    elastic gate."""


def text_tokens(path: Path, level: str, encoding: str = "utf-8") -> Iterator[str]:
    """Reads the tokens of a text file, piece by piece.

    Args:
        path: the file.
        level: `"word"`: words, with `<eos>` after each line; or `"char"`: characters.
        encoding: of the file. Default: `"utf-8"`.

    Yields:
        Each token.

    Raises:
        RunError: if the file is empty or cannot be read.

    Examples:
        >>> from pathlib import Path
        >>> from eirehn.models.score import text_tokens
        >>> _ = Path("text.txt").write_text("the company said")
        >>> list(text_tokens(Path("text.txt"), "word"))
        ['the', 'company', 'said', '<eos>']
    """
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
    """Scores each token of a text under a language model: its surprisal, and the depth taken to read it.

    The state is carried on from token to token. The text is read as the beginning of a line, in pieces, so it may
    be of any length.

    Args:
        model: the language model; it is set to evaluation mode.
        vocabulary: that of the model, `model.tokens` of a model from `eirehn.load`.
        tokens: the text, as `text_tokens` reads it.
        apart: whether each line is a text of its own. Default: `False`.
        max_depth: most inner steps of a time step. Default: the network's own.

    Yields:
        A `Scored` for each token.

    Raises:
        ValueError: if the logits are not finite.

    Examples:
        >>> from eirehn.models.score import score
        >>> model = eirehn.load("runs/text")
        >>> [scored.token for scored in score(model, model.tokens, "the company said <eos>".split())]
        ['the', 'company', 'said', '<eos>']
    """
    if isinstance(tokens, str) and vocabulary.level == "word":
        raise TypeError("tokens should be words, got: str")
    model = model.eval()
    line, place = 1, 0
    end = end_of_line(vocabulary)
    elastic = model.network.kind in ELASTIC
    for token, (bits, depth, cost) in _read(model, vocabulary, tokens, max_depth, apart):
        place += 1
        yield Scored(line, place, token, token in vocabulary, bits, depth, cost if elastic else None)
        if token == end:
            line, place = line + 1, 0


def _read(
    model: LanguageModel, vocabulary: Vocabulary, tokens: Iterable[str], max_depth: int | None, apart: bool
) -> Iterator[tuple[str, list[float]]]:
    """Each token with its bits, its depth and, for elastic networks, its depth before rounding."""
    if not apart:
        reader, left = _Reader(model, vocabulary, 1, max_depth), iter(tokens)
        while window := list(islice(left, WINDOW)):
            yield from zip(window, reader.read(token_indices(vocabulary, [window]))[0].tolist(), strict=True)
        return
    for side in line_batches(lines_of(tokens, end_of_line(vocabulary))):
        reader = _Reader(model, vocabulary, len(side), max_depth)
        pieces = token_indices(vocabulary, side).split(max(1, WINDOW // len(side)), 1)
        for line, found in zip(side, torch.cat([reader.read(each) for each in pieces], 1).tolist(), strict=True):
            yield from zip(line, found, strict=False)  # `found` is as long as the longest line


def lines_of(tokens: Iterable[str], end: str) -> Iterator[list[str]]:
    line: list[str] = []
    for token in tokens:
        line.append(token)
        if token == end:
            yield line
            line = []
    if line:
        yield line


def line_batches(lines: Iterable[list[str]]) -> Iterator[list[list[str]]]:
    """Batches of lines, in order: few lines if one of them is long, so that the batch is not mostly padding."""
    side: list[list[str]] = []
    for line in lines:
        longest, tokens = max(map(len, [*side, line])), sum(map(len, [*side, line]))
        if len(side) == LINES or (side and longest * (len(side) + 1) > 2 * tokens + WINDOW):
            yield side
            side = []
        side.append(line)
    if side:
        yield side


def token_indices(vocabulary: Vocabulary, side: Sequence[Sequence[str]]) -> Tensor:
    """The indices of the tokens of a batch of lines, (B, T), padded."""
    longest = max(map(len, side))
    filled = [[*vocabulary.encode(line).tolist(), *[vocabulary.unk] * (longest - len(line))] for line in side]
    return torch.tensor(filled)


class _Reader:
    """Reads B texts, piece by piece, with the state carried on."""

    def __init__(self, model: LanguageModel, vocabulary: Vocabulary, batch: int, max_depth: int | None) -> None:
        self.model, self.max_depth = model, max_depth
        self.logits = model.bias.new_zeros(batch, 1, len(vocabulary))  # all equally likely
        self.state = None
        self.elastic = model.network.kind in ELASTIC
        if begun := beginning(vocabulary):
            self.read(torch.tensor([begun] * batch))

    def read(self, tokens: Tensor) -> Tensor:
        """Bits, depths and, for elastic networks, depths before rounding, (B, T, 3), of `tokens` (B, T)."""
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
