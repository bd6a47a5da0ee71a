"""Texts that a trained language model writes."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from helpers.language import chain

import eirehn
from eirehn.data.vocabulary import Vocabulary
from eirehn.models.generate import Token, generate, pieces, read_prompt


def test_seeds_and_temperatures(language_run: Path) -> None:
    """The same seed writes the same text, temperatures near zero the likeliest, and diverged models none."""
    model = eirehn.load(language_run)

    def text(seed: int, temperature: float = 1.0) -> list[str]:
        drawn = generate(model, model.tokens, [3], tokens=60, seed=seed, temperature=temperature)
        return [token.text for token in drawn]

    assert text(0) == text(0)
    assert text(0) != text(1)
    assert text(0, temperature=0.0) == text(1, temperature=0.0) == text(0, temperature=1e-320)
    model.bias.data.fill_(math.nan)
    for temperature in (0.0, 1.0):
        with pytest.raises(ValueError, match="diverged"):
            text(0, temperature)


def test_what_is_written_is_what_the_model_expects(language_run: Path) -> None:
    """Token by token with the state carried on, as the model has it for the whole text, and by its chances."""
    model = eirehn.load(language_run)
    drawn = list(generate(model, model.tokens, [2, 5], tokens=12, temperature=0.0))
    ids = [int(each) for each in model.tokens.encode(["<eos>", *(token.text for token in drawn)])]
    with torch.no_grad():
        logits = model(torch.tensor([ids]))[0]
    assert [token.given for token in drawn] == [True] * 2 + [False] * 12
    for at, index in enumerate(ids[3:], 2):
        assert logits[at, index] == pytest.approx(logits[at].max().item(), abs=1e-5)
    assert all(token.depth == 2 for token in drawn)
    # The words of a chain follow each other as they do in the text that was learned.
    words = [token.text for token in generate(model, model.tokens, tokens=3000, seed=1) if token.text != "<eos>"]
    real = chain(6000, 0)
    allowed = set(pairwise(real))
    followed = [pair in allowed for pair in pairwise(words)]
    assert sum(followed) / len(followed) > 0.8


def test_only_the_likeliest_are_drawn(language_run: Path) -> None:
    """As few as have the chance asked for, each by its share in that; of a chance of 1 all, as without."""
    model = eirehn.load(language_run)
    with torch.no_grad():
        start = torch.from_numpy(model.tokens.encode(["<eos>", "w1"])).long()[None]
        chances = model(start)[0, -1].double().softmax(-1)
    ordered = chances.sort(descending=True)
    few = int((ordered.values.cumsum(0) < 0.8).sum()) + 1
    assert 1 < few < 6
    prompt = read_prompt("w1", model.tokens).ids

    def drawn(seed: int, top_p: float) -> int:
        token = list(generate(model, model.tokens, prompt, tokens=1, seed=seed, top_p=top_p))[-1]
        return int(model.tokens.encode([token.text])[0])

    counts = Counter(drawn(seed, 0.8) for seed in range(300))
    assert set(counts) == set(ordered.indices[:few].tolist())
    share = float(ordered.values[0] / ordered.values[:few].sum())
    assert counts[int(ordered.indices[0])] / 300 == pytest.approx(share, abs=0.1)
    assert {drawn(seed, 1e-9) for seed in range(5)} == {int(ordered.indices[0])}
    texts = [
        [each.text for each in generate(model, model.tokens, tokens=50, **given)] for given in ({}, {"top_p": 1})
    ]
    assert texts[0] == texts[1]
    for wrong in (0.0, -1.0, 1.5, math.nan):
        with pytest.raises(ValueError, match="top_p must be"):
            next(generate(model, model.tokens, top_p=wrong))


def test_lines_and_depths_as_they_are_printed() -> None:
    tokens = [Token("a", 1.0, True), Token("b", 2.5, False), Token("<eos>", 4.0, False), Token("c", 2.0, False)]
    assert "".join(piece.text for piece in pieces(tokens, "word")) == "a b\nc"
    shown = list(pieces(tokens, "word", depth_of=4))
    assert "".join(piece.text for piece in shown) == "a₁ b₂.₅ ¶₄\nc₂"
    assert shown[0].style != shown[2].style
    letters = [Token("a", 1.0, True), Token("\n", 1.0, True), Token("b", 1.0, True)]
    assert "".join(piece.text for piece in pieces(letters, "char")) == "a\nb"


def test_a_prompt_of_characters() -> None:
    vocabulary = Vocabulary("char", ("<unk>", "a", "b", "\n"))
    assert read_prompt("abz a", vocabulary) == ([1, 2, 0, 0, 1], ["z", " "])
