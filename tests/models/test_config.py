"""Networks that cannot be are refused where they are described."""

from __future__ import annotations

from typing import Any

import pytest

from eirehn.models import LanguageNetwork, SequenceNetwork


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (SequenceNetwork, {"kind": "QRNN"}, "kind must be one of RNN, GRU, LSTM"),
        (SequenceNetwork, {"hidden_size": 0}, "hidden_size must be greater than zero"),
        (SequenceNetwork, {"pooling": "best"}, "pooling must be one of last, mean, got 'best'"),
        (SequenceNetwork, {"kind": "LSTM", "start": {"alpha": 0.1}}, "LSTM takes weight_bound only"),
        (LanguageNetwork, {"embedding_size": 0}, "embedding_size must be greater than zero"),
        (LanguageNetwork, {"embedding_size": "3"}, "embedding_size"),
        (LanguageNetwork, {"embedding_size": 2.5}, "embedding_size"),
        (LanguageNetwork, {"embedding_size": True}, "embedding_size"),
        (LanguageNetwork, {"pointer": -1}, "pointer must be greater than zero"),
        (LanguageNetwork, {"calibrated": "yes"}, "calibrated"),
        (LanguageNetwork, {"word_dropout": 1.5}, "word_dropout"),
    ],
)
def test_networks_that_cannot_be(kind: type, given: dict[str, Any], said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        kind(**given)
