"""Trainings on texts that stay in files: the same bits, and memory that does not grow with the text."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from helpers.language import small_language_recipe, written
from helpers.resume import StopAt, same, train_with_stops

from eirehn import cli
from eirehn.data import text
from eirehn.training.evaluate import evaluate
from eirehn.training.loaders import Data
from eirehn.training.trainer import train


@pytest.mark.parametrize("level", ["word", "char"])
def test_the_same_bits_as_in_memory(level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = replace(written(tmp_path, train=500, test=100), level=level)
    recipe = small_language_recipe(data)
    train(recipe, tmp_path / "memory")
    assert data.texts().train.dtype == torch.int32
    text._read_texts.cache_clear()
    monkeypatch.setenv("EIREHN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(text, "LARGE", 0)
    monkeypatch.setattr(Data, "most_bytes", 0)
    stops = [StopAt(4, killed=False), StopAt(8, killed=True)]
    train_with_stops(recipe, tmp_path / "files", stops, 1e9)
    assert data.texts().train.dtype == torch.int16
    same(tmp_path / "files", tmp_path / "memory")
    in_files = evaluate(tmp_path / "files", batch=3)
    monkeypatch.setattr(text, "LARGE", 1 << 30)
    text._read_texts.cache_clear()
    assert evaluate(tmp_path / "memory", batch=3) == in_files


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


def test_a_text_that_takes_long_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = written(tmp_path, train=500, test=100)
    command = ["train", "--text", data.train, data.validation, data.test, "--data.steps=5", "--network.max_depth=1"]
    command += ["--network.hidden_size=4", "--optimisation.epochs=1", "--hardware.accelerator=cpu", "--out"]
    monkeypatch.setenv("EIREHN_CACHE_DIR", str(tmp_path / "cache"))
    for large, run, expected in ((1 << 20, "a", 0), (100, "b", 1), (100, "c", 0)):
        monkeypatch.setattr(text, "LARGE", large)
        text._read_texts.cache_clear()  # as in a new process
        assert cli.main([*command, str(tmp_path / run)]) == 0
        assert capsys.readouterr().err.count(f"reading {data.train}, once") == expected


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
