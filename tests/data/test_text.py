"""Large texts in files: the same numbers as in memory, kept for the next time, and never those of another text."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO

import numpy as np
import pytest
import torch

from eirehn._internal.files import RunError, lock
from eirehn.data import text
from eirehn.data.text import TextData
from eirehn.data.vocabulary import Vocabulary, encode, vocabulary_of


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EIREHN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(text, "LARGE", 100)
    return tmp_path / "cache" / "texts"


@pytest.fixture
def data(tmp_path: Path) -> TextData:
    random = np.random.default_rng(0)
    for name, count in (("train", 400), ("validation", 50), ("test", 5)):
        words = [f"w{number}" for number in random.integers(0, 30, count)]
        (tmp_path / f"{name}.txt").write_text(" ".join(words) + "\n", "utf-8")
    return TextData(8, None, *(str(tmp_path / f"{name}.txt") for name in ("train", "validation", "test")))


@pytest.mark.parametrize("level", ["word", "char"])
def test_the_same_numbers_as_in_memory(data: TextData, level: str, cache: Path) -> None:
    texts = text.read_texts(tuple(map(Path, (data.train, data.validation, data.test))), level)
    vocabulary = vocabulary_of(Path(data.train), level)
    assert texts.vocabulary == vocabulary
    for found, name in zip(texts[:3], (data.train, data.validation, data.test), strict=True):
        assert torch.equal(found.int(), torch.from_numpy(encode(Path(name), vocabulary)))
    assert [texts.train.dtype, texts.validation.dtype, texts.test.dtype] == [torch.int16, torch.int16, torch.int32]
    assert sorted(path.suffix for path in cache.glob("[!.]*")) == [".json", ".npy", ".npy"]  # the third is small


def again(data: TextData) -> text.Texts:
    """As a process that begins now reads them."""
    text._read_texts.cache_clear()
    return data.texts()


def test_a_text_is_read_once(data: TextData, monkeypatch: pytest.MonkeyPatch) -> None:
    first = data.texts()

    def unwanted(*_: object, **__: object) -> None:
        raise AssertionError("it is known already")

    for name in ("vocabulary_of", "encode_to"):
        monkeypatch.setattr(text, name, unwanted)
    second = again(data)
    assert second.vocabulary == first.vocabulary
    assert torch.equal(second.train, first.train)
    with pytest.raises(AssertionError, match="known already"):
        again(replace(data, most=5))  # another vocabulary


def test_another_text_is_another(data: TextData) -> None:
    before = data.texts().train.clone()
    path = Path(data.train)
    path.write_text(path.read_text("utf-8").replace("w1 ", "w2 "), "utf-8")
    os.utime(path, ns=(0, 0))
    found = data.texts()
    assert found.train.tolist() == encode(path, vocabulary_of(path)).tolist()
    assert found.train.tolist() != before.tolist()


def npy(array: np.ndarray) -> bytes:
    np.save(out := io.BytesIO(), array)
    return out.getvalue()


@pytest.mark.parametrize("kind", ["npy", "json"])
@pytest.mark.parametrize(
    "damaged",
    [
        lambda content: content[: len(content) // 2],
        lambda _: b"",
        lambda _: b"x",
        lambda _: npy(np.zeros(4, np.float32)),
        lambda _: npy(np.zeros((2, 2), np.int16)),
        lambda _: npy(np.array(1, np.int16)),
    ],
)
def test_what_is_damaged_is_made_again(
    data: TextData, kind: str, damaged: Callable[[bytes], bytes], cache: Path
) -> None:
    expected = data.texts().train.tolist()
    for path in cache.glob(f"*.{kind}"):
        content = path.read_bytes()
        path.unlink()  # the old one may still be mapped
        path.write_bytes(damaged(content))
        (cache / f".{path.name}.abc.tmp").write_bytes(b"left by a process that was killed")
    assert again(data).train.tolist() == expected
    assert not list(cache.glob("*.tmp"))


def test_by_another_encoding_it_is_another_text(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(b"w1\xc2\x85w2\n" * 50)  # white space in UTF-8, letters and white space in Latin-1
    vocabulary = Vocabulary("word", ("<unk>", "<eos>", "w1", "w2"))
    for encoding in ("utf-8", "latin-1", "utf-8"):
        found = text.stored_text(path, vocabulary, encoding=encoding).tolist()
        assert found == [2 if encoding == "utf-8" else 0, 3, 1] * 50


def test_nobody_sees_numbers_of_another_text(data: TextData, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even a process that looks just after they are written, or one that is killed there."""
    seen: list[Path] = []
    state, made = text.file_state, text.encode_to

    def looking(path: Path) -> tuple[int, int]:
        seen.extend(cache.glob("*.npy"))
        return state(path)

    def changing(*given: object, **named: object) -> None:
        made(*given, **named)  # type: ignore[arg-type]
        Path(data.train).write_text("other words\n" * 100, "utf-8")
        monkeypatch.setattr(text, "file_state", looking)

    monkeypatch.setattr(text, "encode_to", changing)
    with pytest.raises(RunError, match=r"train\.txt changed while it was read"):
        data.texts()
    assert not seen
    assert not list(cache.glob("*.npy*"))


def test_a_folder_that_cannot_be_written_to_can_be_read(data: TextData, cache: Path) -> None:
    expected = data.texts().train.tolist()
    (cache / ".lock").unlink()
    (cache / ".lock").mkdir()  # so that it cannot be opened, by whomever
    assert again(data).train.tolist() == expected
    with pytest.raises(RunError, match="cannot write to"):
        again(replace(data, most=5))


def test_two_processes_at_once(data: TextData, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One waits for the other, but not for ever; what that is writing stays."""
    expected = data.texts().train.tolist()
    (kept,) = (path for path in cache.glob("*.npy") if len(np.load(path)) == len(expected))
    kept.unlink()
    others = cache / f".{kept.name}.other.tmp"
    others.write_bytes(b"half of it")
    monkeypatch.setattr(text, "PATIENCE", 0.3)
    with open(cache / ".lock", "ab") as file:
        assert lock(file)
        assert again(data).train.tolist() == expected
        assert others.exists()
    kept.unlink()
    assert again(data).train.tolist() == expected
    assert not others.exists()


def test_no_place_to_keep_it(data: TextData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, vocabulary: object, file: IO[bytes], **_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(text, "encode_to", full)
    with pytest.raises(RunError, match=r"No space left on device \(set EIREHN_CACHE_DIR"):
        data.texts()
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("EIREHN_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(RunError, match=r"cannot write to .*file/texts: .*EIREHN_CACHE_DIR"):
        data.texts()
