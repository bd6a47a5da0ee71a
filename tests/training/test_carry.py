"""A training carried elsewhere in small files goes on as it would have, but for the rounding of its weights."""

from __future__ import annotations

import hashlib
import io
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.language import small_language_recipe, written
from helpers.quick import quick
from helpers.resume import StopAt
from torch.utils._pytree import tree_leaves

import eirehn
from eirehn import cli
from eirehn.files import RunError, read_json, write_json
from eirehn.loading import read_values
from eirehn.training import carry, fit, packing
from eirehn.training.callbacks import Stopped
from eirehn.training.checkpoints import WholeFiles, read_checkpoint
from eirehn.training.evaluation import evaluate
from eirehn.training.recipe import Recipe
from eirehn.training.stability import UnstableTraining

SGD = {
    "optimizer": "sgd",
    "learning_rate": 0.5,
    "schedule": "decay",
    "decay_from": 1,
    "sum_steps": True,
    "epochs": 4,
}


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return small_language_recipe(written(tmp_path, train=500, test=100), **SGD)  # 6 batches an epoch


def stopped(recipe: Recipe, folder: Path, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = fit.make_trainer
    stop = StopAt(step, killed=False)
    monkeypatch.setattr(fit, "make_trainer", lambda recipe, path, calls: made(recipe, path, [stop, *calls]))
    with pytest.raises(Stopped):
        fit.train(recipe, folder)
    monkeypatch.setattr(fit, "make_trainer", made)


@pytest.mark.parametrize("average_from", [None, 0])
@pytest.mark.parametrize("step", quick(9, of=[6, 9, 12]))
def test_it_goes_on(
    recipe: Recipe, tmp_path: Path, step: int, average_from: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With values as they are, to the bit: the position, the history and the best so far come along."""
    monkeypatch.setattr(packing, "SHORT", 1 << 30)  # all values as they are
    recipe = replace(recipe, optimisation=replace(recipe.optimisation, average_from=average_from))
    straight = fit.train(recipe, tmp_path / "straight")
    stopped(recipe, tmp_path / "here", step, monkeypatch)
    packed = carry.pack(tmp_path / "here", tmp_path / "carried")
    assert packed.before == packed.after
    arrived = carry.unpack(tmp_path / "carried", tmp_path / "there")
    assert arrived.before == pytest.approx(arrived.after, rel=1e-6)
    result = fit.train(recipe, tmp_path / "there")
    ours, theirs = (read_values(tmp_path / name / "last.safetensors") for name in ("there", "straight"))
    for name, value in theirs.items():
        assert torch.equal(ours[name], value)
    assert (tmp_path / "there" / "metrics.csv").read_text() == (tmp_path / "straight" / "metrics.csv").read_text()
    assert result["best_validation"] == straight["best_validation"]
    assert result["best_epoch"] == straight["best_epoch"]


def test_the_rounding_is_small_and_told(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "SHORT", 0)
    straight = fit.train(recipe, tmp_path / "straight")
    stopped(recipe, tmp_path / "here", 12, monkeypatch)
    carried = carry.pack(tmp_path / "here", tmp_path / "carried")
    assert carried.before != carried.after
    assert carried.before == pytest.approx(carried.after, rel=1e-3)
    carry.unpack(tmp_path / "carried", tmp_path / "there")
    # What arrived can be evaluated before it is trained on.
    found = evaluate(tmp_path / "there", split="validation", batch=recipe.optimisation.batch_size)
    assert found.values == pytest.approx(carried.after, rel=1e-6)
    assert fit.train(recipe, tmp_path / "there")["values"] == pytest.approx(straight["values"], rel=1e-2)


def test_the_best_epoch_can_be_carried(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped(recipe, tmp_path / "here", 15, monkeypatch)
    carried = carry.pack(tmp_path / "here", tmp_path / "carried", which="best")
    assert carried.before == pytest.approx(carried.best, rel=1e-6)


def test_limits(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped(recipe, tmp_path / "here", 6, monkeypatch)
    monkeypatch.setattr(carry, "PART", 10_000)
    carry.pack(tmp_path / "here", tmp_path / "carried")
    parts = sorted((tmp_path / "carried").glob("carry.[0-9]*"))
    assert len(parts) > 2
    assert all(part.stat().st_size <= 10_000 for part in parts)
    assert len(read_json(tmp_path / "carried" / "carry.json")["parts"]) == len(parts)
    parts[1].write_bytes(b"?" + parts[1].read_bytes()[1:])
    with pytest.raises(RunError, match=r"carry.01 is damaged"):
        carry.unpack(tmp_path / "carried", tmp_path / "there")
    monkeypatch.setattr(carry, "MOST", 10_000)
    with pytest.raises(RunError, match="MiB to carry"):
        carry.pack(tmp_path / "here", tmp_path / "other")
    with pytest.raises(RunError, match="is not empty"):
        carry.pack(tmp_path / "here", tmp_path / "carried")


def test_a_pack_of_another_version(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped(recipe, tmp_path / "here", 4, monkeypatch)
    carry.pack(tmp_path / "here", tmp_path / "carried")
    about = read_json(tmp_path / "carried" / "carry.json")
    write_json(tmp_path / "carried" / "carry.json", {**about, "version": about["version"] + 1})
    with pytest.raises(RunError, match="packed by another version"):
        carry.unpack(tmp_path / "carried", tmp_path / "there")
    del about["version"]  # as packs had none at first
    write_json(tmp_path / "carried" / "carry.json", about)
    carry.unpack(tmp_path / "carried", tmp_path / "there", measure=False)


def test_parts_lie_in_the_folder(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever they are called there."""
    stopped(recipe, tmp_path / "here", 4, monkeypatch)
    carry.pack(tmp_path / "here", tmp_path / "carried")
    (tmp_path / "carried" / "carry.00").rename(tmp_path / "carry.00")
    about = read_json(tmp_path / "carried" / "carry.json")
    for name in ("../carry.00", str(tmp_path / "carry.00"), "..", ""):
        about["parts"][0]["name"] = name
        write_json(tmp_path / "carried" / "carry.json", about)
        with pytest.raises(RunError, match="cannot read"):
            carry.unpack(tmp_path / "carried", tmp_path / "there")


def size(content: dict[str, torch.Tensor]) -> int:
    return sum(each.numel() * each.element_size() for each in content.values() if isinstance(each, torch.Tensor))


@pytest.mark.parametrize(("spread", "form"), [("bell", (11, 8)), ("even", (9, 8))])
def test_the_published_sizes_fit(spread: str, form: tuple[int, int]) -> None:
    """25.3 million weights in 16 bits, and with their averages in 11 and 8, or where they are spread so that no bit
    can be saved in 9 and 8; in files of 16 MiB."""
    random = torch.Generator().manual_seed(0)
    kind = torch.randn if spread == "bell" else torch.rand
    average, away = (kind(500, 1200, generator=random) - (spread == "even") / 2 for _ in range(2))
    room = 25_400_000 / average.numel()
    besides = 4 * 100_000 + (1 << 20)  # short vectors, and where the training stands
    assert room * size(packing.packed(average)) + besides < carry.MOST
    assert form in carry.FORMS
    kept = packing.packed(average, form[0])
    below = packing.packed(average + 0.1 * away, form[1], packing.unpacked(kept))
    assert room * (size(kept) + size(below)) + besides < carry.MOST
    assert carry.PART <= 16 << 20


@pytest.fixture(scope="module")
def averaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training with averages, stopped in its last epoch but one."""
    folder = tmp_path_factory.mktemp("averaged")
    options = {**SGD, "average_from": 1, "epochs": 4, "learning_rate": 1.0}
    recipe = small_language_recipe(written(folder, train=3000, test=500), **options)  # 41 batches an epoch
    with eirehn.use_backend("auto"), pytest.MonkeyPatch.context() as patch:
        stopped(recipe, folder / "run", 110, patch)
    return folder / "run"


@pytest.mark.parametrize("form", quick((11, 8), of=[(16, 16), (11, 8), (8, 8)]))
def test_averages_in_fewer_bits(
    form: tuple[int, int], averaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a trained model: what is said of it hardly changes, and the weights below are where they were, nearly."""
    monkeypatch.setattr(packing, "SHORT", 0)
    monkeypatch.setattr(carry, "FORMS", (form,))
    carried = carry.pack(averaged, tmp_path / "carried")
    assert carried.bits == list(form)
    assert carried.before[0] < 12  # of 26 words
    change = {16: 1e-5, 11: 3e-4, 8: 3e-3}[form[0]]
    assert carried.after == pytest.approx(carried.before, rel=change)
    carry.unpack(tmp_path / "carried", tmp_path / "there")
    states = [read_checkpoint(folder / "last.ckpt") for folder in (averaged, tmp_path / "there")]
    for key, value in states[0]["state_dict"].items():
        average = states[1]["task"]["averages"]["values"][int(key.rpartition(".")[2])]
        away = (value - average).abs().amax(-1, keepdim=True)
        found = states[1]["state_dict"][key]
        assert ((found - value).abs() <= away * (0.5 / (2 ** (form[1] - 1) - 1) + 1e-4) + 1e-7).all()
    shutil.copytree(averaged, tmp_path / "here")
    recipe = Recipe.from_dict(read_json(averaged / "recipe.json"))
    there, here = (fit.train(recipe, tmp_path / name) for name in ("there", "here"))
    assert there["values"] == pytest.approx(here["values"], rel=2e-3)


@pytest.mark.parametrize("with_averages", [True, False])
def test_the_finest_form_that_fits(with_averages: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    values = {"a": torch.randn(1, 500, 80), "b": torch.randn(1, 10)}
    trained = {name: value + 0.1 * torch.randn_like(value) for name, value in values.items()}
    given = ({"step": 3}, values, trained if with_averages else {})
    forms = [form for form in carry.FORMS if with_averages or form != (16, 8)]
    sizes = []
    for form in forms:
        with monkeypatch.context() as patch:
            patch.setattr(carry, "FORMS", (form,))
            sizes.append(len(carry._finest(*given)[0]))
    assert sizes == sorted(sizes, reverse=True)
    for form, size in zip(forms, sizes, strict=True):
        monkeypatch.setattr(carry, "MOST", size)
        whole, carried, bits = carry._finest(*given)
        assert (len(whole), bits) == (size, list(form) if with_averages else [form[0]])
        torch.testing.assert_close(carried["a"], values["a"], rtol=0, atol=8 / 2 ** form[0])
    monkeypatch.setattr(carry, "MOST", sizes[-1] - 1)
    assert len(carry._finest(*given)[0]) == sizes[-1]  # and is refused by its size


def test_what_an_earlier_version_packed_is_read(recipe: Recipe, tmp_path: Path) -> None:
    """Integers of 16 bits as they were, and weights beside their averages."""
    recipe = replace(recipe, optimisation=replace(recipe.optimisation, average_from=0))
    task = fit.make_task(recipe)
    values = task.ensemble.values()
    scale = {name: value.abs().amax(-1, keepdim=True) / 32767 for name, value in values.items()}
    old = {
        name: {"numbers": (value / scale[name].clamp(min=1e-30)).round().short(), "scale": scale[name]}
        for name, value in values.items()
    }
    content = io.BytesIO()
    torch.save({"state": {"step": 3}, "values": old, "trained": old}, content)
    state, found, trained = carry._read_content(tmp_path, content.getvalue(), values)
    assert state == {"step": 3}
    for name, value in values.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=float(scale[name].max()))
        assert torch.equal(found[name], trained[name])


@pytest.mark.parametrize("options", [{"beta1": 0.0, "recurrent_rate": 0.5, "average": 0.9}, {"optimizer": "adamw"}])
def test_adam_goes_on(
    recipe: Recipe, tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its mean squares arrive as the product of their means over rows and columns (`test_moments` has more)."""
    adam = {"optimizer": "adam", "learning_rate": 0.003, "beta2": 0.99, "epochs": 8} | options
    recipe = replace(recipe, optimisation=replace(recipe.optimisation, **adam))
    stopped(recipe, tmp_path / "here", 24, monkeypatch)
    carry.pack(tmp_path / "here", tmp_path / "carried")
    carry.unpack(tmp_path / "carried", tmp_path / "there")
    here, there = (
        read_checkpoint(tmp_path / name / "last.ckpt")["optimizer_states"][0] for name in ("here", "there")
    )
    assert here["param_groups"] == there["param_groups"]
    assert here["state"].keys() == there["state"].keys()
    for index, kept in here["state"].items():
        assert torch.equal(kept["step"], there["state"][index]["step"])
        ours, theirs = (each["state"][index]["exp_avg_sq"].double().numpy() for each in (here, there))
        if ours.ndim == 2:
            np.testing.assert_array_equal(ours, theirs)
        else:
            np.testing.assert_allclose(theirs.mean(-1), ours.mean(-1), rtol=1e-5)
            np.testing.assert_allclose(theirs.mean(-2), ours.mean(-2), rtol=1e-5)
            u, v = ours[0].mean(1), ours[0].mean(0)
            np.testing.assert_allclose(theirs[0], np.outer(u, v) / ours[0].mean(), rtol=1e-5)
    fit.train(recipe, tmp_path / "there")
    assert len((tmp_path / "there" / "metrics.csv").read_text().splitlines()) == 1 + 8


def test_what_soap_remembers_does_not_fit(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(recipe, optimisation=replace(recipe.optimisation, optimizer="soap", learning_rate=0.01))
    other = replace(other, network=replace(other.network, hidden_size=2))
    stopped(other, tmp_path / "here", 2, monkeypatch)
    with pytest.raises(RunError, match="soap remembers more than fits: only trainings by adam, adamw, sgd"):
        carry.pack(tmp_path / "here", tmp_path / "carried")


@pytest.mark.parametrize("which", ["last", "best"])
def test_an_adam_that_has_diverged(
    which: str, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One member of two: the other goes on, and from its best epoch this one does, too."""
    options = {"optimizer": "adam", "learning_rate": 0.003, "beta1": 0.0}
    recipe = replace(recipe, optimisation=replace(recipe.optimisation, **options), seeds=(0, 1))
    stopped(recipe, tmp_path / "here", 9, monkeypatch)
    state = read_checkpoint(tmp_path / "here" / "last.ckpt")
    for value in state["state_dict"].values():
        value[1] = torch.nan
    for kept in state["optimizer_states"][0]["state"].values():
        kept["exp_avg_sq"][1] = torch.nan
    WholeFiles().save_checkpoint(state, tmp_path / "here" / "last.ckpt")
    carry.pack(tmp_path / "here", tmp_path / "carried", which=which)
    carry.unpack(tmp_path / "carried", tmp_path / "there")
    with pytest.warns(UnstableTraining, match="seed 1") if which == "last" else nullcontext():
        fit.train(recipe, tmp_path / "there")
    last = read_values(tmp_path / "there" / "last.safetensors")
    for value in last.values():
        assert bool(value[0].isfinite().all())
        assert bool(value[1].isfinite().all()) == (which == "best")


def spoilt(run: Path, member: int) -> None:
    """As if this member had diverged in the last step: its values are no numbers, nor is what they left behind."""
    state = read_checkpoint(run / "last.ckpt")
    task = state["task"]
    left = tree_leaves((task["carried"], task["averages"]["values"], task["sums"].T, state["state_dict"]))
    for value in left:
        value[member] = torch.nan if value.is_floating_point() else 3
    WholeFiles().save_checkpoint(state, run / "last.ckpt")


@pytest.mark.parametrize("pointer", quick(4, of=[0, 4]))
def test_the_best_epoch_is_a_way_out_for_one_that_has_diverged(
    pointer: int, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = replace(recipe.network, pointer=pointer)
    recipe = replace(recipe, network=network, seeds=(0, 1))
    stopped(recipe, tmp_path / "here", 9, monkeypatch)
    spoilt(tmp_path / "here", 1)
    carry.pack(tmp_path / "here", tmp_path / "carried", which="best")
    carry.unpack(tmp_path / "carried", tmp_path / "there")
    for part in tree_leaves(read_checkpoint(tmp_path / "there" / "last.ckpt")["task"]["carried"]):
        assert bool((part == (0 if part.is_floating_point() else -1)).all())
    fit.train(recipe, tmp_path / "there")
    told = np.genfromtxt(tmp_path / "there" / "metrics.csv", delimiter=",", names=True)
    assert np.isfinite(told["train_loss"]).all()
    assert np.isfinite(told["perplexity"]).all()


@pytest.mark.parametrize("average", [{"average": 0.5}, {"average_from": 0}])
def test_one_that_got_lost_goes_back_once(
    average: dict[str, Any], recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = replace(recipe.optimisation, retreat=1.5, **average)
    recipe = replace(recipe, optimisation=options, seeds=(0, 1))
    stopped(recipe, tmp_path / "here", 9, monkeypatch)
    before = read_checkpoint(tmp_path / "here" / "last.ckpt")["task"]
    spoilt(tmp_path / "here", 1)
    assert carry.pack(tmp_path / "here", tmp_path / "carried").back == (1,)
    carry.unpack(tmp_path / "carried", tmp_path / "there")
    after = read_checkpoint(tmp_path / "there" / "last.ckpt")["task"]
    assert after["retreats"]["share"].tolist() == [1.0, 0.5]
    assert after["retreats"]["least"].tolist() == [before["retreats"]["least"][0], float("inf")]
    assert after["averages"]["count"].tolist() == [before["averages"]["count"][0], 0]
    assert torch.equal(after["sums"][:, 0], before["sums"][:, 0])
    for ours, own in zip(tree_leaves(after["carried"]), tree_leaves(before["carried"]), strict=True):
        assert torch.equal(ours[0], own[0])
    fit.train(recipe, tmp_path / "there")
    told = np.genfromtxt(tmp_path / "there" / "metrics.csv", delimiter=",", names=True)
    assert told["share_of_rate"][-2:].tolist() == [1.0, 0.5]


def test_who_has_no_best_epoch_keeps_none(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would else be said to be as good as its initial values are."""
    recipe = replace(recipe, seeds=(0, 1))
    stopped(recipe, tmp_path / "here", 9, monkeypatch)
    spoilt(tmp_path / "here", 0)
    state = read_checkpoint(tmp_path / "here" / "last.ckpt")
    state["task"]["best"]["score"][0], state["task"]["best"]["epoch"][0] = torch.inf, -1
    WholeFiles().save_checkpoint(state, tmp_path / "here" / "last.ckpt")
    carry.pack(tmp_path / "here", tmp_path / "carried", which="best")
    carry.unpack(tmp_path / "carried", tmp_path / "there")
    best = read_checkpoint(tmp_path / "there" / "last.ckpt")["task"]["best"]
    assert best["epoch"].tolist() == [-1, 0]
    assert best["score"].isfinite().tolist() == [False, True]


def test_an_ended_run_is_not_written_over(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where its state was deleted, to save room."""
    stopped(recipe, tmp_path / "run", 9, monkeypatch)
    carry.pack(tmp_path / "run", tmp_path / "carried")
    fit.train(recipe, tmp_path / "run")
    (tmp_path / "run" / "last.ckpt").unlink()
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").glob("*.*")}
    with pytest.raises(RunError, match="holds a training already"):
        carry.unpack(tmp_path / "carried", tmp_path / "run")
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").glob("*.*")} == before


def test_the_history_comes_along(recipe: Recipe, tmp_path: Path) -> None:
    """Of one that has ended, too, which takes no further step."""
    fit.train(recipe, tmp_path / "here")
    carry.pack(tmp_path / "here", tmp_path / "carried")
    carry.unpack(tmp_path / "carried", tmp_path / "there")
    told = (tmp_path / "here" / "metrics.csv").read_text()
    assert (tmp_path / "there" / "metrics.csv").read_text() == told
    (tmp_path / "there" / "metrics.csv").unlink()
    fit.train(recipe, tmp_path / "there")
    assert (tmp_path / "there" / "metrics.csv").read_text() == told


def test_a_memory_that_does_not_fit_is_told(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = replace(recipe, optimisation=replace(recipe.optimisation, optimizer="adam", learning_rate=0.003))
    stopped(recipe, tmp_path / "here", 4, monkeypatch)
    carry.pack(tmp_path / "here", tmp_path / "carried")
    content = torch.load(io.BytesIO((tmp_path / "carried" / "carry.00").read_bytes()), weights_only=True)
    memory = content["state"]["optimizer_states"][0]["state"]
    memory[len(memory)] = memory[0]
    out = io.BytesIO()
    torch.save(content, out)
    (tmp_path / "carried" / "carry.00").write_bytes(out.getvalue())
    about = read_json(tmp_path / "carried" / "carry.json")
    about["parts"] = [{"name": "carry.00", "sha256": hashlib.sha256(out.getvalue()).hexdigest()}]
    write_json(tmp_path / "carried" / "carry.json", about)
    capsys.readouterr()
    assert cli.main(["carry", "unpack", str(tmp_path / "carried"), str(tmp_path / "there")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "there").exists()


def test_by_command(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped(recipe, tmp_path / "here", 9, monkeypatch)
    capsys.readouterr()
    assert cli.main(["carry", "pack", str(tmp_path / "here"), str(tmp_path / "carried")]) == 0
    assert "validation perplexity" in capsys.readouterr().out
    assert cli.main(["carry", "unpack", str(tmp_path / "carried"), str(tmp_path / "there")]) == 0
    told = capsys.readouterr().out
    assert "train --resume" in told
    with monkeypatch.context() as patched:
        patched.setattr("eirehn.training.carry.validation", None)
        unmeasured = ["carry", "unpack", str(tmp_path / "carried"), str(tmp_path / "quick"), "--measure", "false"]
        assert cli.main(unmeasured) == 0
    assert capsys.readouterr().out == told.replace("there", "quick")
    assert (tmp_path / "quick" / "last.ckpt").read_bytes() == (tmp_path / "there" / "last.ckpt").read_bytes()
    assert cli.main(["train", "--resume", str(tmp_path / "there")]) == 0
    assert "test perplexity" in capsys.readouterr().out
    assert cli.main(["carry", "push", "a", "b"]) == 2
    assert cli.main(["carry", "unpack", str(tmp_path), str(tmp_path / "other")]) == 2
    assert "no carry.json" in capsys.readouterr().err


DAMAGES = ["no recipe", "another recipe", "more seeds", "no figures", "fewer figures", "other bytes", "a list"]


@pytest.mark.parametrize("damage", [*DAMAGES, "no task", "no best", "no history", "other members", "whole numbers"])
def test_what_cannot_be_unpacked_is_told(
    damage: str,
    recipe: Recipe,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stopped(recipe, tmp_path / "here", 4, monkeypatch)
    carry.pack(tmp_path / "here", tmp_path / "carried")
    about = read_json(tmp_path / "carried" / "carry.json")
    if damage == "no recipe":
        del about["recipe"]
    elif damage == "another recipe":
        about["recipe"]["network"]["hidden_size"] += 1
    elif damage == "more seeds":
        about["recipe"]["seeds"] = [0, 1]
        about["before"], about["best"] = [1.0, 1.0], [1.0, 1.0]
    elif damage == "fewer figures":
        about["before"] = []
    elif damage == "no figures":
        del about["before"]
    elif damage == "a list":
        about = [about]
    else:  # with the checksum of what is there now
        whole = other_content(damage, (tmp_path / "carried" / "carry.00").read_bytes())
        (tmp_path / "carried" / "carry.00").write_bytes(whole)
        about["parts"] = [{"name": "carry.00", "sha256": hashlib.sha256(whole).hexdigest()}]
    write_json(tmp_path / "carried" / "carry.json", about)
    capsys.readouterr()
    assert cli.main(["carry", "unpack", str(tmp_path / "carried"), str(tmp_path / "there")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "there").exists()


def other_content(damage: str, whole: bytes) -> bytes:
    if damage == "other bytes":
        return b"no training"
    content = torch.load(io.BytesIO(whole), weights_only=True)
    values = content["values"]
    if damage == "no task":
        del content["state"]["task"]
    elif damage == "no best":
        del content["state"]["task"]["best"]
    elif damage == "no history":
        content["state"]["callbacks"] = {}
    elif damage == "other members":
        content["values"] = {name: {"exact": torch.cat([each["exact"]] * 2)} for name, each in values.items()}
    else:
        content["values"] = {name: {"exact": each["exact"].int()} for name, each in values.items()}
    out = io.BytesIO()
    torch.save(content, out)
    return out.getvalue()


def test_there_is_no_best_epoch_yet(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped(recipe, tmp_path / "here", 3, monkeypatch)
    with pytest.raises(RunError, match="here has no best epoch yet"):
        carry.pack(tmp_path / "here", tmp_path / "carried", which="best")
    capsys.readouterr()
    assert cli.main(["carry", "pack", str(tmp_path / "here"), str(tmp_path / "carried")]) == 0
    assert "best epoch" not in capsys.readouterr().out
