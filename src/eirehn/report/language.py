"""What a report says of language models: the depth spent on words of each sort, and on those of a text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .checking import (
    check_length,
    check_names,
    check_numbers,
    check_positive,
    check_spread,
    check_text,
    check_whole,
    is_number,
)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class WordGroups:
    """The words of a text in groups, and of each how often it took d inner steps: `counts[group][d]`, from d = 0
    on."""

    label: str
    names: Sequence[str]
    ticks: Sequence[str]
    """Short forms of the names, to stand beneath a figure."""
    counts: Sequence[Sequence[int]]
    perplexity: Sequence[float]
    """Of the words themselves, as the model expected them; NaN where none was expected."""
    next_perplexity: Sequence[float]
    """Of the words that follow them, which is what the depth was spent for."""
    layers: int = 1
    """Each of several counts by itself."""
    effective: Sequence[float] | None = None
    """How far elastic gates were open for each group, summed over inner steps, mean over units and words."""

    def __post_init__(self) -> None:
        check_text("WordGroups.label", self.label)
        check_names("WordGroups.names", self.names)
        for name in ("ticks", "counts", "perplexity", "next_perplexity"):
            check_length(f"WordGroups.{name}", getattr(self, name), len(self.names), "groups")
        check_names("WordGroups.ticks", self.ticks)
        for group, numbers in enumerate(self.counts):
            check_length(f"WordGroups.counts[{group}]", numbers, len(self.counts[0]), "depths")
            check_whole(f"WordGroups.counts[{group}]", numbers)
            if sum(numbers) == 0:
                raise ValueError(f"WordGroups.counts[{group}] must count at least one word, got none")
        check_spread("WordGroups.perplexity", self.perplexity)
        check_spread("WordGroups.next_perplexity", self.next_perplexity)
        check_positive("WordGroups.layers", self.layers)
        if self.effective is not None:
            check_length("WordGroups.effective", self.effective, len(self.names), "groups")
            check_spread("WordGroups.effective", self.effective)

    @property
    def shares(self) -> Floats:
        """Of each group, what part took each depth, (group, depth)."""
        counts = np.array(self.counts, np.float64)
        shares: Floats = counts / counts.sum(1, keepdims=True)
        return shares

    @property
    def mean(self) -> Floats:
        """Inner steps, (group,)."""
        return self.shares @ np.arange(self.shares.shape[1])

    @property
    def std(self) -> Floats:
        """Of the inner steps within each group, (group,)."""
        squares = self.shares @ np.square(np.arange(self.shares.shape[1]))
        deviation: Floats = np.sqrt(np.maximum(squares - self.mean**2, 0.0))
        return deviation

    @property
    def words(self) -> list[int]:
        """How many words each group counts, in all the models that read them."""
        return [sum(numbers) // self.layers for numbers in self.counts]


@dataclass(frozen=True)
class Passage:
    """A piece of text as a model reads it: its tokens, the mean `depth` over the layers spent on each, and the
    `chance` that the model had given each before it came."""

    label: str
    tokens: Sequence[str]
    depth: Sequence[float]
    chance: Sequence[float | None]
    """None where nothing was expected, as at the beginning of a text."""
    end: str = "<eos>"
    """The token that ends a line."""
    spaced: bool = True
    """Whether there are spaces between tokens: words, not characters."""
    taken: float | None = None
    """Where every token took so many inner steps, and `depth` is how far gates were open, summed over them."""

    def __post_init__(self) -> None:
        check_text("Passage.label", self.label)
        if isinstance(self.tokens, str) or len(self.tokens) == 0:
            raise ValueError(f"Passage.tokens must be a list of texts, got {self.tokens!r}")
        for name in ("tokens", "end"):
            given = self.tokens if name == "tokens" else [self.end]
            if not all(isinstance(token, str) and token for token in given):
                raise ValueError(f"Passage.{name} must be text that is not empty, got {given!r}")
        check_length("Passage.depth", self.depth, len(self.tokens), "tokens")
        if not all(is_number(depth) and 0 <= depth < math.inf for depth in self.depth):
            raise ValueError("Passage.depth must hold finite numbers of at least zero")
        check_numbers("Passage.taken", [self.taken])
        check_length("Passage.chance", self.chance, len(self.tokens), "tokens")
        for chance in self.chance:
            if chance is not None and not (is_number(chance) and 0 <= chance <= 1):
                raise ValueError(f"Passage.chance must hold numbers from 0 to 1, got {chance!r}")


@dataclass(frozen=True)
class TableRow:
    """A row of a table of the paper, of ours, or of both: perplexities, and None for what there is not."""

    table: str
    model: str
    millions: float | None
    """Of parameters."""
    paper_validation: float | None = None
    paper_test: float | None = None
    validation: float | None = None
    test: float | None = None

    def __post_init__(self) -> None:
        check_text("TableRow.table", self.table)
        check_text("TableRow.model", self.model)
        for name in ("millions", "paper_validation", "paper_test", "validation", "test"):
            check_numbers(f"TableRow.{name}", [getattr(self, name)])
