"""Language models trained from a text to a run folder, read back, evaluated and made to write."""

from __future__ import annotations

import csv
import math
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.language import RATE, WORDS, chain, loss_at, small_language_recipe, written
from helpers.quick import quick
from helpers.resume import StopAt, same, train_with_stops
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

import eirehn
from eirehn import cli
from eirehn._internal.files import RunError, read_json, write_json
from eirehn.data.text import TextData
from eirehn.data.vocabulary import Vocabulary
from eirehn.models import LanguageModel, LanguageNetwork
from eirehn.models.generate import generate, pieces, read_prompt
from eirehn.training.config import Recipe
from eirehn.training.evaluate import calibrate, evaluate, evaluate_together
from eirehn.training.run import RunFolder, export
from eirehn.training.trainer import make_task, train

Array = NDArray[np.float64]
MARGIN = 1.5
"""Nats a token that a model must know beyond how frequent words are. There are 2.4 to be known."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("language")
    with eirehn.use_backend("auto"):
        train(small_language_recipe(written(folder)), folder / "run")
    return folder / "run"


def unigram_entropy(train: Path, test: Path) -> float:
    """Nats a token of the test text by the frequencies of the training text."""
    counts = Counter(train.read_text().replace("\n", " <eos> ").split())
    total = sum(counts.values())
    tokens = test.read_text().replace("\n", " <eos> ").split()
    return -sum(math.log(counts[token] / total) for token in tokens) / len(tokens)


def test_a_small_model_learns_a_text(trained: Path) -> None:
    recipe = Recipe.from_dict(read_json(trained / "recipe.json"))
    assert isinstance(recipe.data, TextData)
    result = read_json(trained / "result.json")
    known = unigram_entropy(Path(recipe.data.train), Path(recipe.data.test))
    reached = math.log(result["values"][0])
    assert reached < known - MARGIN
    assert reached > 0.9 * RATE * 10 / 11  # ends of lines are certain where ten words are counted; words are not
    assert result["metric"] == "perplexity"


def test_evaluation_reads_the_whole_text(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the model read back, over all the test text at once, one column, no token left out."""
    model = eirehn.load(trained)
    assert isinstance(model, LanguageModel)
    assert model.tokens == Vocabulary.load(trained / "vocabulary.json")
    assert set(model.tokens.tokens) == {*WORDS, "<eos>", "<unk>"}
    text = (trained.parent / "test.txt").read_text().replace("\n", " <eos> ").split()
    tokens = torch.from_numpy(model.tokens.encode(text)).long()[None]
    with torch.no_grad():
        chances = model(tokens[:, :-1]).double().softmax(-1).gather(-1, tokens[:, 1:, None])
    expected = math.exp(-chances.log().mean().item())
    assert evaluate(trained).values[0] == pytest.approx(expected, rel=1e-5)
    assert evaluate(trained, batch=1).values[0] == pytest.approx(expected, rel=1e-5)
    assert read_json(trained / "result.json")["values"][0] == pytest.approx(expected, rel=1e-5)
    assert evaluate(trained, batch=30).values[0] != pytest.approx(expected, rel=1e-5)  # thirty times from nothing
    assert evaluate(trained, split="validation", batch=10).values[0] == pytest.approx(
        read_json(trained / "result.json")["best_validation"][0], rel=1e-5
    )


