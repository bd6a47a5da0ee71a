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
from helpers.small import small
from torch import nn

import eirehn.training.fit as fit
from eirehn.data.dataset import Split
from eirehn.data.synthetic import SyntheticData
from eirehn.data.text import TextData
from eirehn.loading import read_values
from eirehn.models import LanguageModel, Network
from eirehn.training.averages import Averages
from eirehn.training.columns import Columns, Windows
from eirehn.training.fit import make_task, train
from eirehn.training.optimisation import Optimisation
from eirehn.training.recipe import Recipe
from eirehn.training.tasks import LanguageModelling

RECIPE = Optimisation(
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
    optimisation = Optimisation(optimizer="sgd", learning_rate=0.2, penalty=penalty, sum_steps=True, clip=clip)
    model = LanguageModel(Network("RHN", H, max_depth=1), V).double()
    task = LanguageModelling([model], optimisation)
    optimizer = optimisation.make(task.parameters())
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
    from dataclasses import replace

    an_epoch = 1327
    rate = replace(RECIPE, epochs=500).rate(500 * an_epoch)
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
        with fit.quiet():
            trainer = fit.make_trainer(recipe, None, [seen[shift]])
            trainer.fit(fit.make_task(recipe), datamodule=fit.Data(recipe, recipe.data.load()))
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
            data=SimpleNamespace(output_size=words), network=Network(**network), seeds=tuple(range(seeds))
        )
        return fit.most_tokens(cast(Recipe, recipe), device)

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
    model = LanguageModel(Network("EIREHN", 8, max_depth=2, output_dropout=0.5, start={"weight_bound": 0.8}), 6)
    task = LanguageModelling([model], Optimisation())
    split = Split(tokens[:, :-1], tokens[:, 1:])
    chances = model.eval()(tokens[:, :-1]).detach().double().softmax(-1).gather(-1, tokens[:, 1:, None])
    expected = math.exp(-chances.log().mean().item())
    for size in (1, 13, 89, 1024):
        monkeypatch.setattr(Windows, "size", size)
        found, depth = task.measure(Windows(split, 1), task.ensemble.values())
        assert found[0] == pytest.approx(expected, rel=1e-5)
        assert depth == [pytest.approx(2.0)]


def step_through(optimisation: Optimisation, epochs: list[list[float]], scores: list[float]) -> list[float]:
    """The average at the end of each epoch, of one number that takes the given values."""
    value = torch.zeros(1, 1)
    averages = Averages(optimisation, [value])
    ends = []
    for epoch, (values, score) in enumerate(zip(epochs, scores, strict=True)):
        averages.start_epoch(epoch)
        for each in values:
            averages.update([torch.full((1, 1), each)])
        ends.append(averages.values[0].item())
        averages.consider(torch.tensor([score]).double())
    return ends


def test_plain_averages() -> None:
    epochs = [[1.0, 2.0], [3.0, 5.0], [7.0, 9.0], [11.0, 2.0]]
    scores = [9.0, 8.0, 7.0, 6.0]
    assert step_through(Optimisation(average_from=2), epochs, scores) == pytest.approx([2.0, 5.0, 8.0, 29 / 4])
    assert step_through(Optimisation(average_from=0), epochs, scores) == pytest.approx(
        [1.5, 11 / 4, 27 / 6, 40 / 8]
    )
    # NT-ASGD with a patience of 1: the fourth epoch is worse than the second, so averaging begins with the fifth.
    epochs, scores = [*epochs, [4.0, 8.0]], [9.0, 7.0, 7.5, 7.4, 7.0]
    assert step_through(Optimisation(average_after=1), epochs, scores) == pytest.approx([2.0, 5.0, 9.0, 2.0, 6.0])


def test_a_running_average_is_not_of_the_start_for_long() -> None:
    values = [4.0] * 50
    ends = step_through(Optimisation(average=0.999), [values, values], [1.0, 1.0])
    assert ends[0] == pytest.approx(4.0, rel=1e-5)  # at a decay of 0.999 throughout it would be 0.2
    # A state of before there was such a thing goes on as it began.
    averages = Averages(Optimisation(average=0.9), [torch.zeros(1, 1)])
    old = {name: value for name, value in averages.state_dict().items() if name != "steps"}
    averages.load_state_dict(old)
    averages.update([torch.ones(1, 1)])
    assert averages.values[0].item() == pytest.approx(0.1)


