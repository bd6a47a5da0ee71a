"""Losses and metrics of the tasks, against their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

from eirehn.models import LanguageModel, LanguageNetwork, SequenceModel, SequenceNetwork
from eirehn.training.config import ClassifierOptimisation, LanguageOptimisation, Optimisation
from eirehn.training.optimizers import schedule as make_schedule
from eirehn.training.task import Task
from eirehn.training.tasks import Classification, LanguageModelling, Regression


def members(*, last: bool) -> list[SequenceModel]:
    return [SequenceModel(SequenceNetwork("EIREHN", 4, max_depth=2), 2, 3, last=last) for _ in range(2)]


def test_regression() -> None:
    task = Regression(members(last=False), Optimisation())
    prediction, target = torch.randn(2, 5, 7, 3), torch.randn(2, 5, 7, 3)
    expected = ((prediction - target).numpy() ** 2).reshape(2, -1)
    np.testing.assert_allclose(task.errors(prediction, target), expected.mean(1), rtol=1e-6)
    total, count = task.totals(prediction, target)
    np.testing.assert_allclose(total / count, expected.mean(1), rtol=1e-6)


def test_classification() -> None:
    task = Classification(members(last=True), ClassifierOptimisation())
    prediction, target = torch.randn(2, 5, 3), torch.randint(0, 3, (2, 5))
    exponentials = np.exp(prediction.numpy())
    chances = exponentials / exponentials.sum(-1, keepdims=True)
    picked = np.take_along_axis(chances, target.numpy()[..., None], -1)[..., 0]
    np.testing.assert_allclose(task.errors(prediction, target), -np.log(picked).mean(1), rtol=1e-5)
    total, count = task.totals(prediction, target)
    np.testing.assert_allclose(total / count, (chances.argmax(-1) == target.numpy()).mean(1))


def test_smoothed_classes() -> None:
    """A tenth of a target's weight, dealt to 3 classes."""
    task = Classification(members(last=True), ClassifierOptimisation(smoothing=0.1))
    prediction, target = torch.randn(2, 5, 3), torch.randint(0, 3, (2, 5))
    logs = prediction.numpy() - np.log(np.exp(prediction.numpy()).sum(-1, keepdims=True))
    weights = np.full((2, 5, 3), 0.1 / 3) + 0.9 * np.eye(3)[target.numpy()]
    np.testing.assert_allclose(task.errors(prediction, target), -(weights * logs).sum(-1).mean(1), rtol=1e-5)


def test_the_best_epoch_is_that_of_the_best_metric() -> None:
    """Of the lowest error, and of the highest accuracy."""
    for kind, expected in ((Regression, 1), (Classification, 2)):
        task: Task = kind(members(last=True), ClassifierOptimisation())
        for epoch, metric in enumerate([0.5, 0.2, 0.7, 0.6]):
            task.best.consider(task.sign * torch.tensor([metric, metric]).double(), epoch, task.ensemble)
        assert task.best.epoch.tolist() == [expected] * 2