@pytest.mark.parametrize(
    "options", [{"shift": True}, {"optimizer": "sgd", "schedule": "decay", "average": 0.9}], ids=str
)
@pytest.mark.parametrize("every", quick(0.0, of=[0.0, 1e9]), ids=["saved every step", "saved on request"])
def test_a_training_that_was_stopped_has_the_same_bits(
    options: dict[str, object], every: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small_language_recipe(written(tmp_path, train=500, test=100), penalty=1e-4, sum_steps=True, **options)
    train(recipe, tmp_path / "straight")  # 6 batches an epoch
    stops = [StopAt(4, killed=False), StopAt(8, killed=True), StopAt(13, killed=False)]
    train_with_stops(recipe, tmp_path / "stopped", stops, every)
    same(tmp_path / "stopped", tmp_path / "straight")


def test_a_pointer_goes_on_in_the_middle_of_an_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it can point at is a part of the state that is saved."""
    data = written(tmp_path, train=500, test=100)
    recipe = small_language_recipe(data, optimizer="sgd", epochs=2)
    recipe = replace(recipe, network=LanguageNetwork("LSTM", 8, pointer=5))
    train(recipe, tmp_path / "straight")
    train_with_stops(recipe, tmp_path / "stopped", [StopAt(4, killed=False)], 1e9)
    same(tmp_path / "stopped", tmp_path / "straight")


def test_texts_that_have_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By no training or evaluation are other words taken for those a model has learned."""
    data = written(tmp_path, train=500, test=100)
    files = [data.train, data.validation, data.test]
    small = ["--network.hidden_size=8", "--optimisation.epochs=1", "--data.steps=8", "--network.max_depth=1"]
    run = str(tmp_path / "run")
    assert cli.main(["train", "--recipe", "lm", "--text", *files, *small, "--out", run]) == 0
    assert cli.main(["train", f"--resume={run}"]) == 0  # written so, too, it means this run
    assert capsys.readouterr().out.count(f"run: {run}") == 2
    text = Path(data.train).read_text("utf-8")
    Path(data.train).write_text(text.replace("w1 ", "zebra "), "utf-8")
    for command in (["evaluate", run], ["train", "--resume", run]):
        assert cli.main(command) == 2
        assert "no longer what the training began with" in capsys.readouterr().err
    assert cli.main(["generate", run, "--tokens", "3"]) == 0  # has a vocabulary of its own


def test_texts_without_a_checksum_that_have_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same words by other numbers: as many, so that the model fits, and would be read wrongly."""
    data, run = written(tmp_path, train=500, test=100), tmp_path / "run"
    recipe = small_language_recipe(replace(data, sha256=""), epochs=1)
    train(recipe, run)
    before = evaluate(run)
    text = Path(data.train).read_text("utf-8")
    Path(data.train).write_text(text + "\n", "utf-8")
    assert recipe.data.vocabulary() == Vocabulary.load(run / "vocabulary.json")
    assert evaluate(run) == before
    rarest = recipe.data.vocabulary().tokens[-2]  # but for <unk>, which does not stand there
    Path(data.train).write_text(text + f"{rarest} " * 1000 + "\n", "utf-8")
    assert len(recipe.data.vocabulary()) == len(Vocabulary.load(run / "vocabulary.json"))
    (run / "result.json").unlink()
    options = (["evaluate", str(run)], ["evaluate", str(run), "--together"], ["train", "--resume", str(run)])
    for command in options:
        assert cli.main(command) == 2
        assert capsys.readouterr().err == (
            f"eirehn: the text that {run} was trained on has changed since: its words are others\n"
        )
    assert not (run / "result.json").exists()


def test_a_pipe_is_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It could be read only once, and waited for without end."""
    data = written(tmp_path, train=500, test=100)
    os.mkfifo(tmp_path / "pipe")
    files = [str(tmp_path / "pipe"), data.validation, data.test]
    assert cli.main(["train", "--recipe", "lm", "--text", *files, "--out", str(tmp_path / "run")]) == 2
    said = f"eirehn: {tmp_path / 'pipe'} is a pipe: a text is read more than once, so it must be a file\n"
    assert capsys.readouterr().err == said
    assert not (tmp_path / "run").exists()


def test_all_runs_are_looked_for_before_the_first_is_read(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results.json"
    assert cli.main(["evaluate", str(trained), str(tmp_path / "none"), "--results", str(results)]) == 2
    assert capsys.readouterr() == ("", f"eirehn: {tmp_path / 'none'} is no run: it has no recipe.json\n")
    lost = tmp_path / "lost"
    shutil.copytree(trained, lost)
    about = read_json(lost / "model.json")
    write_json(lost / "model.json", {**about, "best_score": [None] * len(about["best_score"])})
    assert cli.main(["evaluate", str(lost), "--together", "--results", str(results)]) == 2
    out, err = capsys.readouterr()
    assert (out, "none has a best epoch" in err) == ("", True)


def test_runs_without_values_are_not_evaluated_together(trained: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    shutil.copy(trained / "recipe.json", empty)
    for runs in ([trained, empty], [empty, trained]):
        with pytest.raises(RunError, match=r"empty holds no trained model: it has no best\.safetensors"):
            evaluate_together(runs)


def test_a_model_is_described_as_it_is(tmp_path: Path) -> None:
    """Also where its text is another by the time it is saved."""
    data = written(tmp_path, train=500, test=100)
    recipe = small_language_recipe(data)
    task = make_task(recipe)
    (tmp_path / "run").mkdir()
    export(task, recipe, tmp_path / "run")
    Path(data.train).write_text("one two three\n" * 50, "utf-8")
    export(task, recipe, tmp_path / "run")
    about = read_json(tmp_path / "run" / "model.json")
    assert about["input_size"] == about["output_size"] == len(Vocabulary.load(tmp_path / "run" / "vocabulary.json"))


@pytest.mark.parametrize("device", ["cuda", "foo", "meta", "mps"])
def test_devices_that_are_not_there(device: str, trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if (device == "cuda" and torch.cuda.is_available()) or (device == "mps" and torch.mps.is_available()):
        pytest.skip("there is one")
    for command in ("generate", "evaluate"):
        assert cli.main([command, str(trained), "--device", device]) == 2
        said = capsys.readouterr().err
        assert "device must be one that torch can use" in said
        assert len(said) < 300


def test_temperatures_near_zero_and_models_that_diverged(trained: Path) -> None:
    model = eirehn.load(trained)

    def drawn(temperature: float) -> list[str]:
        return [token.text for token in generate(model, model.tokens, [3], tokens=9, temperature=temperature)]

    assert drawn(1e-320) == drawn(0.0)
    model.bias.data.fill_(math.nan)
    for temperature in (0.0, 1.0):
        with pytest.raises(ValueError, match="diverged"):
            drawn(temperature)


def test_members_trained_together(tmp_path: Path) -> None:
    """Two members without dropout end where each ends alone: they read the same text in the same order."""
    data = written(tmp_path, train=500, test=100)
    plain = small_language_recipe(data, epochs=1)
    network = replace(plain.network, word_dropout=0.0, input_dropout=0.0, hidden_dropout=0.0, output_dropout=0.0)
    both = train(replace(plain, network=network, seeds=(3, 4)), tmp_path / "both")
    for index, seed in enumerate((3, 4)):
        alone = train(replace(plain, network=network, seeds=(seed,)), tmp_path / f"alone-{seed}")
        assert both["values"][index] == pytest.approx(alone["values"][0], rel=1e-4)


def test_the_same_seed_writes_the_same_text(trained: Path) -> None:
    model = eirehn.load(trained)

    def text(seed: int, temperature: float = 1.0) -> list[str]:
        drawn = generate(model, model.tokens, [3], tokens=60, seed=seed, temperature=temperature)
        return [token.text for token in drawn]

    assert text(0) == text(0)
    assert text(0) != text(1)
    assert text(0, temperature=0.0) == text(1, temperature=0.0)


def test_what_is_written_is_what_the_model_expects(trained: Path) -> None:
    """Token by token with the state carried on, as the model has it for the whole text, and by its chances."""
    model = eirehn.load(trained)
    drawn = list(generate(model, model.tokens, [2, 5], tokens=12, temperature=0.0))
    ids = [int(each) for each in model.tokens.encode(["<eos>", *(token.text for token in drawn)])]
    with torch.no_grad():
        logits = model(torch.tensor([ids]))[0]
    assert [token.given for token in drawn] == [True] * 2 + [False] * 12
    for at, index in enumerate(ids[3:], 2):
        assert logits[at, index] == pytest.approx(logits[at].max().item(), abs=1e-5)
    assert all(token.depth == 2 for token in drawn)
    # The words of a chain follow each other as they do in the text that was learned.
    words = [token.text for token in generate(model, model.tokens, tokens=3000, seed=1) if token.text != "<eos>"]
    real = chain(6000, 0)
    allowed = set(pairwise(real))
    followed = [pair in allowed for pair in pairwise(words)]
    assert sum(followed) / len(followed) > 0.8


def test_generate_by_command(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["generate", str(trained), "--prompt", "w1 zebra w2 zebra", "--tokens", "30", "--temperature", "0.8"]
    assert cli.main(command) == 0
    out, err = capsys.readouterr()
    assert "<unk>" in err
    assert err.count("'zebra'") == 1
    words = out.split()
    assert words[:4] == ["w1", "<unk>", "w2", "<unk>"]
    assert "\x1b" not in out
    assert cli.main(command) == 0
    assert capsys.readouterr().out == out
    assert cli.main([*command, "--show-depth"]) == 0
    with_depth = capsys.readouterr().out
    assert with_depth.split()[0] == "w1₂"
    assert with_depth.translate(str.maketrans("", "", "₂¶")).split() == words
    for flag, wrong in (
        ("temperature", "-1"),
        ("seed", "-1"),
        ("seed", str(2**63)),
        ("tokens", "0"),
        ("top-p", "0"),
    ):
        assert cli.main([*command, f"--{flag}", wrong]) == 2
        assert f"eirehn: {flag.replace('-', '_')} must be" in capsys.readouterr().err


def test_only_the_likeliest_are_drawn(trained: Path) -> None:
    """As few as have the chance asked for, each by its share in that; of a chance of 1 all, as without."""
    model = eirehn.load(trained)
    with torch.no_grad():
        start = torch.from_numpy(model.tokens.encode(["<eos>", "w1"])).long()[None]
        chances = model(start)[0, -1].double().softmax(-1)
    ordered = chances.sort(descending=True)
    few = int((ordered.values.cumsum(0) < 0.8).sum()) + 1
    assert 1 < few < 6
    prompt = read_prompt("w1", model.tokens).ids

    def drawn(seed: int, top_p: float) -> int:
        token = list(generate(model, model.tokens, prompt, tokens=1, seed=seed, top_p=top_p))[-1]
        return int(model.tokens.encode([token.text])[0])

    counts = Counter(drawn(seed, 0.8) for seed in range(300))
    assert set(counts) == set(ordered.indices[:few].tolist())
    share = float(ordered.values[0] / ordered.values[:few].sum())
    assert counts[int(ordered.indices[0])] / 300 == pytest.approx(share, abs=0.1)
    assert {drawn(seed, 1e-9) for seed in range(5)} == {int(ordered.indices[0])}
    texts = [
        [each.text for each in generate(model, model.tokens, tokens=50, **given)] for given in ({}, {"top_p": 1})
    ]
    assert texts[0] == texts[1]
    for wrong in (0.0, -1.0, 1.5, math.nan):
        with pytest.raises(ValueError, match="top_p must be"):
            next(generate(model, model.tokens, top_p=wrong))


def test_score_by_command(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A text of the run's own has the perplexity that evaluation tells, but for its first word."""
    text = trained.parent / "test.txt"
    table = tmp_path / "new" / "words.csv"
    assert cli.main(["score", str(trained), str(text), "--out", str(table)]) == 0
    out = capsys.readouterr().out
    rows = list(csv.DictReader(table.read_text("utf-8").splitlines()))
    assert [row["token"] for row in rows] == text.read_text().replace("\n", " <eos> ").split()
    assert (rows[11]["line"], rows[11]["place"], rows[11]["known"]) == ("2", "1", "1")
    bits = [float(row["bits"]) for row in rows]
    rest = math.exp(math.log(2) * sum(bits[1:]) / len(bits[1:]))
    assert rest == pytest.approx(evaluate(trained).values[0], rel=1e-2)  # it has a line's end before the first, too
    assert (
        f"{len(rows):,} words, ends of lines among them: perplexity {2 ** (sum(bits) / len(bits)):.4g}"[:-1] in out
    )
    assert "; 0 not in the vocabulary" in out
    assert all(0 < float(row["open"]) <= float(row["depth"]) == 2 for row in rows)
    text = tmp_path / "own.txt"
    text.write_text('w1 zebra "w2"\nw1 w2\n')
    assert cli.main(["score", str(trained), str(text), "--out", str(table), "--apart", "--max_depth", "1"]) == 0
    assert "7 words" in (out := capsys.readouterr().out)
    assert "depth 1.000; 2 not in the vocabulary, and read as <unk>" in out
    rows = list(csv.DictReader(table.read_text("utf-8").splitlines()))
    assert [row["token"] for row in rows] == ["w1", "zebra", '"w2"', "<eos>", "w1", "w2", "<eos>"]
    assert [row["known"] for row in rows] == list("1001111")
    assert rows[0]["bits"] == rows[4]["bits"]


def test_scores_that_cannot_be_had(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "binary").write_bytes(b"w1 w2\nw\xff")
    table = tmp_path / "words.csv"
    table.write_text("of before")
    for name, told in (
        ("empty", "empty is empty"),
        (
            "binary",
            "binary, line 2: byte 0xff is not utf-8; this is no text, or not in utf-8 "
            "(data.encoding, or --encoding of score, says in what)",
        ),
        ("none", "none: No such file or directory"),
    ):
        assert cli.main(["score", str(trained), str(tmp_path / name), "--out", str(table)]) == 2
        assert capsys.readouterr().err.strip().endswith(told)
    assert cli.main(["score", str(trained), str(table), "--out", str(tmp_path)]) == 2
    assert "--out must be a file" in capsys.readouterr().err
    assert cli.main(["score", str(trained), str(table), "--encoding", "klingon"]) == 2
    assert "encoding must be the name of a text encoding" in capsys.readouterr().err
    assert cli.main(["score", str(tmp_path), str(table)]) == 2
    assert "holds no trained model" in capsys.readouterr().err
    for own in (table, trained / "model.json"):
        before = own.read_bytes()
        assert cli.main(["score", str(trained), str(table), "--out", str(own)]) == 2
        assert "--out must be a file of its own" in capsys.readouterr().err
        assert own.read_bytes() == before
    assert table.read_text() == "of before"
    assert len(list(tmp_path.iterdir())) == 3


def test_scores_of_characters_in_a_table(tmp_path: Path) -> None:
    """Those that mean something in a table, and ends of lines of all kinds, come back from it."""
    from eirehn.cli.score import _written
    from eirehn.models.score import Scored

    text = 'a,"\r\n\n\u2028 \t'
    rows = [Scored(1, at, letter, True, 0.5, 1.0, None) for at, letter in enumerate(text, 1)]
    assert list(_written(rows, tmp_path / "table.csv")) == rows
    with (tmp_path / "table.csv").open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["token"] for row in found] == list(text)
    assert {row["open"] for row in found} == {""}


def test_a_text_that_is_all_but_ruled_out(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = eirehn.load(trained)
    model.embedding.weight.data.mul_(1e6)
    monkeypatch.setattr("eirehn.models.generate.load", lambda *given, **options: model)
    (tmp_path / "text").write_text("w1 w2 zebra\n")
    assert cli.main(["score", str(trained), str(tmp_path / "text"), "--device", "cpu"]) == 0
    assert "perplexity inf" in capsys.readouterr().out


def test_lines_and_depths_as_they_are_printed() -> None:
    from eirehn.models.generate import Token

    tokens = [Token("a", 1.0, True), Token("b", 2.5, False), Token("<eos>", 4.0, False), Token("c", 2.0, False)]
    assert "".join(piece.text for piece in pieces(tokens, "word")) == "a b\nc"
    shown = list(pieces(tokens, "word", depth_of=4))
    assert "".join(piece.text for piece in shown) == "a₁ b₂.₅ ¶₄\nc₂"
    assert shown[0].style != shown[2].style
    letters = [Token("a", 1.0, True), Token("\n", 1.0, True), Token("b", 1.0, True)]
    assert "".join(piece.text for piece in pieces(letters, "char")) == "a\nb"


def test_a_prompt_of_characters() -> None:
    vocabulary = Vocabulary("char", ("<unk>", "a", "b", "\n"))
    assert read_prompt("abz a", vocabulary) == ([1, 2, 0, 0, 1], ["z", " "])


def test_texts_by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Any three texts, by words and by characters."""
    written(tmp_path, train=1000, test=60)
    files = [str(tmp_path / f"{name}.txt") for name in ("train", "validation", "test")]
    small = ["--network.hidden_size", "8", "--optimisation.epochs", "1", "--hardware.accelerator", "cpu"]
    for level in ("word", "char"):
        out = tmp_path / level
        command = ["train", "--recipe", "lm", "--text", *files, "--level", level, *small, "--out", str(out)]
        assert cli.main(command) == 0
        assert "test perplexity" in capsys.readouterr().out
        assert Vocabulary.load(out / "vocabulary.json").level == level
        assert cli.main(["evaluate", str(out), "--split", "test", "--batch", "1"]) == 0
        assert "mean: perplexity" in capsys.readouterr().out
        assert cli.main(["generate", str(out), "--tokens", "5"]) == 0
        assert capsys.readouterr().out.strip()


def test_texts_have_a_recipe_of_their_own(tmp_path: Path) -> None:
    """Where none is named, and no YAML file says another."""
    data = written(tmp_path, train=1000, test=60)
    small = [
        "--network.hidden_size=8",
        "--network.max_depth=1",
        "--optimisation.epochs=1",
        "--hardware.accelerator=cpu",
    ]
    command = ["train", "--text", data.train, data.validation, data.test, *small]
    assert cli.main([*command, "--out", str(tmp_path / "run")]) == 0
    recipe = Recipe.from_dict(read_json(tmp_path / "run" / "recipe.json"))
    assert (recipe.name, recipe.optimisation.optimizer, recipe.seeds) == ("lm", "adamw", (0,))


def test_no_report_of_words_beside_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = written(tmp_path, train=500, test=100)
    command = ["train", "--text", data.train, data.validation, data.test, "--network.kind=LSTM", "--data.steps=5"]
    command += ["--network.hidden_size=4", "--optimisation.epochs=1", "--hardware.accelerator=cpu"]
    for level in ("word", "char"):
        assert cli.main([*command, "--level", level, "--out", str(tmp_path / level)]) == 0
    capsys.readouterr()
    runs = [str(tmp_path / level) for level in ("word", "char")]
    assert cli.main(["report", *runs, "--out", str(tmp_path / "page.html")]) == 2
    assert capsys.readouterr().err.strip().endswith(f"{runs[1]} has others than {runs[0]}: level")
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "ACT"])
def test_texts_are_trained_by_other_networks_too(kind: str, tmp_path: Path) -> None:
    """Without what the usual recipe has for a highway network only."""
    data = written(tmp_path, train=500, test=100)
    command = ["train", "--text", data.train, data.validation, data.test, "--network.kind", kind, "--data.steps=5"]
    command += ["--network.hidden_size=4", "--optimisation.epochs=1", "--hardware.accelerator=cpu"]
    assert cli.main([*command, "--out", str(tmp_path / "run")]) == 0
    network = RunFolder(tmp_path / "run").recipe().network
    assert (network.kind, dict(network.start), network.hidden_dropout) == (kind, {"weight_bound": 0.04}, 0.0)
    assert cli.main([*command, "--network.hidden_dropout=0.1", "--out", str(tmp_path / "other")]) == 2


def test_models_as_sure_as_they_should_be(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Against a search in NumPy, of a model and of one whose last bias is too large."""
    run, recipe, about = tmp_path / "run", RunFolder(trained).recipe(), read_json(trained / "model.json")
    shutil.copytree(trained, run)
    write_json(run / "recipe.json", replace(recipe, seeds=(0, 1)).to_dict())
    write_json(run / "model.json", {**about, "seeds": [0, 1], "best_score": about["best_score"] * 2})
    values = {name: torch.cat([each, each]) for name, each in load_file(trained / "best.safetensors").items()}
    values["bias"][1] += torch.linspace(-2, 2, values["bias"].size(1))
    save_file(values, run / "best.safetensors")
    found = calibrate(run, batch=1)
    assert found.seeds == (0, 1)
    assert isinstance(recipe.data, TextData)
    texts, temperatures = recipe.data.texts(), []
    for seed in found.seeds:
        model, logits = eirehn.load(run, seed=seed), {}
        for name in ("validation", "test"):
            tokens = torch.as_tensor(getattr(texts, name)).long()
            with torch.no_grad():
                logits[name] = model(tokens[None, :-1])[0].double().numpy(), tokens[1:].numpy()
        tried = np.linspace(0.6, 1.6, 251)
        temperatures.append(tried[np.argmin([loss_at(each, *logits["validation"]) for each in tried])])
        wanted = math.exp(loss_at(found.temperatures[seed], *logits["test"]))
        assert found.values[seed] == pytest.approx(wanted, rel=1e-5)
    assert found.temperatures == pytest.approx(temperatures, abs=0.005)
    assert abs(temperatures[0] - temperatures[1]) > 0.02
    assert 0.6 < min(temperatures) < max(temperatures) < 1.6
    results = tmp_path / "results.json"
    assert cli.main(["evaluate", str(run), "--batch", "1", "--calibrate", "--results", str(results)]) == 0
    said = f"seed 1, calibrated: perplexity {found.values[1]:.6g}, temperature {found.temperatures[1]:.2f}"
    assert said in capsys.readouterr().out
    kept, plain = read_json(results), evaluate(run, batch=1)
    assert (kept["split"], kept["which"], kept["batch"], kept["max_depth"]) == ("test", "best", 1, None)
    assert kept["command"].endswith(f"--calibrate --results {results}")
    assert kept["runs"] == [
        {
            "run": str(run),
            "metric": "perplexity",
            "seeds": [0, 1],
            "values": plain.values,
            "depths": plain.depths,
            "mean": sum(plain.values) / 2,
            "calibrated": {"temperatures": found.temperatures, "values": found.values},
        }
    ]
    assert "together" not in kept


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"max_depth": 1}, {"which": "last"}])
def test_calibration_of_what_is_asked_for(options: dict[str, Any], trained: Path, tmp_path: Path) -> None:
    """By default the test text is read in one column, and the validation text in those of the training."""
    run, recipe = tmp_path / "run", RunFolder(trained).recipe()
    shutil.copytree(trained, run)
    recipe = replace(recipe, optimisation=replace(recipe.optimisation, batch_size=100))  # short columns differ most
    write_json(run / "recipe.json", recipe.to_dict())
    values = load_file(run / "last.safetensors")
    values["bias"] += torch.linspace(-1.5, 1.5, values["bias"].size(1))
    save_file(values, run / "last.safetensors")
    model = eirehn.load(run, which=options.get("which", "best"))
    assert isinstance(recipe.data, TextData)
    texts = recipe.data.texts()
    found = calibrate(run, **options)
    with torch.no_grad():
        tokens = torch.as_tensor(texts.validation).long()
        side = recipe.optimisation.batch_size
        length = (len(tokens) - 1) // side
        x, target = (each[: side * length].view(side, length) for each in (tokens[:-1], tokens[1:]))
        logits = model(x, max_depth=options.get("max_depth")).flatten(0, 1).double().numpy()
        tried = np.linspace(0.6, 1.6, 1001)
        losses = [loss_at(each, logits, target.flatten().numpy()) for each in tried]
        tokens = torch.as_tensor(texts.test).long()
        logits = model(tokens[None, :-1], max_depth=options.get("max_depth"))[0].double().numpy()
    assert loss_at(found.temperatures[0], logits, tokens[1:].numpy()) == pytest.approx(
        math.log(found.values[0]), rel=1e-6
    )
    assert found.temperatures[0] == pytest.approx(tried[np.argmin(losses)], abs=0.005)


def test_temperatures_of_none_and_beyond_the_end(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of four members: as trained, without a best epoch, far too sure, and with values that are no numbers."""
    run, about = tmp_path / "run", read_json(trained / "model.json")
    shutil.copytree(trained, run)
    write_json(run / "recipe.json", replace(RunFolder(trained).recipe(), seeds=(0, 1, 2, 3)).to_dict())
    scores = [about["best_score"][0], None, about["best_score"][0], about["best_score"][0]]
    write_json(run / "model.json", {**about, "seeds": [0, 1, 2, 3], "best_score": scores})
    values = {name: torch.cat([each] * 4) for name, each in load_file(trained / "best.safetensors").items()}
    values["bias"][2] += torch.linspace(-40, 40, values["bias"].size(1))
    values["bias"][3] = math.nan
    save_file(values, run / "best.safetensors")
    found = calibrate(run)
    alone = calibrate(trained)
    assert found.values[0] == pytest.approx(alone.values[0], rel=1e-5)
    assert found.temperatures[0] == pytest.approx(alone.temperatures[0], rel=1e-5)
    assert found.temperatures[2] == pytest.approx(1.6, rel=1e-9)
    for member in (1, 3):
        assert math.isnan(found.values[member])
        assert math.isnan(found.temperatures[member])
    assert cli.main(["evaluate", str(run), "--calibrate"]) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if "calibrated" in line]
    assert ["the best may lie beyond" in line for line in said] == [False, False, True, False]
    assert not any("this very text" in line for line in said)
    assert cli.main(["evaluate", str(trained), "--calibrate", "--split", "validation"]) == 0
    assert capsys.readouterr().out.rstrip().endswith(", chosen on this very text")


def test_only_language_models_are_calibrated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from helpers.small import small

    train(small(epochs=1), tmp_path / "other")
    capsys.readouterr()
    assert cli.main(["evaluate", str(tmp_path / "other"), "--calibrate"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "only language models are calibrated" in err


def test_what_cannot_be_evaluated_together_is_told_first(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from helpers.small import small

    train(small(epochs=1), tmp_path / "other")
    capsys.readouterr()
    assert cli.main(["evaluate", str(trained), str(tmp_path / "other"), "--together"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "only language models are evaluated together" in err


def test_texts_of_the_same_numbers_are_not_the_same(trained: Path, tmp_path: Path) -> None:
    recipe = RunFolder(trained).recipe()
    data = recipe.data
    assert isinstance(data, TextData)
    files = {}
    for name in ("train", "validation", "test"):
        text = Path(getattr(data, name)).read_text("utf-8").replace("w", "v")
        files[name] = str(tmp_path / f"{name}.txt")
        Path(files[name]).write_text(text, "utf-8")
    other = replace(data, **files, sha256="")
    assert torch.equal(other.texts().test, data.texts().test)
    RunFolder(tmp_path / "other").open(replace(recipe, data=other))
    with pytest.raises(ValueError, match=r"that of .*other is another"):
        evaluate_together([trained, tmp_path / "other"])


def test_a_run_without_a_model(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "recipe.json").write_bytes((trained / "recipe.json").read_bytes())
    for command in ("evaluate", "generate"):
        assert cli.main([command, str(tmp_path)]) == 2
        assert "holds no trained model" in capsys.readouterr().err


@pytest.mark.slow
def test_writing_that_is_stopped_is_not_saved(trained: Path, tmp_path: Path) -> None:
    """Only of what is saved it is said that it goes on."""
    process = subprocess.Popen(
        [sys.executable, "-m", "eirehn", "generate", str(trained), "--tokens", "100000000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # also where tests run in the background
    )
    assert process.stdout is not None
    process.stdout.read(200)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert told == b"eirehn: stopped\n"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["train", "--recipe", "lm"], "--text TRAIN VALIDATION TEST"),
        (["train", "--recipe", "lm", "--text", "a.txt", "b.txt"], "three files"),
        (["train", "--recipe", "lm", "--text", "a.txt", "b.txt", "c.txt"], "cannot read .*a.txt"),
        (["train", "--recipe", "lm", "--text", "a", "b", "c", "--level", "line"], "level must be one of"),
        (["train", "--level", "char"], "--level is for your own texts: --text"),
        (["evaluate", "a", "--batch", "x"], "eirehn: --batch must be a whole number, got x"),
        (["generate", "a", "--tokens", "1.5"], "eirehn: --tokens must be a whole number, got 1.5"),
        (["generate", "a", "--temperature", "nan"], "eirehn: --temperature must be a number, got nan"),
    ],
)
def test_wrong_commands(
    command: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(command) == 2
    import re

    assert re.search(message, capsys.readouterr().err)


@pytest.mark.parametrize("short", ["train", "validation"])
def test_a_text_too_short_leaves_nothing_behind(
    short: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = written(tmp_path, train=1000, test=60)
    Path(getattr(data, short)).write_text("a b c\n" if short == "train" else "a", "utf-8")
    command = ["train", "--recipe", "lm", "--text", data.train, data.validation, data.test]
    if short == "validation":
        command += ["--level", "char"]
    assert cli.main([*command, "--out", str(tmp_path / "run")]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    expected = "it has 4 tokens, and 701 are needed" if short == "train" else "has no two characters"
    assert expected in told
    assert not (tmp_path / "run").exists()


def test_a_vocabulary_that_does_not_fit(trained: Path, tmp_path: Path) -> None:
    for name in ("model.json", "best.safetensors"):
        (tmp_path / name).write_bytes((trained / name).read_bytes())
    Vocabulary("word", ("<unk>", "<eos>", "a")).save(tmp_path / "vocabulary.json")
    with pytest.raises(RunError, match="does not fit"):
        eirehn.load(tmp_path)


def test_columns_belong_to_texts(tmp_path: Path) -> None:
    from helpers.small import small

    train(small(epochs=1), tmp_path)
    with pytest.raises(ValueError, match="these data are none"):
        evaluate(tmp_path, batch=1)


def test_models_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two regularised LSTMs and a third with a pointer as one: the mean of what each expects."""
    data = written(tmp_path, train=2000, test=300)
    network = LanguageNetwork(
        "LSTM", 16, num_layers=2, dropout=0.1, input_dropout=0.1, output_dropout=0.1, tied=False, start={}
    )
    plain = replace(small_language_recipe(data, epochs=2), network=network, seeds=(0, 1))
    train(plain, tmp_path / "a")
    train(replace(plain, network=replace(network, pointer=5), seeds=(2,)), tmp_path / "b")
    models = [eirehn.load(tmp_path / "a", seed=seed) for seed in (0, 1)] + [eirehn.load(tmp_path / "b")]
    tokens = data.texts().test.long()[None]
    with torch.no_grad():
        each = [model(tokens[:, :-1]).double().softmax(-1).gather(-1, tokens[:, 1:, None]) for model in models]
    together = evaluate_together([tmp_path / "a", tmp_path / "b"])
    assert together.members == 3
    assert together.value == pytest.approx(math.exp(-(sum(each) / 3).log().mean().item()), rel=1e-5)
    assert together.value < math.exp(-sum(chances.log().mean().item() for chances in each) / 3)
    asked = ["evaluate", str(tmp_path / "a"), str(tmp_path / "b"), "--together"]
    assert cli.main([*asked, "--results", str(tmp_path / "results.json")]) == 0
    assert f"together, 3 models: perplexity {together.value:.6g}" in capsys.readouterr().out
    kept = read_json(tmp_path / "results.json")
    assert [each["run"] for each in kept["runs"]] == [str(tmp_path / "a"), str(tmp_path / "b")]
    assert kept["together"] == {**together._asdict(), "left_out": []}


def test_members_without_a_best_epoch_do_not_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What they started from is no model; the others are what they are without them."""
    data = written(tmp_path, train=500, test=100)
    recipe = replace(small_language_recipe(data, epochs=1), network=LanguageNetwork("RNN", 8), seeds=(0, 1))
    train(recipe, tmp_path / "both")
    train(replace(recipe, seeds=(0,)), tmp_path / "good")
    about = read_json(tmp_path / "both" / "model.json")
    write_json(tmp_path / "both" / "model.json", {**about, "best_score": [about["best_score"][0], None]})
    together = evaluate_together([tmp_path / "both"])
    assert together.members == 1
    assert together.value == pytest.approx(evaluate(tmp_path / "both").values[0], rel=1e-6)
    assert together.left_out == [f"{tmp_path / 'both'}, seed 1"]
    assert evaluate_together([tmp_path / "both"], which="last").members == 2
    results = tmp_path / "new" / "results.json"
    asked = ["evaluate", str(tmp_path / "both"), str(tmp_path / "good"), "--together", "--results", str(results)]
    assert cli.main(asked) == 0
    out, err = capsys.readouterr()
    value = evaluate(tmp_path / "both").values[0]
    assert f"mean: perplexity {value:.6g} (1 of 2 left out: no best epoch)\n" in out
    assert "together, 2 models" in out
    assert err == f"eirehn: left out, because it has no best epoch: {tmp_path / 'both'}, seed 1\n"
    kept = read_json(results)
    assert kept["runs"][0]["values"] == [value, None]
    assert kept["runs"][0]["mean"] == value
    assert kept["together"]["left_out"] == [f"{tmp_path / 'both'}, seed 1"]
    assert kept["versions"]["torch"] == torch.__version__
    calibrated = calibrate(tmp_path / "both")
    assert math.isfinite(calibrated.values[0] + calibrated.temperatures[0])
    assert math.isnan(calibrated.values[1])
    assert math.isnan(calibrated.temperatures[1])
    write_json(tmp_path / "good" / "model.json", {**about, "seeds": [0], "best_score": [None]})
    assert cli.main(["evaluate", str(tmp_path / "good"), "--together", "--results", str(results)]) == 2
    assert "none has a best epoch" in capsys.readouterr().err
    assert read_json(results) == kept
