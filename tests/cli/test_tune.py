"""`eirehn tune`, as a person starts it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers.command import done, refused
from helpers.tables import classes, long_csv, sequences

from eirehn._internal.files import read_json
from eirehn.training.run import RunFolder

ROLES = "--data.target label --data.sequence id --data.time t"
TINY = "--network.hidden-size 4 --seed 0 --hardware.accelerator cpu --jobs 1"


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "motions.csv").write_text(long_csv(sequences(30), classes(30)))
    return f"tune --recipe classify --data motions.csv {ROLES} {TINY}"


def test_a_file_of_ones_own(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"{table} --data.validation 0.3 --epochs 1 --trials 2 --lr 0.02 --storage sqlite:///shared.db"
    line += " --search network.weight_update=bounded,scaling optimisation.weight-decay=0:0.1"
    done(line)
    said = capsys.readouterr().out
    assert all(word in said for word in ("| trial", "weight update", "2 trials (2 complete)"))
    found = Path("runs/tune-classify")
    results = read_json(found / "results.json")
    assert results["command"] == f"eirehn {line}"
    assert [each["state"] for each in results["trials"]] == ["complete"] * 2
    done(line)  # again: nothing is left to do
    assert read_json(found / "results.json")["trials"] == results["trials"]
    done(re.findall(r"\(eirehn (train --config .*)\)", said)[0])
    best = next(each for each in results["trials"] if each["number"] == results["best"])
    assert read_json(Path("runs/classify-tuned/result.json"))["best_validation"] == [best["value"]]
    assert RunFolder("runs/classify-tuned").recipe().optimisation.learning_rate == 0.02
    assert "Search: classify" in (found / "report.html").read_text()


def test_mistakes(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    for line, said in (
        ("tune", "--recipe is missing"),
        ("tune motions.csv", "did you mean --recipe classify --data motions.csv? (eirehn tune --help)"),
        (table, "a search needs validation data"),
        (f"{table} --trials 0", "--trials must be at least 1"),
        (f"{table} --trails 3", "unknown flag --trails; did you mean --trials?"),
        (f"{table} --resume runs", "unknown flag --resume"),
        (f"{table} --search lr=1:2 --lr 1", "given as a flag and in --search"),
        (f"{table} --search lr=1:0", "--search lr must rise"),
        (f"{table} --data.validation 0.3 --storage nothing", "the storage nothing cannot be used"),
    ):
        assert said in refused(line, capsys)
    assert not list(Path("runs").glob("*/trials/*/*"))


@pytest.mark.slow
def test_on_a_cluster(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    distributed = pytest.importorskip("distributed")
    line = f"{table} --data.validation 0.3 --epochs 1 --trials 3".replace("--jobs 1", "--jobs 2")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        done(f"{line} --dask {cluster.scheduler_address}")
    assert "3 trials (3 complete)" in capsys.readouterr().out
    trials = read_json(Path("runs/tune-classify/results.json"))["trials"]
    results = [read_json(Path(f"runs/tune-classify/trials/classify-00{number}/result.json")) for number in range(3)]
    assert [[each["value"]] for each in trials] == [each["best_validation"] for each in results]
