"""Vocabularies of words or characters, and texts encoded by them, piece by piece to save memory.

A text of words is split at white space, and every line ends with `<eos>`. A text of characters has all its
characters, including line ends.
"""

from __future__ import annotations

import codecs
import io
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from .._internal.checks import one_of, positive_int
from .._internal.files import RunError, read_json, write_json

UNK, EOS = "<unk>", "<eos>"
LEVELS = ("word", "char")
BLOCK = 1 << 20
LONGEST_WORD = 1 << 16
MOST_WORDS = 5_000_000
"""Most distinct words that are counted."""
CODE_POINTS = 0x110000
HEADER = 128
"""Bytes of the header of an npy file of one dimension."""

Ids = npt.NDArray[np.int32]
Stored = npt.NDArray[np.int16] | npt.NDArray[np.int32]
"""Two bytes a token if that is enough for the vocabulary."""


@dataclass(frozen=True)
class Vocabulary:
    """The tokens that a language model knows, and their indices.

    Examples:
        >>> from eirehn.data import Vocabulary
        >>> vocabulary = Vocabulary("word", ("<unk>", "<eos>", "the", "company"))
        >>> vocabulary.encode(["the", "xylophone", "company"])
        array([2, 0, 3], dtype=int32)
        >>> "the" in vocabulary, len(vocabulary)
        (True, 4)
    """

    level: str
    """word or char."""
    tokens: tuple[str, ...]
    """The tokens in the order of their indices; `<unk>` is one of them, and `<eos>` if they are words."""

    def __post_init__(self) -> None:
        one_of("level", self.level, LEVELS)
        if len(self._index) != len(self.tokens):
            raise ValueError("tokens must be different from each other")
        for token in (UNK, EOS) if self.level == "word" else (UNK,):
            if token not in self._index:
                raise ValueError(f"tokens must include {token}")

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, token: object) -> bool:
        return token in self._index

    @property
    def unk(self) -> int:
        """The index of `<unk>`."""
        return self._index[UNK]

    def encode(self, tokens: Iterable[str]) -> npt.NDArray[np.int32]:
        """Returns the indices of tokens, that of `<unk>` for tokens that are not in the vocabulary.

        Args:
            tokens: N tokens.

        Returns:
            Shape `(N,)`, int32.

        Examples:
            >>> from eirehn.data import Vocabulary
            >>> Vocabulary("char", ("<unk>", "a", "b")).encode("abba")
            array([1, 2, 2, 1], dtype=int32)
        """
        return np.fromiter(map(self._index.__getitem__, tokens), np.int32)

    def save(self, path: Path) -> None:
        """Writes the vocabulary to a JSON file.

        Args:
            path: the file.

        Examples:
            >>> from pathlib import Path
            >>> from eirehn.data import Vocabulary
            >>> Vocabulary("char", ("<unk>", "a", "b")).save(Path("vocabulary.json"))
        """
        write_json(path, asdict(self))

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Reads a vocabulary that `save` wrote.

        Args:
            path: the file.

        Raises:
            RunError: if it cannot be read or is damaged.

        Examples:
            >>> from pathlib import Path
            >>> from eirehn.data import Vocabulary
            >>> Vocabulary("char", ("<unk>", "a", "b")).save(Path("vocabulary.json"))
            >>> Vocabulary.load(Path("vocabulary.json")).tokens
            ('<unk>', 'a', 'b')
        """
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


def vocabulary_of(
    path: Path, level: str = "word", *, most: int | None = None, encoding: str = "utf-8"
) -> Vocabulary:
    """The words or characters of a text, the most frequent first, with `<unk>` for all others.

    Args:
        path: the text.
        level: "word" or "char".
        most: the largest size, including `<unk>` and `<eos>`.
        encoding: of the text.
    """
    one_of("level", level, LEVELS)
    if most is not None and positive_int("most", most) < 3:
        raise ValueError(f"most must be at least 3, got {most}")
    counts = _counted_words(path, encoding) if level == "word" else _counted_characters(path, encoding)
    if not counts:
        raise RunError(f"{path} is empty")
    special = (UNK, EOS) if level == "word" else (UNK,)
    for each in special:
        counts.setdefault(each, 0)
    ordered = sorted(counts, key=lambda token: (-counts[token], token))
    if most is not None and len(ordered) > most:
        room = most - len(special)
        kept = {*special, *[token for token in ordered if token not in special][:room]}
        ordered = [token for token in ordered if token in kept]
    return Vocabulary(level, tuple(ordered))


def encode(path: Path, vocabulary: Vocabulary, *, encoding: str = "utf-8") -> Ids:
    """The encoded text in memory, (N,): four bytes a token."""
    return np.concatenate([np.empty(0, np.int32), *encoded(path, vocabulary, encoding=encoding)])


def encode_to(path: Path, vocabulary: Vocabulary, file: IO[bytes], *, encoding: str = "utf-8") -> None:
    """Writes the encoded text to an npy file, (N,), piece by piece."""
    count, kind = 0, stored_type(vocabulary)
    file.write(bytes(HEADER))
    for piece in encoded(path, vocabulary, encoding=encoding):
        file.write(piece.astype(kind).tobytes())
        count += len(piece)
    if not count:
        raise RunError(f"{path} is empty")
    file.seek(0)
    header = {"descr": kind, "fortran_order": False, "shape": (count,)}
    np.lib.format.write_array_header_1_0(file, header)  # type: ignore[no-untyped-call,unused-ignore]


def stored_type(vocabulary: Vocabulary) -> str:
    return "<i2" if len(vocabulary) <= np.iinfo(np.int16).max + 1 else "<i4"


def encoded(path: Path, vocabulary: Vocabulary, *, encoding: str = "utf-8") -> Iterator[Ids]:
    """The encoded text, piece by piece."""
    if vocabulary.level == "char":
        table = np.full(CODE_POINTS, vocabulary.unk, np.int32)
        for index, token in enumerate(vocabulary.tokens):
            if len(token) == 1:
                table[ord(token)] = index
        for points in characters(path, encoding):
            yield table[points]
        return
    for piece in words(path, encoding):
        yield vocabulary.encode(piece)


def words(path: Path, encoding: str = "utf-8") -> Iterator[list[str]]:
    """The words of a text, with `<eos>` after each line, piece by piece."""
    unfinished, line_open = "", False
    for line, block in blocks(path, encoding):
        text = unfinished + block
        found = text.replace("\n", f" {EOS} ").split()
        unfinished = "" if text[-1].isspace() else found.pop()
        if len(unfinished) > LONGEST_WORD:
            at = line + block.count("\n")
            raise RunError(
                f"{path}, line {at}: a word of more than {LONGEST_WORD:,} characters; read it as characters"
            )
        line_open = not text.endswith("\n")
        yield found
    if line_open:
        yield [unfinished, EOS] if unfinished else [EOS]


def characters(path: Path, encoding: str = "utf-8") -> Iterator[npt.NDArray[np.uint32]]:
    """The code points of a text, piece by piece."""
    for _, block in blocks(path, encoding):
        yield np.frombuffer(block.encode("utf-32-le"), "<u4")


def blocks(path: Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Non-empty pieces of a text, each with the number of its first line."""
    decoder = _decoder(encoding)
    line = 1
    try:
        with open(path, "rb") as file:
            while True:
                content = file.read(BLOCK)
                text = decoder.decode(content, not content)
                for what, place in (("a zero byte", text.find("\0")), ("half a character", _half_character(text))):
                    if place >= 0:
                        at = line + text[:place].count("\n")
                        raise RunError(f"{path}, line {at}: {what}; {_not_text(encoding)}")
                if text:
                    yield line, text
                line += text.count("\n")
                if not content:
                    return
    except UnicodeDecodeError as error:
        at = line + error.object[: error.start].count(b"\n")
        byte = error.object[error.start]
        raise RunError(f"{path}, line {at}: byte 0x{byte:02x} is not {encoding}; {_not_text(encoding)}") from error
    except UnicodeError as error:  # about the whole file: UTF-16 without a byte-order mark
        raise RunError(f"{path}: {error}; {_not_text(encoding)}") from error
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error


