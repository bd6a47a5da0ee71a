"""Text from a language model, token by token."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._internal.checks import finite, positive_int, usable_device
from .._internal.files import RunError
from ..data.vocabulary import EOS, Vocabulary, end_of_line
from .io import load
from .language import LanguageModel

SHALLOW_TO_DEEP = ("grey62", "cyan", "green", "yellow", "dark_orange", "red")
SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


class Token(NamedTuple):
    text: str
    depth: float
    """Inner steps, the mean over layers, taken when the model read it."""
    given: bool
    """Whether it is of the prompt."""


class Prompt(NamedTuple):
    ids: list[int]
    unknown: list[str]
    """What was given and is not in the vocabulary, each once."""


class Piece(NamedTuple):
    """A part of a text as it is printed, and its colour in a terminal."""

    text: str
    style: str | None = None


def trained_language_model(
    run: str | os.PathLike[str], *, which: str = "best", device: str | None = None
) -> tuple[LanguageModel, Vocabulary]:
    """The language model of a run folder and its vocabulary; on a GPU where there is one."""
    model = load(run, which=which, device=usable_device(device))
    if not isinstance(model, LanguageModel):
        raise RunError(f"{os.fspath(run)} holds no language model")
    assert model.tokens is not None
    return model, model.tokens


def pieces(tokens: Iterable[Token], level: str, *, depth_of: int | None = None) -> Iterator[Piece]:
    """A text as it comes: words with spaces between them, lines ended at `<eos>`; or characters.

    With `depth_of`, the depth there could be, each has the depth it took below it, and a colour by that.
    """
    line_begins = True
    for token in tokens:
        word = "\n" if level == "word" and token.text == EOS else token.text
        space = "" if line_begins or word == "\n" or level == "char" else " "
        line_begins = word.endswith("\n")
        if depth_of is None:
            yield Piece(space + word)
            continue
        mark = f"{token.depth:.1f}".removesuffix(".0").translate(SUBSCRIPTS)
        shown = f" ¶{mark}\n" if word == "\n" else f"{space}{word}{mark}"
        yield Piece(shown, _style(token.depth, depth_of))


def _style(depth: float, most: int) -> str:
    last = len(SHALLOW_TO_DEEP) - 1
    return SHALLOW_TO_DEEP[min(last, round(last * max(0.0, depth - 1) / max(1, most - 1)))]


def read_prompt(text: str, vocabulary: Vocabulary) -> Prompt:
    """The numbers of a prompt's tokens; of those not known, that of `<unk>`."""
    tokens = text.replace("\n", f" {EOS} ").split() if vocabulary.level == "word" else list(text)
    unknown = dict.fromkeys(token for token in tokens if token not in vocabulary)
    return Prompt([int(each) for each in vocabulary.encode(tokens)], list(unknown))


@torch.no_grad()
def generate(
    model: LanguageModel,
    vocabulary: Vocabulary,
    prompt: Sequence[int] = (),
    *,
    tokens: int = 100,
    temperature: float = 1.0,
    top_p: float = 1.0,
    seed: int = 0,
    max_depth: int | None = None,
) -> Iterator[Token]:
    """The prompt and then `tokens` more, each drawn from what the model predicts after all before it.

    The state is carried on, so that a token costs the same wherever it stands. The same seed gives the same text.
    A line begins before the prompt, as training texts begin. Temperature 0 takes the likeliest token. With `top_p`
    below 1 only the likeliest tokens are drawn, as few as have that probability together (nucleus sampling,
    Holtzman et al. 2020).

    >>> tokens = generate(model, model.tokens, read_prompt("the company said", model.tokens).ids)  # doctest: +SKIP
    """
    positive_int("tokens", tokens)
    finite("temperature", temperature, least=0.0)
    if not 0 < finite("top_p", top_p) <= 1:
        raise ValueError(f"top_p must be above 0 and at most 1, got {top_p}")
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed must be at least 0 and below 2**63, got {seed}")
    random = torch.Generator().manual_seed(seed)
    model = model.eval()
    state: Any = None
    logits = torch.zeros(len(vocabulary), dtype=torch.float64)  # before anything is read all are equally likely

    def read(index: int) -> float:
        """The depth taken; one call of one shape for each token."""
        nonlocal state, logits
        outcome = model.run(torch.tensor([[index]], device=model.bias.device), state, max_depth=max_depth)
        state, logits = outcome.state, outcome.prediction[0, 0].double().cpu()  # (V,)
        return outcome.depth.double().mean().item()

    for index in beginning(vocabulary):
        read(index)
    for index in prompt:
        yield Token(vocabulary.tokens[index], read(index), True)
    for _ in range(tokens):
        index = _draw(logits, temperature, top_p, random)
        yield Token(vocabulary.tokens[index], read(index), False)


def beginning(vocabulary: Vocabulary) -> list[int]:
    """What is read before a text, so that it begins as a line does; nothing where lines have no end."""
    mark = end_of_line(vocabulary)
    return [int(each) for each in vocabulary.encode([mark])] if mark in vocabulary else []


def _draw(logits: Tensor, temperature: float, top_p: float, random: torch.Generator) -> int:
    if not logits.isfinite().all():
        raise ValueError("the logits are not finite: the training of this model has diverged")
    if temperature == 0:
        return int(logits.argmax())
    chances = ((logits - logits.max()) / temperature).softmax(0)  # the likeliest, where this is nearly 0
    if top_p < 1:
        ordered, places = chances.sort(descending=True, stable=True)
        chances = chances.index_fill(0, places[ordered.cumsum(0) - ordered >= top_p], 0.0)
    return int(torch.multinomial(chances, 1, generator=random))
