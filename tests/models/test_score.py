"""Scoring a text, against each token's chance worked out from the whole text so far."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from eirehn._internal.files import RunError
from eirehn.data.vocabulary import Vocabulary
from eirehn.models import LanguageModel, LanguageNetwork
from eirehn.models import score as scoring
from eirehn.models.score import score, text_tokens

WORDS = Vocabulary("word", ("<unk>", "<eos>", "a", "b", "c"))


TEXT = ["a", "b", "zebra", "<eos>", "<eos>", "c", "a", "a", "<eos>", "b"]


NETWORKS = {
    "elastic": LanguageNetwork("EIREHN", 6, max_depth=3),
    "two layers": LanguageNetwork("SREHN", 6, max_depth=3, num_layers=2),
    "fixed": LanguageNetwork("RHN", 6, max_depth=2),
    "LSTM": LanguageNetwork("LSTM", 6),
    "pointer": LanguageNetwork("EIREHN", 6, max_depth=3, pointer=4),
}


def make(network: LanguageNetwork, vocabulary: Vocabulary = WORDS) -> LanguageModel:
    torch.manual_seed(0)
    model = LanguageModel(network, len(vocabulary)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model  # in training mode, as it is made


def chance(model: LanguageModel, vocabulary: Vocabulary, before: list[str], token: str) -> float:
    """Of `token` after all `before`, read at once from nothing."""
    ids = torch.from_numpy(vocabulary.encode(before)).long()[None]
    with torch.no_grad():
        last = model.eval()(ids)[0, -1]
    return float(last.softmax(-1)[int(vocabulary.encode([token])[0])])


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("window", [1, 3, 1024])
def test_chances_of_a_text(kind: str, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "WINDOW", window)
    model = make(NETWORKS[kind])
    found = list(score(model, WORDS, iter(TEXT)))
    assert [each.token for each in found] == TEXT
    assert [each.known for each in found] == [token != "zebra" for token in TEXT]
    assert [(each.line, each.place) for each in found[:6]] == [(1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (3, 1)]
    for at, each in enumerate(found):
        expected = chance(model, WORDS, ["<eos>", *TEXT[:at]], each.token)
        assert 2**-each.bits == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("lines", [1, 2, 32])
def test_lines_as_texts_of_their_own(kind: str, lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "LINES", lines)
    monkeypatch.setattr(scoring, "WINDOW", 3 * lines)  # three tokens of each line at a time
    model = make(NETWORKS[kind])
    found = list(score(model, WORDS, TEXT, apart=True))
    assert [each.token for each in found] == TEXT
    line: list[str] = []
    for each in found:
        assert 2**-each.bits == pytest.approx(chance(model, WORDS, ["<eos>", *line], each.token), rel=1e-9)
        assert each.place == len(line) + 1
        line = [] if each.token == "<eos>" else [*line, each.token]
    assert found[-1].line == 4


def test_a_long_line_beside_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not what all are filled up to: so few numbers are read beside those of the text, whatever the order."""
    monkeypatch.setattr(scoring, "WINDOW", 64)
    model, run = make(NETWORKS["elastic"]), LanguageModel.run
    read = []

    def counted(self: LanguageModel, tokens: torch.Tensor, *rest: Any, **options: Any) -> Any:
        read.append(tokens.numel())
        return run(self, tokens, *rest, **options)

    monkeypatch.setattr(LanguageModel, "run", counted)
    short, long = ["a", "<eos>"], [*["b"] * 700, "<eos>"]
    text = [*short * 40, *long, *short * 40, *long, *long]
    assert [each.token for each in score(model, WORDS, text, apart=True)] == text
    assert sum(read) < 2.5 * len(text)
    assert max(read) <= 64


@pytest.mark.parametrize("apart", [False, True])
def test_depths_are_those_of_the_token_that_was_read(apart: bool) -> None:
    network = NETWORKS["two layers"]
    model = make(network)
    found = list(score(model, WORDS, TEXT[:4], apart=apart))
    ids = torch.from_numpy(WORDS.encode(["<eos>", *TEXT[:4]])).long()[None]
    with torch.no_grad():
        outcome = model.eval().run(ids, with_cost=True)
    assert outcome.cost is not None
    assert [each.depth for each in found] == outcome.depth.double().mean(0)[0, 1:].tolist()
    assert [each.cost for each in found] == pytest.approx(outcome.cost.mean(0)[0, 1:].tolist(), rel=1e-9)
    assert len({each.cost for each in found}) == 4
    assert {each.depth for each in score(model, WORDS, TEXT, apart=apart, max_depth=1)} <= {0.0, 0.5, 1.0}
    assert next(score(make(NETWORKS["fixed"]), WORDS, TEXT, apart=apart)).cost is None


def test_characters() -> None:
    known = Vocabulary("char", ("<unk>", "a", "b", "\n"))
    model = make(NETWORKS["elastic"], known)
    text = list("ab\nxa")
    found = list(score(model, known, text))
    assert [(each.line, each.place) for each in found] == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2)]
    for at, each in enumerate(found):
        assert 2**-each.bits == pytest.approx(chance(model, known, ["\n", *text[:at]], each.token), rel=1e-9)
    endless = Vocabulary("char", ("<unk>", "a", "b"))
    first, second = score(make(NETWORKS["elastic"], endless), endless, "ab")
    assert first.bits == pytest.approx(math.log2(3))  # before anything is read all are alike
    assert 2**-second.bits == pytest.approx(chance(make(NETWORKS["elastic"], endless), endless, ["a"], "b"))


def test_a_certain_word_and_what_cannot_be_scored() -> None:
    model = make(NETWORKS["elastic"])
    with pytest.raises(TypeError, match="tokens should be words, got: str"):
        next(score(model, WORDS, "a b"))
    model.bias.data[2] = 1e4
    assert str(next(score(model, WORDS, ["a"])).bits) == "0.0"  # and not -0.0
    model.bias.data.fill_(math.nan)
    with pytest.raises(ValueError, match="diverged"):
        list(score(model, WORDS, TEXT))


def test_texts(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("a b\n\nc")
    assert list(text_tokens(path, "word")) == ["a", "b", "<eos>", "<eos>", "c", "<eos>"]
    assert list(text_tokens(path, "char")) == list("a b\n\nc")
    path.write_bytes(b"")
    for level in ("word", "char"):
        with pytest.raises(RunError, match="text is empty"):
            list(text_tokens(path, level))