def test_averages_of_members_begin_apart() -> None:
    averages = Averages(Optimisation(average_after=0), [torch.zeros(2, 3)])
    averages.consider(torch.tensor([5.0, 5.0]).double())
    averages.consider(torch.tensor([4.0, 6.0]).double())  # the second got worse
    for each in (1.0, 3.0):
        averages.update([torch.full((2, 3), each)])
    assert averages.values[0].tolist() == [[3.0] * 3, [2.0] * 3]


def test_one_kind_of_average() -> None:
    with pytest.raises(ValueError, match="running average"):
        Optimisation(average=0.9, average_from=3)


def test_sgd_keeps_nothing() -> None:
    """So that weights and position are all of a training's state."""
    parameter = nn.Parameter(torch.ones(3))
    optimizer = RECIPE.make([parameter])
    parameter.grad = torch.ones(3)
    optimizer.step()
    assert not optimizer.state_dict()["state"] or all(
        value is None for state in optimizer.state_dict()["state"].values() for value in state.values()
    )


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_recurrent_layers_have_a_rate_of_their_own(optimizer: str) -> None:
    """Of one step all of them, and a gated map of what they put out, move by that much less, and nothing else does;
    the schedule falls for both."""
    moved = {}
    for factor in (1.0, 0.25):
        torch.manual_seed(0)
        optimisation = Optimisation(optimizer=optimizer, learning_rate=0.1, recurrent_rate=factor)
        network = Network("EIREHN", 6, max_depth=2, gated_output=True)
        task = LanguageModelling([LanguageModel(network, 9).double()], optimisation)
        made = optimisation.make(task.parameters(), task.ensemble.recurrent())
        schedule = torch.optim.lr_scheduler.LambdaLR(made, lambda step: 0.5)
        before = {name: value.clone() for name, value in task.ensemble.values().items()}
        tokens = torch.randint(0, 9, (1, 3, 8), generator=torch.Generator().manual_seed(1))
        task.training_step((tokens[..., :-1], tokens[..., 1:], 1.0), 0).backward()
        made.step()
        moved[factor] = {name: value - before[name] for name, value in task.ensemble.values().items()}
        assert [group["lr"] for group in made.param_groups] == ([0.05] if factor == 1 else [0.05, 0.0125])
        assert schedule.get_last_lr()[0] == 0.05
    for name, whole in moved[1.0].items():
        share = 0.25 if name.startswith(("body.", "gated.")) else 1.0
        torch.testing.assert_close(moved[0.25][name], share * whole, rtol=1e-6, atol=1e-12)
        assert whole.abs().max() > 0
    assert any(name.startswith("body.") for name in moved[1.0])
    with pytest.raises(ValueError, match="recurrent_rate"):
        Optimisation(recurrent_rate=0.0)
    with pytest.raises(ValueError, match="soap"):
        Optimisation(recurrent_rate=0.5, optimizer="soap")


@pytest.mark.parametrize("pointer", [0, 4], ids=["", "pointer"])
@pytest.mark.parametrize("members", [1, 2])
def test_what_a_network_puts_out_has_a_price(members: int, pointer: int) -> None:
    """Its mean square, and that of its change from step to step, beside the loss without."""
    models = []
    for seed in range(members):
        torch.manual_seed(seed)
        models.append(LanguageModel(Network("EIREHN", 6, max_depth=2, pointer=pointer), 9).double())
    own = {"pointer_loss": 0.5 if pointer else 0.0, "price": 0.1}
    tokens = torch.randint(0, 9, (members, 3, 8), generator=torch.Generator().manual_seed(1))
    batch = (tokens[..., :-1], tokens[..., 1:], 1.0)
    plain = LanguageModelling(models, Optimisation(**own)).loss(batch)
    found = LanguageModelling(models, Optimisation(**own, activation_penalty=2.0, temporal_penalty=3.0)).loss(batch)
    expected = 0.0
    for model, x in zip(models, tokens[..., :-1], strict=True):
        out = model.body(model.embedding(x))[0].detach().numpy()  # (B, T, H)
        expected += 2.0 * np.mean(out**2) + 3.0 * np.mean((out[:, 1:] - out[:, :-1]) ** 2)
    assert (found - plain).item() == pytest.approx(expected, rel=1e-9)
    assert expected > 1e-3


