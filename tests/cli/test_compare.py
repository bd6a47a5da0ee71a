"""`eirehn compare`, as a person starts it."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.command import done
from helpers.tables import classes, long_csv, sequences

from eirehn._internal.files import read_json

ROLES = "--data.target label --data.sequence id --data.time t"


@pytest.mark.slow
def test_a_file_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "motions.csv"
    table.write_text(long_csv(sequences(30), classes(30)))
    line = f"compare {table} {ROLES} --quick --layers gru,ei-rehn --parameters 900 --jobs 1"
    done(f"{line} --out {tmp_path / 'out'} --results {tmp_path / 'kept.json'}")
    said = capsys.readouterr().out
    assert all(word in said for word in ("| layer", "GRU-", "EI-REHN-", "Quick run", "report: "))
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
