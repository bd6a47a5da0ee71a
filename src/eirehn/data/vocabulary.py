"""The words or characters a model knows, and the number of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..files import RunError, read_json, write_json

UNK, EOS = "<unk>", "<eos>"
LEVELS = ("word", "char")


@dataclass(frozen=True)
class Vocabulary:
    level: str
    """word or char."""
    tokens: tuple[str, ...]
    """By their numbers; `<unk>` is one of them, and `<eos>` where they are words."""

    def __post_init__(self) -> None:
        check_level(self.level)
        if len(self._index) != len(self.tokens):
            raise ValueError("tokens must be different from each other")
        for token in (UNK, EOS) if self.level == "word" else (UNK,):
            if token not in self._index:
                raise ValueError(f"tokens must hold {token}")

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, token: object) -> bool:
        return token in self._index

    @property
    def unk(self) -> int:
        return self._index[UNK]

    def encode(self, tokens: Iterable[str]) -> npt.NDArray[np.int32]:
        """Their numbers, (N,); those of `<unk>` where they are not known."""
        return np.fromiter(map(self._index.__getitem__, tokens), np.int32)

    def decode(self, ids: Iterable[int]) -> str:
        """As text: words with spaces between them and lines ended at `<eos>`, or characters."""
        tokens = (self.tokens[index] for index in ids)
        if self.level == "char":
            return "".join(tokens)
        text = "".join("\n" if token == EOS else f" {token}" for token in tokens)
        return text.replace("\n ", "\n").removeprefix(" ")

    def save(self, path: Path) -> None:
        write_json(path, asdict(self))

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        content = read_json(path)
        try:
            return cls(content["level"], tuple(str(token) for token in content["tokens"]))
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"{path} is damaged: {error}") from error

    @cached_property
    def _index(self) -> _Index:
        return _Index((token, index) for index, token in enumerate(self.tokens))


class _Index(dict[str, int]):
    def __missing__(self, token: str) -> int:
        return self[UNK]


def end_of_line(vocabulary: Vocabulary) -> str:
    return EOS if vocabulary.level == "word" else "\n"


def check_level(level: object) -> None:
    if level not in LEVELS:
        raise ValueError(f"level must be one of {', '.join(LEVELS)}, got {level!r}")
