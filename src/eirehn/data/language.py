"""Texts to model: each word or character is to be predicted from all before it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

import torch
from torch import Tensor

from ..checks import positive_int
from ..files import RunError
from .splits import Split, Splits
from .stored import State, checksum, is_known, is_large, state, stored_text, stored_vocabulary
from .text import encode, vocabulary_of
from .vocabulary import Vocabulary, check_level


class Texts(NamedTuple):
    """Texts as the numbers of their tokens, in order; large ones are maps of a file."""

    train: Tensor  # (N,) int32, or int16 in a file
    validation: Tensor
    test: Tensor
    vocabulary: Vocabulary


@dataclass(frozen=True)
class LanguageData:
    """What texts of all kinds share; a kind says where its three texts are."""

    steps: int = 35
    """Tokens of a sequence that a training step reads, and learns from, at once."""
    first: int | None = None
    """Train on the first so many tokens only; on all where null."""

    kind: ClassVar[str]
    task = "language"

    def __post_init__(self) -> None:
        positive_int("steps", self.steps)
        if self.first is not None:
            positive_int("first", self.first)

    @property
    def augment(self) -> None:
        return None

    def smaller(self, train: int) -> Self:
        return replace(self, first=train)

    def texts(self) -> Texts:
        raise NotImplementedError

    def load(self) -> Splits:
        """Each text as one sequence, (1, N−1), and as the targets what follows each of its tokens."""
        train, validation, test, _ = self.texts()
        return Splits(*(Split(text[None, :-1], text[None, 1:]) for text in (train[: self.first], validation, test)))

    def vocabulary(self) -> Vocabulary:
        return self.texts().vocabulary

    def check_trained_on(self, folder: Path) -> None:
        """That a model in this folder knows tokens by the numbers that they have here. Where texts have no checksum
        (`TextData.pinned`), nothing else tells that they have changed."""
        kept = folder / "vocabulary.json"
        if kept.exists() and Vocabulary.load(kept) != self.vocabulary():
            raise RunError(f"the text that {folder} was trained on has changed since: its words are others")

    @property
    def input_size(self) -> int:
        return len(self.vocabulary())

    @property
    def output_size(self) -> int:
        return len(self.vocabulary())


@dataclass(frozen=True)
class TextData(LanguageData):
    """Your own texts, in files."""

    train: str = ""
    """File to train on; its tokens are the vocabulary."""
    validation: str = ""
    """File that chooses the best epoch."""
    test: str = ""
    """File that gives the result."""
    level: str = "word"
    """word: split at white space, with <eos> for the end of a line; or char."""
    most: int | None = None
    """Know only so many tokens, the most frequent ones."""
    encoding: str = "utf-8"
    """Of the files."""
    sha256: str = ""
    """Of the three files together; where given, others in their place are refused."""

    kind: ClassVar[str] = "text"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_level(self.level)
        if self.most is not None:
            positive_int("most", self.most)

    def pinned(self) -> Self:
        """With paths that hold in every folder, and for this very content of the files."""
        for file in self._files():
            state(file)  # told by the name that was given
        files = [file.resolve() for file in self._files()]
        names = dict(zip(("train", "validation", "test"), map(str, files), strict=True))
        return replace(self, **names, sha256=self.sha256 or _checksum(files))  # type: ignore[arg-type]  # all text

    def takes_long(self) -> Path | None:
        """The text to train on, where it is large and has not been read before."""
        path = self._files()[0]
        known = not is_large(path) or is_known(path, self.level, self.most, self.encoding)
        return None if known else path

    def texts(self) -> Texts:
        files = self._files()
        if self.sha256 and _checksum(files) != self.sha256:
            names = ", ".join(map(str, files))
            raise RunError(f"{names}: one of these texts is no longer what the training began with")
        return read_texts(files, self.level, self.most, self.encoding)

    def _files(self) -> tuple[Path, ...]:
        for name in ("train", "validation", "test"):
            if not getattr(self, name):
                raise RunError(f"data.{name} names no file; give three: --text TRAIN VALIDATION TEST")
        return tuple(Path(name) for name in (self.train, self.validation, self.test))


def read_texts(
    files: tuple[Path, ...], level: str = "word", most: int | None = None, encoding: str = "utf-8"
) -> Texts:
    """Three texts by the vocabulary of the first. Those last read are kept, in memory or, if large, on disk."""
    return _read_texts(files, level, most, encoding, tuple(map(state, files)))


def _checksum(files: Sequence[Path]) -> str:
    """Of the checksums of the files, in order."""
    return hashlib.sha256(b"".join(map(checksum, files))).hexdigest()


@lru_cache(maxsize=2)
def _read_texts(
    files: tuple[Path, ...], level: str, most: int | None, encoding: str, states: tuple[State, ...]
) -> Texts:
    if is_large(files[0]):
        vocabulary = stored_vocabulary(files[0], level, most, encoding)
    else:
        vocabulary = vocabulary_of(files[0], level, most=most, encoding=encoding)
    found = []
    for file in files:
        large = is_large(file)
        text = torch.from_numpy(
            stored_text(file, vocabulary, encoding) if large else encode(file, vocabulary, encoding=encoding)
        )
        if len(text) < 2:
            raise RunError(f"{file} has no two {'words' if level == 'word' else 'characters'} to model")
        found.append(text)
    return Texts(found[0], found[1], found[2], vocabulary)