def test_of_one_step_there_is_no_change_to_pay_for() -> None:
    model = LanguageModel(Network("LSTM", 4), 5).double()
    tokens = torch.randint(0, 5, (1, 3, 2))
    batch = (tokens[..., :1], tokens[..., 1:], 1.0)
    plain = LanguageModelling([model], Optimisation()).loss(batch)
    found = LanguageModelling([model], Optimisation(activation_penalty=2.0, temporal_penalty=3.0)).loss(batch)
    squares = model.run_watched(tokens[0, :, :1])[1].square()
    torch.testing.assert_close(found, plain + 2.0 * squares.mean(), rtol=1e-12, atol=0)


def test_its_price_is_learned_from() -> None:
    """It falls, where nothing else is asked for: the loss that is measured stays that of the text."""
    torch.manual_seed(0)
    optimisation = Optimisation(optimizer="sgd", activation_penalty=1e4)
    task = LanguageModelling([LanguageModel(Network("EIREHN", 6, max_depth=2), 9).double()], optimisation)
    tokens = torch.randint(0, 9, (1, 3, 8))
    batch = (tokens[..., :-1], tokens[..., 1:], 1.0)
    optimizer, squares = torch.optim.Adam(task.parameters(), 0.03), []
    for _ in range(20):
        optimizer.zero_grad()
        task.loss(batch).backward()
        optimizer.step()
        squares.append(task.ensemble.watched(batch[0], None, None)[1].square().mean().item())
    assert squares[-1] < 0.1 * squares[0]
    assert 1.5 < (task.sums[0] / task.sums[1]).item() < 3.0  # log 9 is 2.2


def test_only_texts_are_shifted() -> None:
    with pytest.raises(ValueError, match="language models"):
        Recipe(optimisation=Optimisation(shift=True))
    with pytest.raises(TypeError, match="shift"):
        Optimisation(shift=1)  # type: ignore[arg-type]


def test_prices_that_are_for_language_models_only() -> None:
    for name in ("activation_penalty", "temporal_penalty"):
        with pytest.raises(ValueError, match="language models"):
            Recipe(optimisation=Optimisation(**{name: 1.0}))
        with pytest.raises(ValueError, match=name):
            Optimisation(**{name: -1.0})


@pytest.mark.parametrize(
    "network", [Network("RHN", 4, max_depth=1), Network("LSTM", 5, embedding_size=3, tied=False)]
)
@pytest.mark.parametrize("members", [1, 2])
def test_a_margin_is_what_an_adversary_can_take(network: Network, members: int) -> None:
    """No move of a word's row by a share of its length makes that word less likely, and one makes it so."""
    margin, models = 0.3, []
    for seed in range(members):
        torch.manual_seed(seed)
        models.append(LanguageModel(replace(network, start={"weight_bound": 0.9}), 6).double())
    tokens = torch.randint(0, 6, (members, 2, 4), generator=torch.Generator().manual_seed(1))
    batch = (tokens[..., :-1], tokens[..., 1:], 1.0)
    task = LanguageModelling(models, Optimisation(margin=margin))
    random, expected = np.random.default_rng(0), []
    for model, x, target in zip(models, *batch[:2], strict=True):
        weight = (model.embedding.weight if model.output is None else model.output).detach().numpy()
        out = model.body(model.embedding(x))[0].detach()
        states = (out if model.narrowing is None else out @ model.narrowing.detach().T).flatten(0, 1).numpy()
        losses = []
        for h, y in zip(states, target.flatten().tolist(), strict=True):
            reach = margin * np.linalg.norm(weight[y])

            def loss(move: Any, h: Any = h, y: int = y, model: Any = model, weight: Any = weight) -> float:
                moved = weight.copy()
                moved[y] += move
                logits = moved @ h + model.bias.detach().numpy()
                return float(np.log(np.exp(logits).sum()) - logits[y])

            losses.append(loss(-reach * h / np.linalg.norm(h)))
            moves = random.normal(size=(50, len(h)))
            moves *= reach / np.linalg.norm(moves, axis=1, keepdims=True)
            assert max(loss(move) for move in moves) <= losses[-1]
        expected.append(np.mean(losses))
    plain = LanguageModelling(models, Optimisation())
    found = task.loss(batch).item()
    assert found == pytest.approx(sum(expected), rel=1e-9)
    assert found > plain.loss(batch).item() + 0.01
    # Validation is of the words as they are.
    text = Split(batch[0][0], batch[1][0])
    torch.testing.assert_close(task.eval().evaluate(*text), plain.eval().evaluate(*text), rtol=0, atol=0)


