"""Run folders in every state a user may leave them in: a clear message, and nothing overwritten."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytorch_lightning as pl
from helpers.language import small_language_recipe, written
from helpers.small import small

from eirehn._internal.files import RunError, read_json, write_json
from eirehn.data.vocabulary import Vocabulary
from eirehn.training.run import RunFolder
from eirehn.training.trainer import train, with_more_epochs


def test_a_run_of_another_recipe_is_refused(tmp_path: Path) -> None:
    recipe = small(epochs=1, clip=1.0)
    result = train(recipe, tmp_path)
    assert RunFolder(tmp_path).recipe() == recipe
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    with pytest.raises(
        RunError, match=r"another recipe \(it differs in optimisation.epochs, optimisation.depth_penalty\)"
    ):
        train(small(epochs=2, depth_penalty=0.5, clip=1.0), tmp_path)
    # Other hardware does not make it another.
    assert train(replace(recipe, hardware=replace(recipe.hardware, devices=2)), tmp_path) == result
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_the_commands_that_trained_a_run_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first, and each that changed the number of epochs; not one that resumed or repeated it."""
    recipe = small(epochs=1)
    train(recipe, tmp_path / "python")
    assert RunFolder(tmp_path / "python").commands() == []
    run = tmp_path / "run"
    for line in ("train --data 'my file.csv'", "train --resume run"):
        monkeypatch.setattr(sys, "argv", ["/usr/bin/eirehn", *shlex.split(line)])
        train(recipe, run)
    monkeypatch.setattr(sys, "argv", ["/lib/eirehn/__main__.py", "train", "--resume", "run", "--epochs=2"])
    train(with_more_epochs(run, 2), run)
    assert RunFolder(run).commands() == [
        "eirehn train --data 'my file.csv'",
        "eirehn train --resume run --epochs=2",
    ]


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RunError, match="is not empty and is not a run folder"):
        train(small(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]  # and nothing is left beside it
    with pytest.raises(RunError, match="is a file, not a run folder"):
        train(small(), tmp_path / "thesis.tex")
    with pytest.raises(RunError, match="cannot write to"):
        train(small(), tmp_path / "thesis.tex" / "below")
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *[("recipe.json", each) for each in ("", "{", "[]", '{"network": 3}', '{"surprise": 1}', '{"seeds": []}')],
        *[("result.json", each) for each in ("{}", "[]", '{"values": [1]}')],
    ],
)
def test_damaged_files(name: str, content: str, tmp_path: Path) -> None:
    RunFolder(tmp_path).open(small())
    (tmp_path / name).write_text(content)
    with pytest.raises(RunError, match=rf"{name} is damaged"):
        train(small(), tmp_path)
    assert (tmp_path / name).read_text() == content


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
    RunFolder(tmp_path).open(small())
    assert not list(tmp_path.glob(".*.tmp"))


def test_one_process_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eirehn.training.run.PATIENCE", 0.3)
    code = "import sys; from eirehn.training.run import RunFolder\n"
    code += "with RunFolder(sys.argv[1]): print('held', flush=True); sys.stdin.read()"
    line = [sys.executable, "-c", code, str(tmp_path)]
    holder = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(RunError, match="is in use by another process"):
        train(small(), tmp_path)
    holder.kill()  # even so the system lets go of the lock
    holder.communicate()
    with RunFolder(tmp_path):
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(RunError, match=r"cannot write .*Permission denied"):
        train(small(), tmp_path)


def test_a_model_is_described_as_it_is(tmp_path: Path) -> None:
    """Also where its text is another by the time it is saved."""
    data, run = written(tmp_path, train=500, test=100), tmp_path / "run"
    recipe = small_language_recipe(data, epochs=1)
    change = pl.callbacks.LambdaCallback(on_train_start=lambda *_: Path(data.train).write_text("one two\n" * 50))
    train(recipe, run, callbacks=[change])
    about = read_json(run / "model.json")
    assert about["input_size"] == about["output_size"] == len(Vocabulary.load(run / "vocabulary.json"))
