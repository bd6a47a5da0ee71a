"""Configs of models: the recurrent layers, and what models of sequences and of language add."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from .._internal.checks import boolean, one_of, positive_int, probability
from .._internal.files import RunError
from ..cells.weight_update import RENAMED

SHALLOW = ("RNN", "GRU", "LSTM")
FIXED = ("RHN", "SRHN")
ELASTIC = ("SREHN", "EIREHN")
KINDS = (*SHALLOW, *FIXED, *ELASTIC, "ACT")
POOLINGS = ("last", "mean")


@dataclass(frozen=True)
class Network:
    """The recurrent layers of a model; see `SequenceNetwork` and `LanguageNetwork`.

    Examples:
        >>> from eirehn.models import Network
        >>> Network("SREHN", hidden_size=48, max_depth=10).kind
        'SREHN'
    """

    kind: str = "EIREHN"
    """RNN, GRU, LSTM, RHN, SRHN, SREHN, EIREHN or ACT."""
    hidden_size: int = 20
    """Units of a layer."""
    num_layers: int = 1
    """Layers stacked on each other."""
    max_depth: int = 6
    """Inner steps of a time step: exactly for RHN and SRHN, at most for SREHN, EIREHN and ACT."""
    weight_update: str = "bounded"
    """How EIREHN changes its weights with depth: bounded, recursive, paper, additive, scaling, outer or none."""
    hyper_size: int | None = None
    """Units of EIREHN's hypernetwork; half of hidden_size where null."""
    dropout: float = 0.0
    """Dropout between layers."""
    input_dropout: float = 0.0
    """Dropout on the input inside a highway network's products, one mask per sequence; in a language model of RNN,
    GRU, LSTM or with step_masks, on the embedded words, one mask per step."""
    hidden_dropout: float = 0.0
    """Dropout on the state inside a highway network's products, one mask per sequence."""
    start: Mapping[str, float] = field(default_factory=dict)
    """Initial values by name, as the cell's reset_parameters takes them: gate_bias, alpha, decay_bias, …;
    weight_bound is for all networks, and in a language model also for the embedding, the map to its size, the
    pointer and the output bias."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight_update", RENAMED.get(self.weight_update, self.weight_update))
        one_of("kind", self.kind, KINDS)
        for name in ("hidden_size", "num_layers", "max_depth"):
            positive_int(name, getattr(self, name))
        if set(self.start) - {"weight_bound"} and self.kind not in FIXED + ELASTIC:
            raise ValueError(
                f"start names initial values of a highway network, {self.kind} takes weight_bound only"
            )


@dataclass(frozen=True)
class SequenceNetwork(Network):
    """The network of a `SequenceModel`.

    Examples:
        >>> from eirehn.models import SequenceNetwork
        >>> SequenceNetwork("EIREHN", hidden_size=32, max_depth=5, pooling="mean").bidirectional
        False
    """

    bidirectional: bool = False
    """Read each sequence in both directions."""
    shortcut: bool = False
    """Add a linear map of the input to the first layer's output."""
    pooling: str = "last"
    """What a class or number of a whole sequence is predicted from: last, the last output of each direction; or
    mean, the mean of all outputs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("pooling", self.pooling, POOLINGS)


@dataclass(frozen=True)
class LanguageNetwork(Network):
    """The network of a `LanguageModel`.

    Examples:
        >>> from eirehn.models import LanguageNetwork
        >>> LanguageNetwork("EIREHN", hidden_size=400, max_depth=4, word_dropout=0.1).tied
        True
    """

    word_dropout: float = 0.0
    """Dropout of whole words: a dropped word is dropped at all its places in a sequence."""
    output_dropout: float = 0.0
    """Dropout on the outputs that words are predicted from, and on a pointer's queries, one mask each per sequence;
    for RNN, GRU and LSTM, or with step_masks, one per step."""
    step_masks: bool = False
    """Draw the dropout masks of a highway network's inputs and outputs anew at every step, as for RNN, GRU and
    LSTM; the inputs of layers above the first then have `dropout` alone."""
    embedding_size: int | None = None
    """Embedding size; hidden_size where null. If it differs from hidden_size, a linear map follows."""
    tied: bool = True
    """Share the weights of the embedding and the output layer."""
    pointer: int = 0
    """Number of the last words that a pointer sentinel can point at (Merity et al. 2016); 0: no pointer."""
    calibrated: bool = False
    """Temperature-scaled: in evaluation mode logits are divided by a temperature that training fits to validation
    data after each epoch."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("word_dropout", "output_dropout"):
            probability(name, getattr(self, name))
        for name in ("step_masks", "tied", "calibrated"):
            boolean(name, getattr(self, name))
        if self.embedding_size is not None:
            positive_int("embedding_size", self.embedding_size)
        if self.pointer != 0:
            positive_int("pointer", self.pointer)


# Fields that networks of version 0.1 had, whatever their task, with the values at which they did nothing.
_OF_VERSION_01 = {
    "bidirectional": False,
    "shortcut": False,
    "pooling": "last",
    "word_dropout": 0.0,
    "output_dropout": 0.0,
    "step_masks": False,
    "embedding_size": None,
    "tied": True,
    "pointer": 0,
    "calibrated": False,
    "gated_output": False,
    "gated_dropout": 0.0,
    "mixture": 1,
    "mixture_dropout": 0.0,
}
_START_OF_VERSION_01 = {"alpha": 0.05, "gate_bias": 0.0, "decay_bias": -4.0, "decay_scale": 0.1}


def without_idle(kind: type[Any], content: Mapping[str, Any], older: Mapping[str, Any]) -> dict[str, Any]:
    """The fields `content` of the dataclass `kind`, without fields of version 0.1 at their default; with another
    value these are refused."""
    if not isinstance(content, Mapping):
        raise TypeError(f"{kind.__name__} must be a mapping, got {type(content).__name__}")
    known = {each.name for each in fields(kind)}
    gone = [name for name in content if name not in known and name in older]
    for name in gone:
        if content[name] != older[name]:
            raise RunError(
                f"{name} {content[name]!r} is of eirehn 0.1, and {kind.__name__} of this version does not have it; "
                "use eirehn 0.1 for that run"
            )
    return {name: value for name, value in content.items() if name not in gone}


def network_fields(kind: type[Network], content: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a network from a file, which version 0.1 may have written: without fields that no longer exist,
    and with the initial values that version 0.1 used with the weight update "printed", now "paper"."""
    own = without_idle(kind, content, _OF_VERSION_01)
    if own.get("weight_update") == "printed" and own.get("kind", "EIREHN") in ELASTIC:
        own["start"] = {**_START_OF_VERSION_01, **own.get("start", {})}
    return own
