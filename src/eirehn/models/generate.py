"""Generates text from a language model, token by token."""

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
    """A token of a generated text, see `generate`.

    Examples:
        >>> from eirehn.models.generate import Token
        >>> Token("said", depth=2.5, given=False).text
        'said'
    """

    text: str
    """The token."""
    depth: float
    """Inner steps taken to read it, the mean over layers."""
    given: bool
    """Whether it is from the prompt."""


class Prompt(NamedTuple):
    """A prompt as `read_prompt` returns it.

    Examples:
        >>> from eirehn.models.generate import Prompt
        >>> Prompt(ids=[3, 0], unknown=["Vinken"]).unknown
        ['Vinken']
    """

    ids: list[int]
    """Indices of its tokens."""
    unknown: list[str]
    """Its tokens that are not in the vocabulary, each once."""


class Piece(NamedTuple):
    """A part of a printed text, and its colour in a terminal."""

    text: str
    style: str | None = None


def trained_language_model(
    run: str | os.PathLike[str], *, which: str = "best", device: str | None = None
) -> tuple[LanguageModel, Vocabulary]:
    """The language model of a run folder and its vocabulary; on a GPU if there is one."""
    model = load(run, which=which, device=usable_device(device))
    if not isinstance(model, LanguageModel):
        raise RunError(f"{os.fspath(run)} holds no language model")
    assert model.tokens is not None
    return model, model.tokens


def pieces(tokens: Iterable[Token], level: str, *, depth_of: int | None = None) -> Iterator[Piece]:
    """A text in printed form: words with spaces between them and a new line at `<eos>`; or characters.

    With `depth_of`, the largest possible depth, each token has its depth as a subscript, and a colour by depth.
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
    """Splits a prompt into tokens.

    Args:
        text: the prompt; a new line in it is `<eos>` for a vocabulary of words.
        vocabulary: that of the model, `model.tokens` of a model from `eirehn.load`.

    Returns:
        The indices of its tokens, that of `<unk>` for unknown ones, and the unknown tokens.

    Examples:
        >>> from eirehn.models.generate import read_prompt
        >>> model = eirehn.load("runs/text")
        >>> read_prompt("the xylophone", model.tokens).unknown
        ['xylophone']
    """
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
    """Generates text: the prompt, and then `tokens` more, each drawn from the model's prediction.

    The state is carried on, so that a token takes the same time wherever it is in the text. The prompt is read as
    the beginning of a line.

    Args:
        model: the language model; it is set to evaluation mode.
        vocabulary: that of the model, `model.tokens` of a model from `eirehn.load`.
        prompt: indices of the first tokens, see `read_prompt`. Default: none.
        tokens: the number of tokens to generate. Default: 100.
        temperature: divides the logits; 0 takes the most likely token. Default: 1.
        top_p: draws from the most likely tokens only, as few as have this probability together (nucleus sampling,
            Holtzman et al. 2020). Default: 1.
        seed: of the random numbers: the same seed gives the same text. Default: 0.
        max_depth: most inner steps of a time step. Default: the network's own.

    Yields:
        A `Token` for each token of the prompt and for each one generated.

    Raises:
        ValueError: if an argument is out of range, or the logits are not finite.

    Examples:
        >>> from eirehn.models.generate import generate, read_prompt
        >>> model = eirehn.load("runs/text")
        >>> prompt = read_prompt("the company", model.tokens).ids
        >>> text = [token.text for token in generate(model, model.tokens, prompt, tokens=5)]
        >>> text[:2], len(text)
        (['the', 'company'], 7)
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
    logits = torch.zeros(len(vocabulary), dtype=torch.float64)  # before the first token all are equally likely

    def read(index: int) -> float:
        """Reads a token and returns its depth."""
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
    """The tokens read before a text, so that it begins as a line does: the end of a line, if the vocabulary has
    it."""
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
