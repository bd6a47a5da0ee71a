"""`eirehn score`."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest
from helpers.command import done, refused

import eirehn
from eirehn.cli.score import _written
from eirehn.models.score import Scored
from eirehn.training.evaluate import evaluate


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_words_in_a_table(language_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A text of the run's own has the perplexity that evaluation reports, but for its first word."""
    text, out = language_run.parent / "test.txt", tmp_path / "new" / "words.csv"
    done(f"score {language_run} {text} --out {out}")
    said, rows = capsys.readouterr().out, table(out)
    assert [row["token"] for row in rows] == text.read_text().replace("\n", " <eos> ").split()
    assert (rows[11]["line"], rows[11]["place"], rows[11]["known"]) == ("2", "1", "1")
    bits = [float(row["bits"]) for row in rows]
    rest = math.exp(math.log(2) * sum(bits[1:]) / len(bits[1:]))
    assert rest == pytest.approx(evaluate(language_run).values[0], rel=1e-2)  # it has a line's end before the first
    whole = f"{len(rows):,} words, including ends of lines: perplexity {2 ** (sum(bits) / len(bits)):.4g}"
    assert whole[:-1] in said
    assert "; 0 not in the vocabulary" in said
    assert all(float(row["depth"]) == 2 < float(row["cost"]) for row in rows)
    text = tmp_path / "own.txt"
    text.write_text('w1 zebra "w2"\nw1 w2\n')
    done(f"score {language_run} {text} --out {out} --apart --max_depth 1")
    said, rows = capsys.readouterr().out, table(out)
    assert "7 words" in said
    assert "depth 1.000; 2 not in the vocabulary, read as <unk>" in said
    assert [row["token"] for row in rows] == ["w1", "zebra", '"w2"', "<eos>", "w1", "w2", "<eos>"]
    assert [row["known"] for row in rows] == list("1001111")
    assert rows[0]["bits"] == rows[4]["bits"]


def test_scores_that_cannot_be_had(language_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "binary").write_bytes(b"w1 w2\nw\xff")
    out = tmp_path / "words.csv"
    out.write_text("of before")
    not_text = "binary, line 2: byte 0xff is not utf-8; this is not text in utf-8; give its encoding with"
    wrong = {
        f"{tmp_path / 'empty'} --out {out}": "empty is empty",
        f"{tmp_path / 'binary'} --out {out}": f"{not_text} --data.encoding, or --encoding of score",
        f"{tmp_path / 'none'} --out {out}": "none: No such file or directory",
        f"{out} --out {tmp_path}": "--out must be a file",
        f"{out} --encoding klingon": "encoding must be the name of a text encoding",
        f"{out} --out {out}": "--out must be a file of its own",
        f"{out} --out {language_run / 'model.json'}": "--out must be a file of its own",
    }
    before = (language_run / "model.json").read_bytes()
    for words, told in wrong.items():
        assert told in refused(f"score {language_run} {words}", capsys)
    assert (language_run / "model.json").read_bytes() == before
    assert out.read_text() == "of before"
    assert len(list(tmp_path.iterdir())) == 3


def test_characters_in_a_table(tmp_path: Path) -> None:
    """Those that mean something in a table, and ends of lines of all kinds, come back from it."""
    text = 'a,"\r\n\n\u2028 \t'
    rows = [Scored(1, at, letter, True, 0.5, 1.0, None) for at, letter in enumerate(text, 1)]
    assert list(_written(rows, tmp_path / "table.csv")) == rows
    assert [(row["token"], row["cost"]) for row in table(tmp_path / "table.csv")] == [(each, "") for each in text]


def test_a_text_that_is_all_but_ruled_out(
    language_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = eirehn.load(language_run)
    model.embedding.weight.data.mul_(1e6)
    monkeypatch.setattr("eirehn.models.generate.load", lambda *given, **options: model)
    (tmp_path / "text").write_text("w1 w2 zebra\n")
    done(f"score {language_run} {tmp_path / 'text'} --device cpu")
    assert "perplexity inf" in capsys.readouterr().out
