"""Where metrics are logged: the choice, and runs at W&B and MLflow that a resumed training continues."""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.processes import killed
from helpers.resume import StopAt, same, train_with_stops
from helpers.small import small
from pytorch_lightning.loggers import CSVLogger

from eirehn._internal.files import RunError, read_json, write_json
from eirehn.training import loggers
from eirehn.training.callbacks import Stopped
from eirehn.training.loggers import logging_to
from eirehn.training.run import RunFolder
from eirehn.training.trainer import train

RECIPE = small(epochs=3)  # of 4 steps each
Points = dict[str, set[tuple[int, float]]]
"""The epochs and values of each metric. Those of epochs whose state was not saved are logged again, the same."""


def metrics(run: Path) -> Points:
    """What `metrics.csv` has."""
    head, *lines = (line.split(",") for line in (run / "metrics.csv").read_text().splitlines())
    found: Points = defaultdict(set)
    for epoch, seed, *values in lines:
        for name, value in zip(head[2:], values, strict=True):
            found[f"{name}/seed_{seed}"].add((int(epoch), float(value)))
    return dict(found)


def on_test_data(run: Path) -> Points:
    result = read_json(run / "result.json")
    return {
        f"test_{name}/seed_{seed}": {(3, result[key][seed])}
        for name, key in (("mse", "values"), ("depth", "depth"))
        for seed in (0, 1)
    }


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """W&B without a network and MLflow in a file."""
    pytest.importorskip("wandb", reason="wandb is not here: pip install '.[wandb]'")
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not here: pip install '.[mlflow]'")
    settings = {
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path / 'mlflow.db'}",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    mlflow.set_tracking_uri(settings["MLFLOW_TRACKING_URI"])
    return settings


def records(path: Path) -> Iterator[Any]:
    """Of a file of W&B: 7 bytes, then blocks of 32 kB of pieces, each with a checksum, its size and its place."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(content):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        size, place = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        whole += content[at + 7 : at + 7 + size]
        at += 7 + size
        if place in (1, 4):  # whole, or the last piece
            record = Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


def at_wandb(run: Path) -> tuple[set[str], list[int], Points]:
    """The ids, the exit codes of all processes that ended, and the metrics, once W&B has written them."""
    until, codes = time.monotonic() + 20, []
    while not codes and time.monotonic() < until:
        ids, codes, found = _at_wandb(run)
        time.sleep(0.1)
    return ids, codes, found


def _at_wandb(run: Path) -> tuple[set[str], list[int], Points]:
    ids, codes, found = set(), [], defaultdict(set)
    for path in sorted((run / "wandb").glob("offline-run-*/*.wandb")):
        for record in records(path):
            if record.HasField("run"):
                ids.add(record.run.run_id)
            if record.HasField("exit"):
                codes.append(record.exit.exit_code)
            items = {
                each.key or "/".join(each.nested_key): json.loads(each.value_json) for each in record.history.item
            }
            for name, value in items.items():
                if "seed" in name:
                    found[name].add((items["trainer/global_step"], value))
    return ids, codes, dict(found)


def at_mlflow(uri: str) -> tuple[list[Any], Points]:
    """The runs, and the metrics of the first."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(uri)
    runs = client.search_runs([client.get_experiment_by_name("eirehn").experiment_id])
    names, found = runs[0].data.metrics, {}
    for name in names:
        found[name] = {(each.step, each.value) for each in client.get_metric_history(runs[0].info.run_id, name)}
    return list(runs), found


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of the two libraries on themselves
def test_a_killed_training_continues_its_runs(services: dict[str, str], tmp_path: Path) -> None:
    train(RECIPE, tmp_path / "plain")
    run = tmp_path / "run"
    script = f"""
        import os, signal
        import pytorch_lightning as pl
        import torch
        from helpers.small import small
        from eirehn.training.trainer import train
        class Kill(pl.Callback):
            def on_train_batch_end(self, trainer, *_):
                if trainer.global_step == 10:
                    os.kill(os.getpid(), signal.SIGKILL)
        torch.set_num_threads(1)
        train(small(epochs=3), {str(run)!r}, callbacks=[Kill()], loggers=["wandb", "mlflow"])
    """
    killed(script, **services)
    assert len(metrics(run)["mse/seed_0"]) == 2
    assert not (run / "last.ckpt").exists()
    train(RECIPE, run)
    same(run, tmp_path / "plain")
    expected = metrics(run) | on_test_data(run)
    ids, codes, found = at_wandb(run)
    assert (ids, codes) == ({read_json(run / "loggers.json")["ids"]["wandb"]}, [0])
    assert found == expected
    runs, found = at_mlflow(services["MLFLOW_TRACKING_URI"])
    assert [(each.info.run_name, each.info.status) for each in runs] == [("run", "FINISHED")]
    assert found == expected
    assert runs[0].data.params["network/hidden_size"] == "5"
    assert not (run / "tensorboard").exists()


