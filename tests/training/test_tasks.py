"""Losses and metrics of the tasks, against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_map

from eirehn.data.dataset import Split
from eirehn.models import LanguageModel, LanguageNetwork, SequenceModel, SequenceNetwork
from eirehn.training.config import ClassifierOptimisation, LanguageOptimisation, Optimisation
from eirehn.training.loaders import Windows
from eirehn.training.optimizers import make_optimizer
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


@pytest.mark.parametrize(("smoothing", "class_weights"), [(0.0, None), (0.1, None), (0.0, [0.5, 2.0, 1.0])])
def test_classification(smoothing: float, class_weights: list[float] | None) -> None:
    """The mean of weight times cross-entropy, a share of each target dealt to 3 classes."""
    optimisation = ClassifierOptimisation(smoothing=smoothing)
    task = Classification(members(last=True), optimisation, class_weights=class_weights)
    prediction, target = torch.randn(2, 5, 3).double(), torch.randint(0, 3, (2, 5))
    logs = prediction.numpy() - np.log(np.exp(prediction.numpy()).sum(-1, keepdims=True))
    weights = np.full((2, 5, 3), smoothing / 3) + (1 - smoothing) * np.eye(3)[target.numpy()]
    if class_weights is not None:
        weights *= np.array(class_weights)[target.numpy()][..., None]
    np.testing.assert_allclose(task.errors(prediction, target), -(weights * logs).sum(-1).mean(1), rtol=1e-9)
    total, count = task.totals(prediction, target)
    np.testing.assert_allclose(total / count, (logs.argmax(-1) == target.numpy()).mean(1))


@pytest.mark.parametrize("clip", [10.0, 0.5], ids=["rarely clipped", "clipped"])
def test_three_steps_of_the_recipe_by_hand(clip: float) -> None:
    """Loss summed over steps and averaged over sequences, penalty, clipping, SGD, the state carried on."""
    B, T, V, H = 4, 6, 9, 5
    penalty = 1e-2  # large, so that a mistake shows
    optimisation = LanguageOptimisation(
        optimizer="sgd", learning_rate=0.2, penalty=penalty, sum_steps=True, clip=clip
    )
    model = LanguageModel(LanguageNetwork("RHN", H, max_depth=1), V).double()
    task = LanguageModelling([model], optimisation)
    optimizer = make_optimizer(optimisation, task.parameters())
    tokens = torch.randint(0, V, (B, 3 * T + 1))
    state = None
    for number in range(3):
        at = slice(number * T, (number + 1) * T)
        x, target = tokens[:, :-1][:, at], tokens[:, 1:][:, at]
        logits, state, *_ = model.run(x, state)
        state = tree_map(torch.Tensor.detach, state)
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="sum") / B
        whole = loss + penalty / 2 * sum(value.square().sum() for value in model.parameters())
        gradients = torch.autograd.grad(whole, list(model.parameters()))
        norm = math.sqrt(sum(float(each.square().sum()) for each in gradients))
        assert (norm > clip) == (clip == 0.5)
        with torch.no_grad():
            for value, gradient in zip(model.parameters(), gradients, strict=True):
                value -= 0.2 * gradient * min(1.0, clip / norm)

        optimizer.zero_grad()
        found = task.training_step((x[None], target[None], 1.0), number)
        torch.testing.assert_close(found, loss.detach(), rtol=1e-7, atol=0)
        found.backward()
        task.configure_gradient_clipping()
        optimizer.step()
        ours = task.ensemble.values()
        for name, value in model.named_parameters():
            torch.testing.assert_close(ours[name][0], value.detach(), rtol=1e-5, atol=1e-7)
    mean = (task.sums[0] / task.sums[1]).item()  # what is reported of training is a mean over tokens all the same
    assert 0.5 < mean < 2 * math.log(V)


def test_a_metric_does_not_depend_on_the_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """One stream, whatever the windows: every token but the first, from all before it."""
    tokens = torch.randint(0, 6, (1, 90))
    model = LanguageModel(
        LanguageNetwork("EIREHN", 8, max_depth=2, output_dropout=0.5, start={"weight_bound": 0.8}), 6
    )
    task = LanguageModelling([model], LanguageOptimisation())
    split = Split(tokens[:, :-1], tokens[:, 1:])
    chances = model.eval()(tokens[:, :-1]).detach().double().softmax(-1).gather(-1, tokens[:, 1:, None])
    expected = math.exp(-chances.log().mean().item())
    for size in (1, 13, 89, 1024):
        monkeypatch.setattr(Windows, "size", size)
        found, depth = task.measure(Windows(split, 1), task.ensemble.values())
        assert found[0] == pytest.approx(expected, rel=1e-5)
        assert depth == [pytest.approx(2.0)]


@pytest.mark.parametrize("members", [1, 2])
def test_training_by_what_came_alone(members: int) -> None:
    """Losses and gradients are those of the whole mixture; a word that was far from likely among them."""
    network = LanguageNetwork("LSTM", 4, pointer=3, start={"weight_bound": 1.0})
    models = [LanguageModel(network, 6).double() for _ in range(members)]
    models[0].bias.data[2] = -50.0
    tokens = torch.randint(0, 6, (members, 3, 9))
    tokens[0, 0, 4] = 2
    task = LanguageModelling(models, LanguageOptimisation())
    assert task.by_target
    task.loss((tokens[..., :4], tokens[..., 1:5], 1.0))
    found = task.loss((tokens[..., 4:8], tokens[..., 5:], 1.0))
    found.backward()
    wanted = torch.zeros(())
    for model, own in zip(models, tokens, strict=True):
        state = model.run(own[:, :4]).state
        p = model.run(own[:, 4:8], tree_map(torch.Tensor.detach, state)).prediction.exp()
        wanted = wanted - p.gather(-1, own[:, 5:, None]).log().mean()
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=0)
    wanted.backward()
    for name, value in zip(task.ensemble.names, task.ensemble.stacked, strict=True):
        gradients = [dict(model.named_parameters())[name].grad for model in models]
        torch.testing.assert_close(value.grad, torch.stack(gradients), rtol=1e-10, atol=1e-14)
    validated = task.evaluate(tokens[0, :, :4], tokens[0, :, 1:5])
    assert validated.shape == (4, members)


def calibrated_task() -> LanguageModelling:
    network = LanguageNetwork("RNN", 4, calibrated=True)
    return LanguageModelling([LanguageModel(network, 11) for _ in range(2)], LanguageOptimisation(average=0.9))


def test_derivatives_of_a_temperature() -> None:
    """Of two members, against autograd."""
    logits = 3 * torch.randn(2, 3, 5, 11, dtype=torch.float64)
    target = torch.randint(11, (2, 3, 5))
    factor = torch.ones(2, dtype=torch.float64, requires_grad=True)
    losses = F.cross_entropy((logits * factor.view(2, 1, 1, 1)).flatten(0, 2), target.flatten(), reduction="none")
    slope = torch.autograd.grad(losses.sum(), factor, create_graph=True)[0]
    bend = torch.autograd.grad(slope.sum(), factor)[0]
    found = calibrated_task().calibration_sums(logits, target)
    torch.testing.assert_close(torch.stack(found), torch.stack([slope.detach(), bend]), rtol=1e-12, atol=0)


UNKNOWN = [(math.inf, 10.0), (math.nan, 10.0), (1.0, math.inf), (1.0, 0.0), (0.0, 0.0)]


@pytest.mark.parametrize(
    ("slope", "bend", "times", "found"),
    [
        (0.0, 10.0, 1, 1.5),
        (1.0, 10.0, 1, 1.5 / 0.9),
        (-1.0, 10.0, 1, 1.5 / 1.1),
        (100.0, 10.0, 1, 1.5 / 0.8),
        (-100.0, 10.0, 1, 1.5 / 1.25),
        (100.0, 1.0, 25, 10.0),
        (-100.0, 1.0, 25, 0.1),
        *((*sums, 1, 1.5) for sums in UNKNOWN),
    ],
)
def test_a_step_of_the_temperature(slope: float, bend: float, times: int, found: float) -> None:
    """Newton's, within bounds, and none where the sums say nothing; of the running average, too. Another member
    keeps its own."""
    task = calibrated_task()
    assert task.temperature_at is not None
    with torch.no_grad():
        task.ensemble.stacked[task.temperature_at].fill_(1.5)
        for _ in range(times):
            task.calibrate(torch.tensor([[slope, 0.0], [bend, 10.0]], dtype=torch.float64))
    for values in (task.ensemble.stacked, task.averages.values):
        assert values[task.temperature_at].tolist() == [pytest.approx(found), 1.5]
