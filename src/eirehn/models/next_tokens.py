"""The most probable tokens after each line of a text under a language model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._internal.checks import positive_int
from ..data.vocabulary import Vocabulary, end_of_line
from .generate import beginning
from .language import LanguageModel
from .score import WINDOW, line_batches, lines_of, token_indices


class NextToken(NamedTuple):
    """A token that may follow a line of a text, see `next_tokens`.

    Examples:
        >>> from eirehn.models.next_tokens import NextToken
        >>> NextToken(line=1, rank=1, token="said", probability=0.4, depth=2.5).token
        'said'
    """

    line: int
    """Line of the text, from 1."""
    rank: int
    """1 for the most probable token."""
    token: str
    """The token."""
    probability: float
    """Its probability."""
    depth: float
    """Inner steps taken to read the line, the mean over its tokens and over layers."""


@torch.no_grad()
def next_tokens(
    model: LanguageModel,
    vocabulary: Vocabulary,
    tokens: Iterable[str],
    *,
    top: int = 5,
    max_depth: int | None = None,
) -> Iterator[NextToken]:
    """Predicts which tokens follow each line of a text. Each line is read as a text of its own.

    Args:
        model: the language model; it is set to evaluation mode.
        vocabulary: that of the model, `model.tokens` of a model from `eirehn.load`.
        tokens: the text, as `eirehn.models.score.text_tokens` reads it.
        top: the number of tokens for each line. Default: 5.
        max_depth: most inner steps of a time step. Default: the network's own.

    Yields:
        `top` of `NextToken` for each line, the most probable first.

    Raises:
        ValueError: if the logits are not finite.

    Examples:
        >>> from eirehn.models.next_tokens import next_tokens
        >>> model = eirehn.load("runs/text")
        >>> found = list(next_tokens(model, model.tokens, "the company <eos> the <eos>".split(), top=3))
        >>> [(each.line, each.rank) for each in found]
        [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)]
    """
    top = min(positive_int("top", top), len(vocabulary))
    model, end, number = model.eval(), end_of_line(vocabulary), 0
    for batch in line_batches(lines_of(tokens, end)):
        given = [line[:-1] if line[-1] == end else line for line in batch]
        logits, depths = _read(model, vocabulary, given, max_depth)
        if not logits.isfinite().all():
            raise ValueError("the logits are not finite: the training of this model has diverged")
        likely = logits.softmax(-1).topk(top)
        for chances, indices, depth in zip(*(each.tolist() for each in (*likely, depths)), strict=True):
            number += 1
            for rank, (chance, index) in enumerate(zip(chances, indices, strict=True), 1):
                yield NextToken(number, rank, vocabulary.tokens[index], chance, depth)


def _read(
    model: LanguageModel, vocabulary: Vocabulary, lines: Sequence[Sequence[str]], max_depth: int | None
) -> tuple[Tensor, Tensor]:
    """The logits after each line, (B, V), and its mean depth, (B,), 0 if there is nothing to read."""
    begun = [vocabulary.tokens[index] for index in beginning(vocabulary)]
    whole = [[*begun, *line] for line in lines]
    ends = torch.tensor([len(line) for line in whole])  # (B,)
    found = torch.zeros(len(lines), len(vocabulary), dtype=torch.float64)  # all equally likely
    depths, first = torch.zeros(len(lines), dtype=torch.float64), 0
    if not ends.any():
        return found, depths
    state: Any = None
    for piece in token_indices(vocabulary, whole).split(max(1, WINDOW // len(lines)), 1):
        outcome = model.run(piece.to(model.bias.device), state, max_depth=max_depth)
        state = outcome.state
        inside = torch.arange(first, first + piece.size(1)) < ends[:, None]  # (B, T)
        depths += (outcome.depth.double().mean(0).cpu() * inside).sum(1)
        ending = (ends > first) & (ends <= first + piece.size(1))  # (B,): lines that end in this piece
        here = ending.nonzero().flatten()
        found[here] = outcome.prediction[here, ends[here] - 1 - first].double().cpu()
        first += piece.size(1)
    return found, depths / ends.clamp(min=1)
