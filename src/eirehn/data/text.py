"""Texts for language models, which predict each word or character from all before it.

Large texts are stored as numbers in the user's cache folder and memory-mapped. The file names contain the checksum
of the text and everything else that the numbers depend on, such as the vocabulary.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from .._internal.checks import one_of, positive_int
from .._internal.files import RunError, lock, replacing
from .dataset import DAMAGED_ARRAY, FileState, Split, Splits, checksum, file_state
from .download import cache_dir
from .vocabulary import LEVELS, Stored, Vocabulary, encode, encode_to, stored_type, vocabulary_of

LARGE = 16 << 20
"""Bytes from which a text is stored on disk and not in memory."""
PATIENCE = 300.0  # seconds; not every file system has locks
FORM = 1  # increased when the stored form changes

T = TypeVar("T")


class Texts(NamedTuple):
    """Texts as the numbers of their tokens; large ones are memory-mapped."""

    train: Tensor  # (N,) int32, or int16 in a file
    validation: Tensor
    test: Tensor
    vocabulary: Vocabulary


@dataclass(frozen=True)
class LanguageData:
    """Base class of texts for language models; subclasses say where the three texts are."""

    steps: int = 35
    """Tokens of a sequence in a training step (truncated backpropagation through time)."""
    first: int | None = None
    """Train on this number of tokens from the beginning; on all where null."""

    kind: ClassVar[str]
    task = "language"
    augment = None

    def __post_init__(self) -> None:
        positive_int("steps", self.steps)
        if self.first is not None:
            positive_int("first", self.first)

    def smaller(self, train: int) -> Self:
        return replace(self, first=train)

    def texts(self) -> Texts:
        raise NotImplementedError

    def load(self) -> Splits:
        """Returns each text as one sequence (1, N−1), with the next tokens as targets.

        Examples:
            >>> from pathlib import Path
            >>> from eirehn.data import TextData
            >>> _ = Path("text.txt").write_text("the company said the shares fell\\n")
            >>> TextData(train="text.txt", validation="text.txt", test="text.txt").load().test.x.shape
            torch.Size([1, 6])
        """
        train, validation, test, _ = self.texts()
        return Splits(*(Split(text[None, :-1], text[None, 1:]) for text in (train[: self.first], validation, test)))

    def vocabulary(self) -> Vocabulary:
        """Returns the vocabulary of the training text.

        Examples:
            >>> from pathlib import Path
            >>> from eirehn.data import TextData
            >>> _ = Path("text.txt").write_text("the company said the shares fell\\n")
            >>> len(TextData(train="text.txt", validation="text.txt", test="text.txt").vocabulary())
            7
        """
        return self.texts().vocabulary

    def check_trained_on(self, folder: Path) -> None:
        """Raises an error if the model in this folder has another vocabulary: texts without a checksum (see
        `TextData.pinned`) may have changed."""
        kept = folder / "vocabulary.json"
        if kept.exists() and Vocabulary.load(kept) != self.vocabulary():
            raise RunError(f"the training text of {folder} has changed since: its vocabulary is different")

    @property
    def input_size(self) -> int:
        return len(self.vocabulary())

    output_size = input_size


@dataclass(frozen=True)
class TextData(LanguageData):
    """Your own texts, in files.

    Examples:
        >>> from pathlib import Path
        >>> from eirehn.data import TextData
        >>> for name in ("train.txt", "validation.txt", "test.txt"):
        ...     _ = Path(name).write_text("the company said the shares fell\\n")
        >>> data = TextData(train="train.txt", validation="validation.txt", test="test.txt")
        >>> data.vocabulary().tokens
        ('the', '<eos>', 'company', 'fell', 'said', 'shares', '<unk>')
    """

    train: str = ""
    """File of the training text; its tokens are the vocabulary."""
    validation: str = ""
    """File of the validation text, which chooses the best epoch."""
    test: str = ""
    """File of the test text, which gives the result."""
    level: str = "word"
    """word: split at white space, with <eos> at the end of each line; or char: characters."""
    most: int | None = None
    """Size of the vocabulary: only the most frequent tokens are in it; all where null."""
    encoding: str = "utf-8"
    """Encoding of the files."""
    sha256: str = ""
    """Checksum of the three files; if given, other files are refused. `eirehn train` sets it."""

    kind: ClassVar[str] = "text"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("level", self.level, LEVELS)
        if self.most is not None:
            positive_int("most", self.most)

    def pinned(self) -> Self:
        """With absolute paths and the checksum of the files."""
        for file in self._files():
            file_state(file)  # raises an error with the path as given
        files = [file.resolve() for file in self._files()]
        names = dict(zip(("train", "validation", "test"), map(str, files), strict=True))
        return replace(self, **names, sha256=self.sha256 or checksums(files))  # type: ignore[arg-type]  # all text

    def takes_long(self) -> Path | None:
        """The training text, if it is large and has not been read before."""
        path = self._files()[0]
        known = not is_large(path) or _vocabulary_place(path, self.level, self.most, self.encoding).exists()
        return None if known else path

    def texts(self) -> Texts:
        files = self._files()
        if self.sha256 and checksums(files) != self.sha256:
            names = ", ".join(map(str, files))
            raise RunError(
                f"{names}: a text has changed since the training began; choose another folder for a new run"
            )
        return read_texts(files, self.level, self.most, self.encoding)

    def _files(self) -> tuple[Path, ...]:
        for name in ("train", "validation", "test"):
            if not getattr(self, name):
                raise RunError(f"data.{name} is missing; give three files: --text TRAIN VALIDATION TEST")
        return tuple(Path(name) for name in (self.train, self.validation, self.test))


def checksums(files: Sequence[Path]) -> str:
    """One checksum of several files, in order."""
    return hashlib.sha256(b"".join(bytes.fromhex(checksum(file)) for file in files)).hexdigest()


def read_texts(
    files: tuple[Path, ...], level: str = "word", most: int | None = None, encoding: str = "utf-8"
) -> Texts:
    """Three texts, encoded by the vocabulary of the first, and cached in memory or, if large, on disk."""
    return _read_texts(files, level, most, encoding, tuple(map(file_state, files)))


@lru_cache(maxsize=2)
def _read_texts(
    files: tuple[Path, ...], level: str, most: int | None, encoding: str, states: tuple[FileState, ...]
) -> Texts:
    if is_large(files[0]):
        vocabulary = stored_vocabulary(files[0], level, most, encoding)
    else:
        vocabulary = vocabulary_of(files[0], level, most=most, encoding=encoding)
    found = []
    for file in files:
        read = stored_text if is_large(file) else encode
        ids: Stored = read(file, vocabulary, encoding=encoding)
        if len(ids) < 2:
            raise RunError(f"{file} must have at least two {'words' if level == 'word' else 'characters'}")
        found.append(torch.from_numpy(ids))
    return Texts(found[0], found[1], found[2], vocabulary)


def is_large(path: Path) -> bool:
    return file_state(path)[0] > LARGE


def stored_vocabulary(path: Path, level: str, most: int | None, encoding: str) -> Vocabulary:
    """As `vocabulary_of`, cached on disk."""

    def make(file: IO[bytes]) -> None:
        file.write(json.dumps(asdict(vocabulary_of(path, level, most=most, encoding=encoding))).encode())

    return _kept(path, _vocabulary_place(path, level, most, encoding), Vocabulary.load, make)


def _vocabulary_place(path: Path, level: str, most: int | None, encoding: str) -> Path:
    return _place(path, "vocabulary", "json", [level, most, encoding])


def stored_text(path: Path, vocabulary: Vocabulary, *, encoding: str) -> Stored:
    """The numbers of a text, (N,), cached on disk."""
    words = hashlib.sha256("\0".join((vocabulary.level, *vocabulary.tokens)).encode("utf-8", "surrogatepass"))

    def read(kept: Path) -> Stored:
        # Copy-on-write: torch needs a writable array.
        found: Stored = np.load(kept, mmap_mode="c")
        if found.ndim != 1 or found.dtype != np.dtype(stored_type(vocabulary)):
            raise ValueError(f"{kept} has unexpected content")
        return found

    kept = _place(path, "text", "npy", [words.hexdigest(), encoding])
    return _kept(path, kept, read, lambda file: encode_to(path, vocabulary, file, encoding=encoding))


def _kept(path: Path, kept: Path, read: Callable[[Path], T], make: Callable[[IO[bytes]], object]) -> T:
    """The content of the cache file `kept`, which `make` writes if it is missing."""
    before = file_state(path)
    damaged = (*DAMAGED_ARRAY, OSError, RunError)
    with suppress(*damaged):  # the folder may be read-only
        return read(kept)
    with _alone(kept.parent) as alone:  # one of several processes reads the text
        with suppress(*damaged):
            return read(kept)
        for left in kept.parent.glob(f"*{kept.name}.*") if alone else ():  # left by a process that was killed
            left.unlink(missing_ok=True)
        try:
            with replacing(kept) as file:
                make(file)
                if file_state(path) != before:  # then the file must not get its name
                    raise RunError(f"{path} changed while it was read; try again")
        except RunError as error:
            if str(kept) in str(error):
                raise RunError(f"{error} (set EIREHN_CACHE_DIR to use another folder)") from error
            raise
        return read(kept)


def _place(path: Path, kind: str, suffix: str, depends_on: list[Any]) -> Path:
    key = json.dumps([FORM, checksum(path), *depends_on]).encode()
    return cache_dir() / "texts" / f"{kind}-{hashlib.sha256(key).hexdigest()[:32]}.{suffix}"


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Whether the folder could be locked, after some waiting; without the lock, work is done twice."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / ".lock", "ab") as file:
            yield lock(file, PATIENCE)
    except OSError as error:
        raise RunError(
            f"cannot write to {folder}: {error.strerror} (set EIREHN_CACHE_DIR to use another folder)"
        ) from error
