"""`eirehn compare`, as a person starts it."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.command import done, refused
from helpers.tables import classes, long_csv, sequences

from eirehn._internal.files import read_json
from eirehn.cli import main


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "motions.csv"
    path.write_text(long_csv(sequences(30), classes(30)))
    return path


ROLES = "--data.target label --data.sequence id --data.time t"


@pytest.mark.slow
def test_a_file_of_ones_own(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"compare {table} {ROLES} --quick --layers gru,ei-rehn --parameters 900 --jobs 1"
    done(f"{line} --out {tmp_path / 'out'} --results {tmp_path / 'kept.json'}")
    said = capsys.readouterr().out
    assert "| layer" in said
    assert "GRU-" in said
    assert "EI-REHN-" in said
    assert "Quick run" in said
    results = read_json(tmp_path / "kept.json")
    assert results["command"].startswith("eirehn compare")
    assert [row["model"] for row in results["rows"]] == ["GRU", "EIREHN"]
    assert (tmp_path / "out" / "report.html").exists()


def test_numbers_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "numbers.csv"
    path.write_text(long_csv(sequences(30), [row / 7 for row in range(30)]))
    line = f"compare {path} {ROLES} --data.task regression --quick --layers GRU --parameters 500 --jobs 1"
    done(f"{line} --out {tmp_path / 'out'}")
    assert "report:" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("compare", "name"),
        ("compare hra", "no task 'hra'"),
        ("compare nothing.csv", "there is no file"),
        ("compare synthetic --layers LSTN", "did you mean 'LSTM'"),
        ("compare synthetic --layers LSTM,lstm", "each layer once"),
        ("compare synthetic --trials 0", "--trials must be at least 1"),
        ("compare synthetic --tuning-epochs 0", "--tuning-epochs must be at least 1"),
        ("compare synthetic --parameters 2 --layers LSTM", "parameters must be at least"),
        ("compare synthetic --data.target y", "data.target"),
    ],
)
def test_refused(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in refused(line, capsys)


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["compare", "--help"])
    assert "--layers" in capsys.readouterr().out