def test_loggers_are_kept_by_a_run(tmp_path: Path) -> None:
    train_with_stops(RECIPE, tmp_path / "default", [StopAt(2, killed=False)], 0)
    assert (tmp_path / "default" / "tensorboard").is_dir()
    assert not (tmp_path / "default" / "loggers.json").exists()
    run = tmp_path / "csv"
    with pytest.raises(Stopped):
        train(RECIPE, run, loggers=["csv"], callbacks=[StopAt(2, killed=False)])
    train(RECIPE, run)
    assert not (run / "tensorboard").exists()
    same(run, tmp_path / "default")


def test_loggers_that_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    with pytest.raises(ValueError, match="logger must be one of tensorboard, csv, wandb, mlflow, got 'neptune'"):
        train(RECIPE, run, loggers=["csv", "neptune"])
    for name in ("wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(
            ModuleNotFoundError, match=rf"^{name} is not installed: pip install 'eirehn\[{name}\]'$"
        ):
            train(RECIPE, run, loggers=[name])
    assert not run.exists()
    train(replace(RECIPE, seeds=(0,)), run)
    (run / "result.json").unlink()
    for damaged in ([], {"loggers": ["neptune"], "ids": {}}, {"loggers": ["csv"], "ids": 3}):
        write_json(run / "loggers.json", damaged)
        with pytest.raises(RunError, match=r"loggers.json is damaged"):
            train(replace(RECIPE, seeds=(0,)), run)


class Service(CSVLogger):
    """W&B, in place of its logger and of its module."""

    run: Any = None
    fails = False

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "logs")
        self.result = folder / "run" / "result.json"
        self.ended: list[int] = []

    def started(self, run: RunFolder, known: str | None) -> Service:
        if self.fails:
            raise OSError("no network")
        return self

    def finish(self, exit_code: int) -> None:
        self.ended.append(exit_code)
        raise OSError("cannot finish")

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        raise OSError(f"cannot log\nepoch {step} {'after' if self.result.exists() else 'before'} the result")

    def finalize(self, status: str) -> None:
        raise OSError(f"cannot end as {status}")


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Service:
    made = Service(tmp_path)
    monkeypatch.setitem(sys.modules, "wandb", made)
    monkeypatch.setattr(loggers, "need", lambda *_: None)
    monkeypatch.setattr(loggers, "_wandb", made.started)
    return made


def test_a_service_that_fails_later_is_a_warning(service: Service, tmp_path: Path) -> None:
    recipe, run = small(epochs=1), tmp_path / "run"
    with pytest.warns(UserWarning, match="^wandb: ") as warned:
        result = train(recipe, run, loggers=["wandb"])
    assert [str(each.message) for each in warned] == [
        "wandb: cannot log epoch 1 before the result",
        "wandb: cannot end as success",
        "wandb: cannot log epoch 1 after the result",  # on test data
        "wandb: cannot finish",
    ]
    assert read_json(run / "result.json") == result


def test_only_a_run_of_our_own_is_ended(service: Service, tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    with pytest.warns(match="cannot finish"), logging_to(run, RECIPE, ["wandb"]):
        pass
    assert service.ended == [0]
    service.run = "of a sweep"
    with logging_to(run, RECIPE, ["wandb"]):
        pass
    service.run, service.fails = None, True
    with pytest.raises(RunError, match=r"^wandb: no network$"), logging_to(run, RECIPE, ["wandb"]):
        pass
    assert service.ended == [0]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.usefixtures("services")
def test_a_service_that_fails(tmp_path: Path) -> None:
    """W&B's run ends before the error of MLflow, so that the next training has its own."""
    run = tmp_path / "run"
    import mlflow
    import wandb

    mlflow.set_tracking_uri("nothing://here")
    with pytest.raises(RunError, match=r"^mlflow: [^\n]+$"):
        train(RECIPE, run, loggers=["wandb", "mlflow"])
    assert wandb.run is None
    assert at_wandb(run)[1] == [1]
