"""Run folders in every state a user may leave them in: a clear message, and nothing overwritten."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.small import small

from eirehn._internal.files import RunError, read_json, write_json, write_text
from eirehn.models.io import load
from eirehn.training.config import Recipe
from eirehn.training.run import RunFolder
from eirehn.training.trainer import train


def test_a_recipe_comes_back_the_same(tmp_path: Path) -> None:
    recipe = small(price=1e-3, clip=1.0)
    run = RunFolder(tmp_path / "run")
    with run:
        run.open(recipe)
    assert run.recipe() == recipe
    assert Recipe.from_dict(recipe.to_dict()) == recipe


def test_a_run_of_another_recipe_is_refused(tmp_path: Path) -> None:
    train(small(epochs=1), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    with pytest.raises(RunError, match=r"another recipe \(it differs in optimisation.epochs, optimisation.price\)"):
        train(small(epochs=2, price=0.5), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_other_hardware_is_no_other_recipe(tmp_path: Path) -> None:
    recipe = small(epochs=1)
    result = train(recipe, tmp_path)
    assert train(replace(recipe, hardware=replace(recipe.hardware, devices=2)), tmp_path) == result


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunError, match="is not empty and holds no run"):
        train(small(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]  # and nothing is left beside it


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    with pytest.raises(RunError, match="is a file, not a run folder"):
        train(small(), path)
    with pytest.raises(RunError, match="cannot write to"):
        train(small(), path / "below")
    assert path.read_text() == "x"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"network": 3}', '{"surprise": 1}', '{"seeds": []}'])
def test_a_damaged_recipe(content: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_text(content)
    with pytest.raises(RunError, match=r"recipe.json is damaged"):
        train(small(), tmp_path)
    assert (tmp_path / "recipe.json").read_text() == content


def test_a_folder_that_another_process_is_making_a_run_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its recipe may come to its place between two looks at what is there."""
    recipe, listed = small(epochs=1), Path.iterdir

    def iterdir(path: Path) -> Iterator[Path]:
        if path == tmp_path and not (path / "recipe.json").exists():
            write_json(path / "recipe.json", recipe.to_dict())
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    with RunFolder(tmp_path) as run:
        run.open(recipe)


def test_what_a_killed_write_left_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / ".recipe.json.abc123.tmp").write_text("{")
    train(small(epochs=1), tmp_path)
    assert not list(tmp_path.glob(".*.tmp"))


@pytest.mark.parametrize("content", ["{}", "[]", '{"values": [1]}'])
def test_a_damaged_result(content: str, tmp_path: Path) -> None:
    train(small(epochs=1), tmp_path)
    (tmp_path / "result.json").write_text(content)
    with pytest.raises(RunError, match=r"result.json is damaged"):
        train(small(epochs=1), tmp_path)


def test_what_is_written_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    real = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: (synced.append(os.fstat(descriptor).st_size), real(descriptor))
    )
    write_text(tmp_path / "file", "twelve bytes")
    assert synced[0] == 12  # all of it, before it takes its place


def test_one_process_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eirehn.training.folder.PATIENCE", 0.3)
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from eirehn.training.folder import RunFolder\n"
            "with RunFolder(sys.argv[1]): print('held', flush=True); sys.stdin.read()",
            str(tmp_path),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(RunError, match="is in use by another process"):
        train(small(), tmp_path)
    holder.kill()  # even so the system lets go of the lock
    holder.communicate()
    with RunFolder(tmp_path):
        pass


def test_no_room_for_a_file(tmp_path: Path) -> None:
    """What was there stays, and nothing else is left lying about."""
    path = tmp_path / "file.json"
    write_json(path, {"old": True})
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
    try:
        with pytest.raises(RunError, match=r"cannot write .*file.json: File too large"):
            write_text(path, "x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert read_json(path) == {"old": True}
    assert os.listdir(tmp_path) == ["file.json"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(RunError, match=r"cannot write .*Permission denied"):
        train(small(), tmp_path)


def test_models_that_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="holds no trained model"):
        load(tmp_path)
    train(small(epochs=1), tmp_path / "run")
    with pytest.raises(ValueError, match=r"seed must be one of 0, 1 in .*, got 7"):
        load(tmp_path / "run", seed=7)
    with pytest.raises(ValueError, match="which must be one of best, last, got 'first'"):
        load(tmp_path / "run", which="first")
    values = tmp_path / "run" / "best.safetensors"
    values.write_bytes(values.read_bytes()[:100])
    with pytest.raises(RunError, match=r"best.safetensors is damaged"):
        load(tmp_path / "run")
    about = read_json(tmp_path / "run" / "model.json")
    about["network"]["hidden_size"] = 6
    write_json(tmp_path / "run" / "model.json", about)
    with pytest.raises(RunError, match="does not fit the model"):
        load(tmp_path / "run", which="last")
    (tmp_path / "run" / "model.json").write_text("{}")
    with pytest.raises(RunError, match=r"model.json is damaged"):
        load(tmp_path / "run")
