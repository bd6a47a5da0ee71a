"""Losses and metrics of the tasks, against their definitions."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from helpers.language import calibrated, small_language_recipe, written
from torch.utils._pytree import tree_map

from eirehn.data.dataset import Split
from eirehn.models import LanguageModel, LanguageNetwork, SequenceModel, SequenceNetwork
from eirehn.training.config import ClassifierOptimisation, LanguageOptimisation, Optimisation
from eirehn.training.loaders import Windows
from eirehn.training.optimizers import make_optimizer
from eirehn.training.tasks import Classification, LanguageModelling, Regression
from eirehn.training.trainer import make_task


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


def test_weights_of_classes() -> None:
    """The mean of weight times cross-entropy."""
    weights = [0.5, 2.0, 1.0]
    task = Classification(members(last=True), ClassifierOptimisation(), class_weights=weights)
    prediction, target = torch.randn(1, 6, 3).double(), torch.tensor([[0, 1, 2, 1, 0, 0]])
    chances = prediction.softmax(-1)[0]
    terms = [-weights[c] * chances[row, c].log() for row, c in enumerate(target[0].tolist())]
    assert task.errors(prediction, target)[0].item() == pytest.approx((sum(terms) / 6).item(), rel=1e-12)


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


def hand_written_loss(model: LanguageModel, x: torch.Tensor, target: torch.Tensor, h: torch.Tensor) -> Any:
    """An RHN of depth 1 and the tied softmax, one operation at a time."""
    cell: Any = model.body.cells[0]
    H = cell.hidden_size
    loss = torch.zeros((), dtype=torch.float64)
    for t in range(x.size(1)):
        pre = h @ cell.W_h[0].T + model.embedding.weight[x[:, t]] @ cell.W_x.T + cell.b[0]
        s, gate = torch.tanh(pre[:, :H]), torch.sigmoid(pre[:, H:])
        h = gate * s + (1 - gate) * h
        logits = h @ model.embedding.weight.T + model.bias
        for b in range(x.size(0)):
            chance = logits[b].exp()[target[b, t]] / logits[b].exp().sum()
            loss = loss - chance.log()
    return loss / x.size(0), h.detach()


@pytest.mark.parametrize("clip", [10.0, 0.5], ids=["rarely clipped", "clipped"])
def test_three_steps_of_the_recipe_by_hand(clip: float) -> None:
    """Loss summed over steps and averaged over sequences, penalty, clipping, SGD, the state carried on."""
    torch.manual_seed(0)
    B, T, V, H = 4, 6, 9, 5
    penalty = 1e-2  # large, so that a mistake shows
    optimisation = LanguageOptimisation(
        optimizer="sgd", learning_rate=0.2, penalty=penalty, sum_steps=True, clip=clip
    )
    model = LanguageModel(LanguageNetwork("RHN", H, max_depth=1), V).double()
    task = LanguageModelling([model], optimisation)
    optimizer = make_optimizer(optimisation, task.parameters())
    tokens = torch.randint(0, V, (B, 3 * T + 1))
    h = torch.zeros(B, H, dtype=torch.float64)
    for number in range(3):
        at = slice(number * T, (number + 1) * T)
        x, target = tokens[:, :-1][:, at], tokens[:, 1:][:, at]
        loss, h = hand_written_loss(model, x, target, h)
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
    mean = (task.sums[0] / task.sums[1]).item()  # what is told of training is a mean over tokens all the same
    assert 0.5 < mean < 2 * math.log(V)


def test_a_figure_does_not_depend_on_the_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """One column, whatever the windows: every token but the first, from all before it."""
    torch.manual_seed(0)
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
    from eirehn.training.config import LanguageOptimisation
    from eirehn.training.tasks import LanguageModelling

    torch.manual_seed(0)
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


def test_derivatives(tmp_path: Path) -> None:
    """Of two members, against autograd."""
    recipe = calibrated(small_language_recipe(written(tmp_path, train=500, test=100)))
    task = make_task(replace(recipe, seeds=(0, 1)))
    torch.manual_seed(0)
    logits = 3 * torch.randn(2, 3, 5, 11, dtype=torch.float64)
    target = torch.randint(11, (2, 3, 5))
    factor = torch.ones(2, dtype=torch.float64, requires_grad=True)
    losses = F.cross_entropy((logits * factor.view(2, 1, 1, 1)).flatten(0, 2), target.flatten(), reduction="none")
    slope = torch.autograd.grad(losses.sum(), factor, create_graph=True)[0]
    bend = torch.autograd.grad(slope.sum(), factor)[0]
    found = task.calibration_sums(logits, target)
    torch.testing.assert_close(torch.stack(found), torch.stack([slope.detach(), bend]), rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("sums", "found"),
    [
        ((0.0, 10.0), 1.5),
        ((1.0, 10.0), 1.5 / 0.9),
        ((-1.0, 10.0), 1.5 / 1.1),
        ((100.0, 10.0), 1.5 / 0.8),
        ((-100.0, 10.0), 1.5 / 1.25),
        ((math.inf, 10.0), 1.5),
        ((math.nan, 10.0), 1.5),
        ((1.0, math.inf), 1.5),
        ((1.0, 0.0), 1.5),
        ((0.0, 0.0), 1.5),
    ],
)
def test_sums_that_say_little(sums: tuple[float, float], found: float, tmp_path: Path) -> None:
    recipe = calibrated(small_language_recipe(written(tmp_path, train=500, test=100), average=0.9))
    task = make_task(recipe)
    assert isinstance(task, LanguageModelling)
    assert task.temperature_at is not None
    with torch.no_grad():
        task.ensemble.stacked[task.temperature_at].fill_(1.5)
        task.calibrate(torch.tensor(sums, dtype=torch.float64)[:, None])
    for values in (task.ensemble.stacked, task.averages.values):
        assert values[task.temperature_at].tolist() == [pytest.approx(found)]


def test_bounds_of_a_temperature(tmp_path: Path) -> None:
    task = make_task(calibrated(small_language_recipe(written(tmp_path, train=500, test=100))))
    with torch.no_grad():
        for _ in range(25):
            task.calibrate(torch.tensor([[100.0], [1.0]], dtype=torch.float64))
        assert task.ensemble.values()["temperature"].tolist() == [10.0]
        for _ in range(25):
            task.calibrate(torch.tensor([[-100.0], [1.0]], dtype=torch.float64))
        assert task.ensemble.values()["temperature"].tolist() == [pytest.approx(0.1)]
