"""Where the metrics of every epoch are logged, beside `metrics.csv`: Lightning's loggers by name."""

from __future__ import annotations

import os
import secrets
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from pytorch_lightning.loggers import Logger, MLFlowLogger, TensorBoardLogger, WandbLogger

from .._internal.checks import one_of
from .._internal.extras import need
from .._internal.files import RunError, read_json, write_json
from .config import Recipe
from .run import LOGS, RunFolder, first_process

LOGGERS = ("tensorboard", "csv", "wandb", "mlflow")
"""csv is `metrics.csv` alone, which is always written."""
SERVICES = ("wandb", "mlflow")


def check_loggers(names: Sequence[str]) -> None:
    """Raises an error if there is no such logger, or its library is not installed."""
    for name in names:
        one_of("logger", name, LOGGERS)
    need(*(name for name in names if name in SERVICES))


@contextmanager
def logging_to(run: RunFolder, recipe: Recipe, names: Sequence[str] | None) -> Iterator[list[Logger]]:
    """The loggers of these names, or those that the run has had. A resumed training continues its run in each
    service, whose id is in the folder."""
    if not first_process():  # the others log nothing
        yield [_tensorboard(run)]
        return
    about = _read(run)
    ids, used = about["ids"], about["loggers"] if names is None else list(dict.fromkeys(names))
    check_loggers(used)
    if used != about["loggers"]:
        _write(run, used, ids)
    loggers: list[Logger] = [_tensorboard(run)] if "tensorboard" in used else []
    code, finish = 1, False
    try:
        for name in (each for each in used if each in SERVICES):
            new = name not in ids
            if new and name == "wandb":  # which takes an id of ours, written before the run starts
                ids[name] = secrets.token_hex(4)
                _write(run, used, ids)
            active = getattr(sys.modules.get("wandb"), "run", None)  # as in a sweep of W&B: used, but not ended
            logger = _started(name, run, ids.get(name))
            finish = finish or (name == "wandb" and active is None)
            if new:
                ids[name] = str(logger.version)
                _write(run, used, ids)
                logger.log_hyperparams(recipe.to_dict())
            loggers.append(logger)
        yield loggers
        code = 0
    finally:
        if finish:
            import wandb

            _or_warn("wandb", wandb.finish, exit_code=code)


def log_result(loggers: Sequence[Logger], recipe: Recipe, result: Mapping[str, Any]) -> None:
    """Logs the metric and the depth of each seed on test data to the services."""
    found = {
        f"test_{name}/seed_{seed}": value
        for name, values in ((result["metric"], result["values"]), ("depth", result["depth"]))
        for seed, value in zip(recipe.seeds, values, strict=True)
    }
    for logger in loggers:
        if not isinstance(logger, TensorBoardLogger):
            logger.log_metrics(found, step=recipe.optimisation.epochs)


def _tensorboard(run: RunFolder) -> TensorBoardLogger:
    return TensorBoardLogger(run.path, LOGS, "", default_hp_metric=False)


def _started(name: str, run: RunFolder, known: str | None) -> Logger:
    """A logger whose run in the service has started, or continues if its id is known."""
    try:
        logger = _wandb(run, known) if name == "wandb" else _mlflow(run, known)
    except Exception as error:
        raise RunError(f"{name}: {' '.join(str(error).split())}") from error
    for method in ("log_hyperparams", "log_metrics", "finalize"):
        setattr(logger, method, partial(_or_warn, name, getattr(logger, method)))
    return logger


def _or_warn(name: str, call: Callable[..., None], *args: Any, **options: Any) -> None:
    """Calls a service. Its errors become warnings: the training goes on without it."""
    try:
        call(*args, **options)
    except Exception as error:
        # Of this module: those of Lightning, which may be the caller, are silenced.
        warnings.warn(f"{name}: {' '.join(str(error).split()) or repr(error)}", stacklevel=1)


def _wandb(run: RunFolder, known: str | None) -> Logger:
    project = os.environ.get("WANDB_PROJECT", "eirehn")
    logger = WandbLogger(run.path.name, run.path, id=known, project=project)
    logger.experiment  # noqa: B018  # starts it
    return logger


def _mlflow(run: RunFolder, known: str | None) -> Logger:
    import mlflow

    experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", "eirehn")
    logger = MLFlowLogger(experiment, run.path.name, mlflow.get_tracking_uri(), run_id=known)
    logger.experiment.update_run(logger.run_id, "RUNNING")
    return logger


def _read(run: RunFolder) -> dict[str, Any]:
    """The loggers of the run and the ids of its runs in the services."""
    if not run.loggers.exists():
        return {"loggers": ["tensorboard"], "ids": {}}
    about = read_json(run.loggers)
    try:
        check_loggers(about["loggers"])
        return {"loggers": list(about["loggers"]), "ids": {name: str(each) for name, each in about["ids"].items()}}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(f"{run.loggers} is damaged: {error}") from error


def _write(run: RunFolder, names: Sequence[str], ids: Mapping[str, str]) -> None:
    write_json(run.loggers, {"loggers": list(names), "ids": dict(ids)})
