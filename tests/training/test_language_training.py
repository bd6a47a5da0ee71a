"""The optimisation of the language models, step by step, against plain float64 torch written out by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from helpers.language import small_language_recipe, written
from torch import nn

from eirehn.data.dataset import Split
from eirehn.models import LanguageModel, LanguageNetwork
from eirehn.training.averaging import Averages
from eirehn.training.config import LanguageOptimisation, Recipe
from eirehn.training.loaders import Columns, Data, Windows, most_tokens
from eirehn.training.optimizers import make_optimizer, schedule
from eirehn.training.tasks import LanguageModelling
from eirehn.training.trainer import make_task, make_trainer, quiet

RECIPE = LanguageOptimisation(
    optimizer="sgd",
    learning_rate=0.2,
    schedule="decay",
    decay=1.02,
    decay_from=20,
    penalty=1e-7,
    sum_steps=True,
    clip=10.0,
)


def text(count: int) -> Split:
    tokens = torch.arange(count, dtype=torch.int32)
    return Split(tokens[None, :-1], tokens[None, 1:])


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


def test_the_learning_rate_of_every_epoch() -> None:
    """As the RHN authors have it, epochs counted from 0: 0.2 / 1.02^max(i − 20 + 1, 0)."""

    an_epoch = 1327
    rate = schedule(replace(RECIPE, epochs=500), 500 * an_epoch)
    for epoch in (0, 1, 18, 19, 20, 21, 100, 499):
        expected = 1.02 ** -max(epoch - 20 + 1, 0)
        assert rate(epoch * an_epoch) == pytest.approx(expected, rel=1e-12)
        assert rate((epoch + 1) * an_epoch - 1) == pytest.approx(expected, rel=1e-12)
    assert rate(20 * an_epoch) == pytest.approx(1 / 1.02)
    assert rate(20 * an_epoch - 1) == 1.0


def test_columns_are_read_on() -> None:
    """A text of 0, 1, 2, … in three columns: the arithmetic of who reads what when."""
    loader = Columns(text(101), 3, 4, members=2)
    assert len(loader) == 33 // 4
    batches = list(loader)
    assert len(batches) == 8
    for number, (x, target, share) in enumerate(batches):
        assert x.shape == (2, 3, 4)
        assert x.dtype == torch.int64
        assert share == 1.0
        expected = np.arange(4) + 4 * number + 33 * np.arange(3)[:, None]
        assert x[0].tolist() == x[1].tolist() == expected.tolist()
        assert target[0].tolist() == (expected + 1).tolist()
    assert [x.tolist() for x, *_ in loader] == [x.tolist() for x, *_ in batches]  # every epoch the same


def test_columns_go_on_from_where_they_were() -> None:
    whole = [x.tolist() for x, *_ in Columns(text(101), 3, 4)]
    for stop in range(1, 8):
        loader = Columns(text(101), 3, 4)
        for number, _ in enumerate(loader, 1):
            if number == stop:
                break
        other = Columns(text(101), 3, 4)
        other.load_state_dict(loader.state_dict())
        assert [x.tolist() for x, *_ in other] == whole[stop:]
        assert [x.tolist() for x, *_ in other] == whole


def test_processes_share_the_columns() -> None:
    parts = [next(iter(Columns(text(101), 3, 4, rank=rank, world=2))) for rank in range(2)]
    assert [x[0, :, 0].tolist() for x, *_ in parts] == [[0, 66], [33]]
    assert [share for *_, share in parts] == [pytest.approx(4 / 3), pytest.approx(2 / 3)]


def test_epochs_that_begin_elsewhere() -> None:
    """A ring of 0, 1, …, 100, whose last target is 101: columns read on, and so does who goes on later."""
    loader, begun = Columns(text(102), 3, 4, seeds=(5,)), []
    for epoch in range(4):
        loader.set_epoch(epoch)
        batches = [(x[0], target[0]) for x, target, _ in loader]
        assert len(batches) == 8
        begun.append(int(batches[0][0][0, 0]))
        for number, (x, target) in enumerate(batches):
            expected = (begun[-1] + np.arange(4) + 4 * number + 33 * np.arange(3)[:, None]) % 101
            assert x.tolist() == expected.tolist()
            assert target.tolist() == (expected + 1).tolist()
        other = Columns(text(102), 3, 4, seeds=(5,))
        other.set_epoch(epoch)
        other.load_state_dict({"position": 3})
        assert [x[0].tolist() for x, *_ in other] == [x.tolist() for x, _ in batches[3:]]
    assert len(set(begun)) == 4
    assert next(iter(Columns(text(102), 3, 4, seeds=(6,))))[0][0, 0, 0] != begun[0]


def test_a_training_shifts_its_text(tmp_path: Path) -> None:
    seen = {}
    for shift in (False, True):
        recipe = small_language_recipe(written(tmp_path, train=400), epochs=2, shift=shift)
        seen[shift] = Beginnings()
        with quiet():
            trainer = make_trainer(recipe, None, [seen[shift]])
            trainer.fit(make_task(recipe), datamodule=Data(recipe, recipe.data.load()))
    first, second = seen[False].found
    assert first == second
    assert len({tuple(each) for each in [first, *seen[True].found]}) == 3


def test_members_begin_as_if_alone() -> None:
    together = Columns(text(102), 3, 4, members=2, seeds=(5, 6))
    for index, seed in enumerate((5, 6)):
        alone = Columns(text(102), 3, 4, seeds=(seed,))
        for epoch in range(3):
            alone.set_epoch(epoch)
            together.set_epoch(epoch)
            for (x, target, _), (own, wanted, _) in zip(together, alone, strict=True):
                assert torch.equal(x[index], own[0])
                assert torch.equal(target[index], wanted[0])


class Beginnings(pl.Callback):
    """The first words of each epoch."""

    def __init__(self) -> None:
        self.found: list[list[int]] = []

    def on_train_batch_start(self, trainer: pl.Trainer, task: pl.LightningModule, batch: Any, index: int) -> None:
        if index == 0:
            self.found.append(batch[0][0, 0].tolist())


def test_a_text_too_short_to_train_on() -> None:
    with pytest.raises(ValueError, match="too short"):
        Columns(text(10), 3, 4)


def test_how_much_is_validated_at_once() -> None:
    """At most some hundred megabytes on a GPU, whatever the vocabulary, the network and the members."""
    gpu = torch.device("cuda")

    def most(words: int, device: torch.device = gpu, seeds: int = 1, **network: int) -> int:
        recipe = SimpleNamespace(
            data=SimpleNamespace(output_size=words), network=LanguageNetwork(**network), seeds=tuple(range(seeds))
        )
        return most_tokens(cast(Recipe, recipe), device)

    assert most(10_000, torch.device("cpu"), hidden_size=1200) == 1024
    assert most(10_000, hidden_size=1200) == 3355
    assert most(50, hidden_size=1200) == 3495
    assert most(50, hidden_size=10) == 4096
    assert most(10_000, hidden_size=1200, seeds=5) == 1024
    assert most(50, hidden_size=10, pointer=100) == 1024
    assert most(1_000_000, hidden_size=10) == 1024


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_windows_cover_the_text(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Windows, "size", 20)
    found = torch.cat([part.target for part in Windows(text(101), batch)], 1)
    assert found.shape == (batch, 100 // batch)
    assert found.flatten().tolist() == list(range(1, batch * (100 // batch) + 1))


def test_a_text_with_fewer_tokens_than_columns() -> None:
    """As many columns as there are tokens, of one each: there is a figure, whatever the batch size."""
    windows = Windows(text(5), 20)
    assert len(windows) == 1
    assert [part.target.tolist() for part in windows] == [[[1], [2], [3], [4]]]


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


def test_a_running_average_is_not_of_the_start_for_long() -> None:
    averages = Averages(0.999, [torch.zeros(1, 1)])
    for _ in range(50):
        averages.update([torch.full((1, 1), 4.0)])
    assert averages.values[0].item() == pytest.approx(4.0, rel=1e-5)  # else it would be 0.2
    # A state of version 0.1, which did not count its steps, resumes as it began.
    averages = Averages(0.9, [torch.zeros(1, 1)])
    old = {name: value for name, value in averages.state_dict().items() if name != "steps"}
    averages.load_state_dict(old)
    averages.update([torch.ones(1, 1)])
    assert averages.values[0].item() == pytest.approx(0.1)


def test_sgd_keeps_nothing() -> None:
    """So that weights and position are all of a training's state."""
    parameter = nn.Parameter(torch.ones(3))
    optimizer = make_optimizer(RECIPE, [parameter])
    parameter.grad = torch.ones(3)
    optimizer.step()
    assert not optimizer.state_dict()["state"] or all(
        value is None for state in optimizer.state_dict()["state"].values() for value in state.values()
    )


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_recurrent_layers_have_a_rate_of_their_own(optimizer: str) -> None:
    """Of one step all of them move by that much less, and nothing else does; the schedule falls for both."""
    moved = {}
    for factor in (1.0, 0.25):
        torch.manual_seed(0)
        optimisation = LanguageOptimisation(optimizer=optimizer, learning_rate=0.1, recurrent_rate=factor)
        network = LanguageNetwork("EIREHN", 6, max_depth=2)
        task = LanguageModelling([LanguageModel(network, 9).double()], optimisation)
        made = make_optimizer(optimisation, task.parameters(), task.ensemble.recurrent())
        schedule = torch.optim.lr_scheduler.LambdaLR(made, lambda step: 0.5)
        before = {name: value.clone() for name, value in task.ensemble.values().items()}
        tokens = torch.randint(0, 9, (1, 3, 8), generator=torch.Generator().manual_seed(1))
        task.training_step((tokens[..., :-1], tokens[..., 1:], 1.0), 0).backward()
        made.step()
        moved[factor] = {name: value - before[name] for name, value in task.ensemble.values().items()}
        assert [group["lr"] for group in made.param_groups] == ([0.05] if factor == 1 else [0.05, 0.0125])
        assert schedule.get_last_lr()[0] == 0.05
    for name, whole in moved[1.0].items():
        share = 0.25 if name.startswith("body.") else 1.0
        torch.testing.assert_close(moved[0.25][name], share * whole, rtol=1e-6, atol=1e-12)
        assert whole.abs().max() > 0
    assert any(name.startswith("body.") for name in moved[1.0])
    with pytest.raises(ValueError, match="recurrent_rate"):
        LanguageOptimisation(recurrent_rate=0.0)
    with pytest.raises(ValueError, match="soap"):
        LanguageOptimisation(recurrent_rate=0.5, optimizer="soap")