def test_classes_are_learned() -> None:
    """Whether a sequence sums to more than zero, of sequences not seen."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 10, 2, generator=generator)
    target = (x[..., 0].sum(1) > 0).long()
    task = Classification(
        [SequenceModel(SequenceNetwork("EIREHN", 12, max_depth=3), 2, 2, last=True)], ClassifierOptimisation()
    )
    optimizer = torch.optim.Adam(task.parameters(), 0.02)
    for _ in range(150):
        rows = torch.randint(0, 200, (1, 40), generator=generator)
        outcome = task.ensemble(x[rows])
        optimizer.zero_grad()
        task.errors(outcome.prediction, target[rows]).sum().backward()
        optimizer.step()
    accuracy, _ = task.measure([(x[200:], target[200:])], task.ensemble.values())  # type: ignore[list-item]
    assert accuracy[0] > 0.9
    assert isinstance(task, pl.LightningModule)


def test_the_price_of_depth_lowers_depth() -> None:
    depths = []
    for price in (0.0, 0.05):
        task = Regression(members(last=False)[:1], Optimisation(price=price))
        optimizer = torch.optim.Adam(task.parameters(), 0.05)
        x, target = torch.randn(1, 16, 6, 2), torch.zeros(1, 16, 6, 3)
        for step in range(60):
            optimizer.zero_grad()
            task.training_step((x, target, 1.0), step).backward()
            optimizer.step()
        depths.append(task.ensemble(x).depth.double().mean().item())
    assert depths[1] < depths[0]


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_schedules(schedule: str) -> None:
    rate = make_schedule(Optimisation(schedule=schedule, warmup=0.1), 100)
    assert rate(0) == pytest.approx(1 / 11)
    assert rate(10) == pytest.approx(1.0)
    assert rate(55) == pytest.approx(1.0 if schedule == "constant" else 0.5)
    assert rate(100) == pytest.approx(1.0 if schedule == "constant" else 0.0)


def test_a_rate_beyond_all_numbers() -> None:
    options: dict[str, Any] = {"schedule": "decay", "decay": 0.5, "decay_from": 0}
    with pytest.raises(ValueError, match=r"decay 0.5 makes the rate grow beyond all numbers in 1000 epochs"):
        Optimisation(epochs=1000, **options)
    assert make_schedule(Optimisation(epochs=900, **options), 9000)(8999) == 2.0**900
    for wrong in ("0", None):
        with pytest.raises(ValueError, match=f"decay_from must be an integer of at least 0, got {wrong!r}"):
            Optimisation(**options | {"decay_from": wrong})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0),
        ("batch_size", -1),
        ("learning_rate", 0.0),
        ("learning_rate", float("inf")),
        ("clip", 0.0),
        ("price", -1.0),
        ("average", 1.0),
        ("warmup", -0.1),
        ("beta1", 1.0),
        ("schedule", "linear"),
    ],
)
def test_wrong_settings(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        Optimisation(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["x", None, False])
def test_no_numbers(value: object) -> None:
    with pytest.raises(TypeError, match="beta1 should be a number"):
        Optimisation(beta1=value)  # type: ignore[arg-type]


def test_language_modelling() -> None:
    """Perplexity by definition, and a text read in pieces as it is read whole."""
    models = [LanguageModel(LanguageNetwork("EIREHN", 6, max_depth=2), 5) for _ in range(2)]
    task = LanguageModelling(models, LanguageOptimisation())
    tokens = torch.randint(0, 5, (3, 21))
    pieces = [(tokens[:, at : at + 5], tokens[:, at + 1 : at + 6]) for at in range(0, 20, 5)]
    perplexity, _ = task.measure(pieces, task.ensemble.values())  # type: ignore[arg-type]
    for model, found in zip(models, perplexity, strict=True):
        logits = model(tokens[:, :-1]).detach().double().numpy()
        chances = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        picked = np.take_along_axis(chances, tokens[:, 1:].numpy()[..., None], -1)
        assert found == pytest.approx(np.exp(-np.log(picked).mean()), rel=1e-5)


def test_language_is_learned_across_batches() -> None:
    """Tokens 1 or 2 stand for a whole sequence and are asked for long after the batch that told which: only a state
    that is carried on knows."""
    told = torch.randint(1, 3, (64, 1))
    text = torch.cat([told, torch.zeros(64, 6, dtype=torch.int64), told], 1)  # asked for in the third piece
    pieces = [(text[:, at : at + 3], text[:, at + 1 : at + 4]) for at in (0, 3)] + [(text[:, 6:7], text[:, 7:8])]
    task = LanguageModelling([LanguageModel(LanguageNetwork("EIREHN", 16, max_depth=2), 3)], LanguageOptimisation())
    optimizer = torch.optim.Adam(task.parameters(), 0.02)
    for _ in range(200):
        task.on_train_epoch_start()
        optimizer.zero_grad()
        state, loss = None, torch.zeros(())
        for x, target in pieces:
            outcome = task.ensemble(x[None], state)
            state = outcome.state
            loss = loss + task.errors(outcome.prediction, target[None]).sum()
        loss.backward()
        optimizer.step()
    answers, _ = task.measure(pieces, task.ensemble.values())  # type: ignore[arg-type]
    # The first token cannot be known, and is not asked for: the rest can be, if the state is carried.
    assert answers[0] < 1.1
