import gzip
import io
import json
import random
import sys
from collections import Counter

import numpy as np
import pytest
from helpers.processes import in_new_python
from hypothesis import given
from hypothesis import strategies as st

from eirehn._internal.files import RunError
from eirehn.data import vocabulary as module
from eirehn.data.vocabulary import EOS, UNK, Vocabulary, encode, encode_to, vocabulary_of, words


def plain_words(content: str) -> list[str]:
    """The definition: words between white space, `<eos>` for each line, a last one without an end among them."""
    lines = content.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [word for line in lines for word in [*line.split(), EOS]]


def on_disk(path, vocabulary):
    """The text as its file has it."""
    encode_to(path, vocabulary, out := io.BytesIO())
    return out.getvalue()


@pytest.fixture
def write(tmp_path):
    def write(content, name="a.txt"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_words_and_their_order(write):
    path = write(" b a \n a <unk> a\n\nc b")
    vocabulary = vocabulary_of(path)
    assert vocabulary.tokens == (EOS, "a", "b", UNK, "c")
    ids = encode(path, vocabulary)
    assert ids.dtype == np.int32
    assert ids.tolist() == [2, 1, 0, 1, 3, 1, 0, 0, 4, 2, 0]


@pytest.mark.parametrize(
    ("level", "content", "expected"),
    [("word", "a new word a", ["a", UNK, UNK, "a", EOS]), ("char", "abz\U0010ffff", ["a", "b", UNK, UNK])],
)
def test_what_is_not_known_is_unk(write, level, content, expected):
    vocabulary = vocabulary_of(write("a b\n" * 3), level)
    found = encode(write(content, "other"), vocabulary)
    assert [vocabulary.tokens[index] for index in found] == expected


def test_the_most_frequent(write):
    path = write("a a a b b c\n")
    assert vocabulary_of(path, most=4).tokens == ("a", "b", EOS, UNK)
    assert vocabulary_of(path, most=99).tokens == ("a", "b", EOS, "c", UNK)
    assert vocabulary_of(path, "char", most=3).tokens == (" ", "a", UNK)
    for most in (2, 0):
        with pytest.raises(ValueError, match="most must be"):
            vocabulary_of(path, most=most)


@given(
    content=st.text(st.sampled_from("ab é\n\r\t \u2028\x85𝔘🙂"), min_size=1, max_size=60),
    block=st.integers(1, 9),
    level=st.sampled_from(["word", "char"]),
)
def test_where_the_pieces_are_cut_does_not_matter(tmp_path_factory, content, block, level):
    path = tmp_path_factory.mktemp("text") / "a.txt"
    path.write_bytes(content.encode())
    expected = plain_words(content) if level == "word" else list(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        vocabulary = vocabulary_of(path, level)
        found = [vocabulary.tokens[index] for index in encode(path, vocabulary)]
        kept = np.load(io.BytesIO(on_disk(path, vocabulary)))
    assert found == expected
    counts = Counter(expected)
    assert list(vocabulary.tokens) == sorted(
        {*counts, UNK, *([EOS] if level == "word" else [])}, key=lambda t: (-counts[t], t)
    )
    assert [vocabulary.tokens[index] for index in kept] == expected


@pytest.mark.parametrize(("known", "kind"), [(4, np.int16), (32_768, np.int16), (32_769, np.int32)])
def test_a_file_on_disk_is_what_numpy_writes(write, known, kind):
    path = write("".join(f"w{index}\n" for index in range(known - 2)))
    vocabulary = vocabulary_of(path)
    assert len(vocabulary) == known
    np.save(expected := io.BytesIO(), encode(path, vocabulary).astype(kind))
    assert on_disk(path, vocabulary) == expected.getvalue()


@pytest.mark.parametrize("block", [3, 1 << 20])
@pytest.mark.parametrize(
    ("content", "line", "message"),
    [
        (b"fine\nfine\nna\xefve latin\n", 3, "byte 0xef is not utf-8"),
        (b"fine\ncut \xc3", 2, "byte 0xc3 is not utf-8"),
        (b"one\ntwo\0\nthree", 2, "a zero byte"),
        ("text\n".encode("utf-16"), 1, "byte 0xff is not utf-8"),
        ("text\n".encode("utf-16-le"), 1, "a zero byte"),
        (gzip.compress(b"text" * 100, mtime=0), 1, "byte 0x8b is not utf-8"),
        (b"\x89PNG\r\n\x1a\n\0\0", 1, "byte 0x89 is not utf-8"),
    ],
)
def test_what_is_no_text_is_named_by_file_and_line(write, monkeypatch, content, line, message, block):
    monkeypatch.setattr(module, "BLOCK", block)
    path = write(content)
    some = Vocabulary("word", (UNK, EOS))
    for use in (
        lambda: vocabulary_of(path),
        lambda: vocabulary_of(path, "char"),
        lambda: encode(path, some),
        lambda: on_disk(path, some),
    ):
        with pytest.raises(RunError, match=rf"a\.txt, line {line}: {message}"):
            use()


@pytest.mark.parametrize("block", [3, 1 << 20])
def test_half_a_character_is_no_text(write, monkeypatch, block):
    """Python decodes it, and nothing can be written of it."""
    monkeypatch.setattr(module, "BLOCK", block)
    path = write(b"fine\nw1 +2AA- w2\n")
    for level in ("word", "char"):
        with pytest.raises(RunError, match=r"a\.txt, line 2: half a character; this is not text in utf-7"):
            vocabulary_of(path, level, encoding="utf-7")
    assert "+" in vocabulary_of(write(b"+- 2AA-"), encoding="utf-7")


def test_other_encodings(write):
    path = write("naïve\n".encode("latin-1"))
    assert "naïve" in vocabulary_of(path, encoding="latin-1")
    wide = write("naïve\n".encode("utf-16"), "wide")
    assert vocabulary_of(wide, encoding="utf-16").tokens[:2] == (EOS, "naïve")
    marked = write(b"\xef\xbb\xbfword\n")
    assert list(words(marked)) == [["word", EOS]]
    for name in ("no-such", "base64", "rot13"):
        with pytest.raises(ValueError, match="encoding must be"):
            vocabulary_of(path, encoding=name)
    with pytest.raises(RunError, match=r"text\.txt: .*BOM.*data\.encoding"):
        encode(write("no mark\n", "text.txt"), Vocabulary("word", (UNK, EOS)), encoding="utf-16")


def test_empty_missing_or_a_folder(write, tmp_path):
    empty = write(b"")
    with pytest.raises(RunError, match="is empty"):
        vocabulary_of(empty)
    assert len(encode(empty, Vocabulary("word", (UNK, EOS)))) == 0
    with pytest.raises(RunError, match="is empty"):
        on_disk(empty, Vocabulary("word", (UNK, EOS)))
    with pytest.raises(RunError, match=r"cannot read .*missing: No such file"):
        vocabulary_of(tmp_path / "missing")
    with pytest.raises(RunError, match="cannot read"):
        vocabulary_of(tmp_path)


def test_a_word_without_end_and_too_many_words(write, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 1000)
    monkeypatch.setattr(module, "LONGEST_WORD", 5000)
    path = write("fine\n\n" + "x" * 20_000)
    with pytest.raises(RunError, match=r"a\.txt, line 3: a word of more than 5,000 characters"):
        vocabulary_of(path)
    assert len(vocabulary_of(path, "char")) == 7
    monkeypatch.setattr(module, "MOST_WORDS", 100)
    with pytest.raises(RunError, match="more than 100 different words"):
        vocabulary_of(write(" ".join(map(str, range(200)))))


def test_a_vocabulary_on_disk(write, tmp_path):
    vocabulary = vocabulary_of(write("häuser \u2028 x\n"), "char")
    path = tmp_path / "vocabulary.json"
    vocabulary.save(path)
    assert Vocabulary.load(path) == vocabulary
    for damaged in ({"level": "word", "tokens": ["a"]}, {"tokens": []}, [], {"level": "word", "tokens": 3}):
        path.write_text(json.dumps(damaged))
        with pytest.raises(RunError, match="damaged"):
            Vocabulary.load(path)


def test_wrong_vocabularies():
    for level, tokens in (("line", (UNK,)), ("word", (UNK,)), ("char", ("a",)), ("char", (UNK, "a", "a"))):
        with pytest.raises(ValueError, match=r"level must|tokens must"):
            Vocabulary(level, tokens)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is measured as Linux counts it")
@pytest.mark.parametrize(("level", "end"), [("word", " "), ("char", "\n")], ids=["one line", "characters"])
def test_memory_does_not_grow_with_the_text(tmp_path, level, end):
    """64 MB of text, twice through, may take a fraction of that; also all in one line."""
    some = random.Random(0)
    line = " ".join("".join(some.choices("abcdefghij", k=4)) for _ in range(10_000)) + end
    (tmp_path / "large.txt").write_text(line * (64_000_000 // len(line)))
    (tmp_path / "small.txt").write_text("a few words\n")
    code = f"""
        import resource
        from pathlib import Path
        from eirehn.data.vocabulary import encode_to, vocabulary_of

        def size(name):
            path = Path({str(tmp_path)!r}) / name
            with open(path.with_suffix(".npy"), "wb") as file:
                encode_to(path, vocabulary_of(path, {level!r}), file)
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

        print(-size("small.txt") + size("large.txt"))
    """
    assert int(in_new_python(code)) < 45_000
    assert len(np.load(tmp_path / "large.npy", mmap_mode="r")) > (12_000_000 if level == "word" else 63_000_000)
