"""Who reads which data when."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from helpers.language import small_language_recipe, written
from torch import Tensor

from eirehn.data.dataset import Split
from eirehn.models import LanguageNetwork
from eirehn.training.config import Recipe
from eirehn.training.loaders import Batches, Columns, Data, Parts, Windows, most_tokens
from eirehn.training.trainer import make_task, make_trainer, quiet


def test_each_member_sees_all_data_in_an_order_of_its_own() -> None:
    x = torch.arange(10.0)[:, None]
    batches = Batches([x, x], 4, [5, 6])
    orders = []
    for epoch in range(2):
        batches.set_epoch(epoch)
        orders.append(torch.cat([batch[0] for batch in batches], 1).squeeze(-1))  # (M, N)
    for order in (*orders[0], *orders[1]):
        assert sorted(order.tolist()) == list(range(10))
    flat = [tuple(order.tolist()) for order in (*orders[0], *orders[1])]
    assert len(set(flat)) == 4
    alone = Batches([x, x], 4, [6])
    assert torch.equal(torch.cat([batch[0] for batch in alone], 1).squeeze(-1)[0], orders[0][1])


def test_processes_share_every_batch() -> None:
    x = torch.arange(11.0)[:, None]
    whole = list(Batches([x, x], 4, [0]))
    parts = [list(Batches([x, x], 4, [0], rank=rank, world=2)) for rank in range(2)]
    for number, (rows, _, share) in enumerate(whole):
        assert share == 1.0
        mine, others = parts[0][number], parts[1][number]
        assert sorted([*mine[0].flatten().tolist(), *others[0].flatten().tolist()]) == sorted(
            rows.flatten().tolist()
        )
        # The mean over processes of share times local mean is the batch's mean.
        mean = (mine[0].mean() * mine[2] + others[0].mean() * others[2]) / 2
        assert mean == pytest.approx(rows.mean().item())


def test_a_process_without_sequences_takes_part_but_does_not_count() -> None:
    x = torch.arange(5.0)[:, None]
    last = [list(Batches([x, x], 4, [0], rank=rank, world=3))[-1] for rank in range(3)]
    assert [each[2] for each in last] == [3.0, 0.0, 0.0]
    assert all(each[0].size(1) == 1 for each in last)


def test_changes_are_drawn_anew_for_each_member_epoch_and_batch() -> None:
    drawn: dict[tuple[int, int, int], float] = {}

    def augment(batch: Sequence[Tensor], random: Sequence[np.random.Generator]) -> tuple[Tensor, ...]:
        for seed, each in zip((5, 6), random, strict=True):
            drawn[seed, batches.epoch, sum(key[:2] == (seed, batches.epoch) for key in drawn)] = each.random()
        return batch[0] + 100, *batch[1:]

    batches = Batches([torch.zeros(10, 3, 1), torch.arange(10)], 4, [5, 6], augment=augment)
    for epoch in range(2):
        batches.set_epoch(epoch)
        assert all((x == 100).all() for x, *_ in batches)
    assert len(drawn) == len(set(drawn.values())) == 12
    assert drawn == {key: np.random.default_rng(key).random() for key in drawn}


def test_lengths_go_with_their_sequences() -> None:
    x = torch.arange(10.0)[:, None, None].expand(-1, 3, 1)
    split = Split(x, torch.arange(10), torch.arange(10) + 1)
    for rows, target, lengths, share in Batches([each for each in split if each is not None], 4, [5, 6]):
        assert share == 1.0
        assert torch.equal(rows[..., 0, 0].long(), target)
        assert torch.equal(lengths, target + 1)
    parts = Parts(split)
    parts.size = 4
    assert len(parts) == 3
    assert torch.equal(torch.cat([each.lengths for each in parts if each.lengths is not None]), split.lengths)


def text(count: int) -> Split:
    tokens = torch.arange(count, dtype=torch.int32)
    return Split(tokens[None, :-1], tokens[None, 1:])


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


def test_only_a_text_that_fits_goes_to_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = small_language_recipe(written(tmp_path, train=500, test=100))
    data = Data(recipe, recipe.data.load())
    data.trainer = SimpleNamespace(  # type: ignore[assignment]  # what it asks of one
        strategy=SimpleNamespace(root_device=torch.device("meta")), global_rank=0, world_size=1
    )
    monkeypatch.setattr(Data, "most_bytes", data.splits.validation.x.nbytes)
    train, validation = data.train_dataloader(), data.val_dataloader()
    assert train.text.x.device.type == "cpu"  # type: ignore[union-attr]  # of a text
    assert validation.x.device.type == "meta"  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is measured as Linux counts it")
def test_memory_does_not_grow_with_the_text(tmp_path: Path) -> None:
    """60 MB, 12 million words, which as numbers in memory would be 48 MB and twice that while they are read."""
    some = random.Random(0)
    line = " ".join("".join(some.choices("abcdefghij", k=4)) for _ in range(10_000)) + "\n"
    with open(tmp_path / "large.txt", "w") as file:
        for _ in range(60_000_000 // len(line)):
            file.write(line)
    (tmp_path / "small.txt").write_text(line)
    code = f"""
        import resource
        from pathlib import Path
        import pytest, torch
        from helpers.language import small_language_recipe
        from helpers.resume import StopAt
        from eirehn.data.text import TextData
        from eirehn.models import LanguageNetwork
        from eirehn.training.callbacks import Stopped
        from eirehn.training.trainer import train
        from dataclasses import replace

        torch.set_num_threads(1)
        folder = Path({str(tmp_path)!r})

        def run(text, name, steps):
            small = str(folder / "small.txt")
            recipe = small_language_recipe(TextData(10, None, str(folder / text), small, small), batch_size=4)
            recipe = replace(recipe, network=LanguageNetwork("RNN", 4))
            for stop in steps:
                with pytest.raises(Stopped):
                    train(recipe, folder / name, callbacks=[StopAt(stop, killed=False)])
            return len(recipe.data.texts().train)

        run("small.txt", "a", [10, 20])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(run("large.txt", "b", [20, 40]), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    own = {"EIREHN_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, env={**os.environ, **own}
    )
    assert done.returncode == 0, done.stderr
    count, kilobytes = map(int, done.stdout.split())
    assert count > 11_000_000
    assert kilobytes < 60_000
