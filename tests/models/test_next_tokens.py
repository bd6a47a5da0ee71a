"""The tokens after each line, against each line read alone."""

from __future__ import annotations

import pytest
import torch

from eirehn.data.vocabulary import Vocabulary
from eirehn.models import LanguageModel, LanguageNetwork, next_tokens, score

WORDS = Vocabulary("word", ("<unk>", "<eos>", "a", "b", "c"))
LETTERS = Vocabulary("char", ("<unk>", "a", "b", "c"))
NETWORKS = {
    "elastic": LanguageNetwork("EIREHN", 6, max_depth=3, num_layers=2),
    "LSTM": LanguageNetwork("LSTM", 6),
    "pointer": LanguageNetwork("EIREHN", 6, max_depth=3, pointer=4),
}


def make(network: LanguageNetwork, vocabulary: Vocabulary) -> LanguageModel:
    torch.manual_seed(0)
    model = LanguageModel(network, len(vocabulary)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model  # in training mode, as it is made


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("window", [3, 1024])
def test_each_line_is_a_text_of_its_own(kind: str, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next_tokens, "WINDOW", window)
    monkeypatch.setattr(score, "LINES", 2)
    model = make(NETWORKS[kind], WORDS)
    lines = [["a", "b", "zebra", "c", "c"], [], ["b"], ["c", "a", "a", "a"]]
    text = [token for line in lines for token in [*line, "<eos>"]][:-1]  # the last line does not end
    for most in (None, 1) if kind == "elastic" else (None,):
        found = list(next_tokens.next_tokens(model, WORDS, text, top=3, max_depth=most))
        assert [(each.line, each.rank) for each in found] == [
            (line, rank) for line in (1, 2, 3, 4) for rank in (1, 2, 3)
        ]
        for line, tokens in enumerate(lines):
            ids = torch.from_numpy(WORDS.encode(["<eos>", *tokens])).long()[None]
            with torch.no_grad():
                outcome = model.eval().run(ids, max_depth=most)
            likely = outcome.prediction[0, -1].softmax(-1).topk(3)
            own = found[3 * line : 3 * line + 3]
            assert [each.token for each in own] == [WORDS.tokens[index] for index in likely.indices]
            assert [each.probability for each in own] == pytest.approx(likely.values.tolist(), rel=1e-9)
            assert own[0].depth == pytest.approx(outcome.depth.double().mean().item())


def test_no_token_before_the_first() -> None:
    """A vocabulary without ends of lines has nothing to begin with: all tokens are equally likely."""
    model = make(NETWORKS["LSTM"], LETTERS)
    found = list(next_tokens.next_tokens(model, LETTERS, "\nab", top=9))
    assert [each.probability for each in found[:4]] == pytest.approx([1 / 4] * 4)
    assert [each.line for each in found] == [1, 1, 1, 1, 2, 2, 2, 2]


def test_mistakes() -> None:
    model = make(NETWORKS["LSTM"], WORDS)
    with pytest.raises(ValueError, match="top must be greater than zero"):
        list(next_tokens.next_tokens(model, WORDS, ["a"], top=0))
    model.bias.data.fill_(torch.nan)
    with pytest.raises(ValueError, match="the logits are not finite"):
        list(next_tokens.next_tokens(model, WORDS, ["a"]))