def _half_character(text: str) -> int:
    """The position of half a UTF-16 surrogate pair, which UTF-7 can contain; −1: none."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return error.start
    return -1


def _not_text(encoding: str) -> str:
    return f"this is not text in {encoding}; give its encoding with --data.encoding, or --encoding of score"


def _decoder(encoding: str) -> codecs.IncrementalDecoder:
    try:
        io.TextIOWrapper(io.BytesIO(), encoding)  # also raises an error for codecs that are not for text
        name = codecs.lookup(encoding).name
    except LookupError as error:
        raise ValueError(f"encoding must be the name of a text encoding, got {encoding!r}") from error
    # A byte-order mark is not part of the text.
    return codecs.getincrementaldecoder("utf-8-sig" if name == "utf-8" else name)()


def _counted_words(path: Path, encoding: str) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for piece in words(path, encoding):
        counts.update(piece)
        if len(counts) > MOST_WORDS:
            raise RunError(f"{path} has more than {MOST_WORDS:,} different words; read it as characters")
    return counts


def _counted_characters(path: Path, encoding: str) -> dict[str, int]:
    counts = np.zeros(CODE_POINTS, np.int64)
    for points in characters(path, encoding):
        counts += np.bincount(points, minlength=CODE_POINTS)
    return {chr(point): int(counts[point]) for point in np.flatnonzero(counts)}
