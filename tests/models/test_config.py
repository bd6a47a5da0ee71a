"""Networks as they are described: what cannot be is refused, and model.json of version 0.1 is read."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from eirehn._internal.files import RunError
from eirehn.models import LanguageNetwork, SequenceNetwork
from eirehn.models.config import network_fields


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


@pytest.mark.parametrize("network", [SequenceNetwork("LSTM", 5, shortcut=True), LanguageNetwork("RHN", pointer=3)])
def test_networks_of_version_01(network: Any) -> None:
    """Fields of other tasks, and such as are gone, are read over only where they did nothing."""
    idle = {"pooling": "last", "tied": True, "mixture": 1, "gated_output": False}
    old = idle | asdict(network)
    assert type(network)(**network_fields(type(network), old)) == network
    with pytest.raises(RunError, match=r"mixture 2 is of eirehn 0\.1"):
        network_fields(type(network), {**old, "mixture": 2})
