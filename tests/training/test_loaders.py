"""Who reads which data when."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from helpers.language import small_language_recipe, written
from helpers.processes import in_new_python
from torch import Tensor

from eirehn.data.dataset import Split
from eirehn.models import LanguageNetwork
from eirehn.training.loaders import Batches, Data, Parts, Streams, Windows, most_tokens, training_batches


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


@pytest.mark.parametrize(("count", "world"), [(11, 2), (5, 3)])
def test_processes_share_every_batch(count: int, world: int) -> None:
    """One for which there is no sequence takes part, but does not count."""
    x = torch.arange(float(count))[:, None]
    parts = [list(Batches([x, x], 4, [0], rank=rank, world=world)) for rank in range(world)]
    for number, (rows, _, share) in enumerate(Batches([x, x], 4, [0])):
        assert share == 1.0
        own = [part[number] for part in parts]
        assert all(each.size(1) for each, *_ in own)
        counted = torch.cat([each.flatten() for each, _, share in own if share > 0])
        assert sorted(counted.tolist()) == sorted(rows.flatten().tolist())
        # The mean over processes of share times local mean is the batch's mean.
        mean = sum(each.mean().item() * share for each, _, share in own) / world
        assert mean == pytest.approx(rows.mean().item())


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


def test_processes_share_the_streams() -> None:
    parts = [next(iter(Streams(text(101), 3, 4, [0], rank=rank, world=2))) for rank in range(2)]
    assert [x[0, :, 0].tolist() for x, *_ in parts] == [[0, 66], [33]]
    assert [share for *_, share in parts] == [pytest.approx(4 / 3), pytest.approx(2 / 3)]


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


@pytest.mark.parametrize("shift", [False, True], ids=["from the start", "at random offsets"])
def test_streams_are_read_on(shift: bool) -> None:
    """A text of 0, 1, …, whose last target is 101, in three streams: a ring where epochs have offsets. Who resumes
    reads on, and each member reads as if alone."""
    loader, begun = Streams(text(102), 3, 4, [5, 6], shift=shift), set()
    assert len(loader) == 33 // 4
    for epoch in range(3):
        loader.set_epoch(epoch)
        batches = list(loader)
        assert len(batches) == 8
        for member in range(2):
            first = int(batches[0][0][member, 0, 0])
            begun.add(first)
            for number, (x, target, share) in enumerate(batches):
                assert (x.shape, x.dtype, share) == ((2, 3, 4), torch.int64, 1.0)
                expected = (first + np.arange(4) + 4 * number + 33 * np.arange(3)[:, None]) % 101
                assert x[member].tolist() == expected.tolist()
                assert target[member].tolist() == (expected + 1).tolist()
            alone = Streams(text(102), 3, 4, [5 + member], shift=shift)
            alone.set_epoch(epoch)
            assert [x[0].tolist() for x, *_ in alone] == [x[member].tolist() for x, *_ in batches]
        for stop in (1, 3, 7):
            other = Streams(text(102), 3, 4, [5, 6], shift=shift)
            other.set_epoch(epoch)
            other.load_state_dict({"position": stop})
            assert [x.tolist() for x, *_ in other] == [x.tolist() for x, *_ in batches[stop:]]
    assert len(begun) == (6 if shift else 1)


@pytest.mark.parametrize("shift", [False, True])
def test_a_training_reads_at_random_offsets(shift: bool, tmp_path: Path) -> None:
    recipe = small_language_recipe(written(tmp_path, train=400), shift=shift)
    loader: Any = training_batches(recipe, recipe.data.load().train)
    assert (loader.shift, loader.seeds) == (shift, recipe.seeds)


def test_texts_too_short() -> None:
    """To train on; of a shorter one to evaluate there are as many streams as tokens, of one each."""
    with pytest.raises(ValueError, match="too short"):
        Streams(text(10), 3, 4, [0])
    assert [part.target.tolist() for part in Windows(text(5), 20)] == [[[1], [2], [3], [4]]]


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_windows_cover_the_text(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Windows, "size", 20)
    found = torch.cat([part.target for part in Windows(text(101), batch)], 1)
    assert found.shape == (batch, 100 // batch)
    assert found.flatten().tolist() == list(range(1, batch * (100 // batch) + 1))


@pytest.mark.parametrize(
    ("words", "size", "seeds", "device", "most"),
    [
        (10_000, 1200, 1, "cpu", 1024),
        (10_000, 1200, 1, "cuda", 3355),
        (50, 10, 1, "cuda", 4096),
        (10**6, 10, 1, "cuda", 1024),
    ],
)
def test_how_much_is_validated_at_once(words: int, size: int, seeds: int, device: str, most: int) -> None:
    """At most some hundred megabytes on a GPU, whatever the vocabulary, the network and the members."""
    recipe: Any = SimpleNamespace(
        data=SimpleNamespace(output_size=words), network=LanguageNetwork(hidden_size=size), seeds=range(seeds)
    )
    assert most_tokens(recipe, torch.device(device)) == most


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is measured as Linux counts it")
def test_memory_does_not_grow_with_the_text(tmp_path: Path) -> None:
    """60 MB, 12 million words, which as numbers in memory would be 48 MB and twice that while they are read."""
    some = random.Random(0)
    line = " ".join("".join(some.choices("abcdefghij", k=4)) for _ in range(10_000)) + "\n"
    (tmp_path / "large.txt").write_text(line * (60_000_000 // len(line)))
    (tmp_path / "small.txt").write_text(line)
    code = f"""
        import resource
        from dataclasses import replace
        from helpers.language import small_language_recipe
        from helpers.resume import stopped
        from eirehn.data.text import TextData
        from eirehn.models import LanguageNetwork
        from pathlib import Path

        def run(text, name, steps):
            small = "{tmp_path}/small.txt"
            recipe = small_language_recipe(TextData(10, None, "{tmp_path}/" + text, small, small), batch_size=4)
            recipe = replace(recipe, network=LanguageNetwork("RNN", 4))
            for step in steps:
                stopped(recipe, Path("{tmp_path}") / name, step)
            return len(recipe.data.texts().train)

        run("small.txt", "a", [10, 20])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(run("large.txt", "b", [20, 40]), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    printed = in_new_python(code, EIREHN_CACHE_DIR=str(tmp_path / "cache"), OMP_NUM_THREADS="1")
    count, kilobytes = map(int, printed.split())
    assert count > 11_000_000
    assert kilobytes < 60_000