def test_a_margin_is_learned_by() -> None:
    """Its gradient against finite differences, with dropout."""
    torch.manual_seed(0)
    network = Network("EIREHN", 4, max_depth=2, output_dropout=0.5, input_dropout=0.5)
    task = LanguageModelling([LanguageModel(network, 6).double()], Optimisation(margin=0.2))
    tokens = torch.randint(0, 6, (1, 2, 4))

    def loss() -> torch.Tensor:
        torch.manual_seed(1)
        task.carried = None
        return task.loss((tokens[..., :-1], tokens[..., 1:], 1.0))

    loss().backward()
    for value in task.ensemble.stacked:
        index = tuple(0 for _ in value.shape)
        found = []
        for step in (1e-6, -1e-6):
            with torch.no_grad():
                value[index] += step
                found.append(loss().item())
                value[index] -= step
        assert value.grad is not None
        assert value.grad[index].item() == pytest.approx((found[0] - found[1]) / 2e-6, abs=1e-8, rel=1e-5)


def test_margins_that_cannot_be() -> None:
    for network in (Network(pointer=3), Network(mixture=2)):
        with pytest.raises(ValueError, match="margin is for language models without"):
            Recipe(network=network, data=TextData(), optimisation=Optimisation(margin=0.1))
    with pytest.raises(ValueError, match="margin is for language models without"):
        Recipe(data=SyntheticData(), optimisation=Optimisation(margin=0.1))
    for wrong in (-0.1, 1.0, 1e300, math.nan, math.inf):
        with pytest.raises(ValueError, match="margin must be"):
            Optimisation(margin=wrong)
    model, tokens = LanguageModel(Network("LSTM", 4, pointer=2), 6), torch.zeros(1, 3, dtype=torch.int64)
    with pytest.raises(ValueError, match="margin is for models without"):
        LanguageModelling([model], Optimisation(margin=0.1))
    with pytest.raises(ValueError, match="margin is of a target"):
        model.run_watched(tokens, None, tokens, margin=0.1)


def test_only_classes_are_smoothed() -> None:
    for data in (TextData(), SyntheticData()):
        with pytest.raises(ValueError, match="smoothing is for classification"):
            Recipe(data=data, optimisation=Optimisation(smoothing=0.1))


def test_the_rate_of_recurrent_layers_reaches_a_training(tmp_path: Path) -> None:
    """Of one step by SGD, which moves by the rate times the gradient."""
    recipe = small(precision="64-true", optimizer="sgd", epochs=1, batch_size=60, learning_rate=0.1)
    start = make_task(recipe).ensemble.values()
    moved = []
    for factor in (1.0, 0.25):
        own = replace(recipe, optimisation=replace(recipe.optimisation, recurrent_rate=factor))
        train(own, tmp_path / str(factor))
        values = read_values(tmp_path / str(factor) / "last.safetensors")
        moved.append({name: value - start[name] for name, value in values.items()})
    for name, whole in moved[0].items():
        share = 0.25 if name.startswith(("body.", "gated.")) else 1.0
        torch.testing.assert_close(moved[1][name], share * whole, rtol=1e-9, atol=1e-15)
        assert whole.abs().max() > 0
