"""The metrics of trained runs, alone and together, as they are and temperature-scaled."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers.language import WORDS, calibrated, small_language_recipe, temperatures, written
from helpers.small import small, with_network
from safetensors.torch import load_file, save_file
from scipy.optimize import minimize_scalar

import eirehn
from eirehn._internal.files import RunError, read_json, write_json
from eirehn.data.vocabulary import Vocabulary
from eirehn.models import LanguageModel, LanguageNetwork
from eirehn.training.evaluate import calibrate, evaluate, evaluate_together
from eirehn.training.run import RunFolder
from eirehn.training.trainer import train


def tokens_of(run: Path, split: str) -> torch.Tensor:
    return torch.as_tensor(getattr(RunFolder(run).recipe().data.texts(), split)).long()  # type: ignore[attr-defined]


def copied(run: Path, to: Path, biases: dict[int, Any], scores: list[Any]) -> Path:
    """A run of as many members as there are scores, each with something added to its last bias."""
    shutil.copytree(run, to)
    seeds = tuple(range(len(scores)))
    write_json(to / "recipe.json", replace(RunFolder(run).recipe(), seeds=seeds).to_dict())
    write_json(to / "model.json", {**read_json(run / "model.json"), "seeds": seeds, "best_score": scores})
    for name in ("best", "last"):
        values = {
            key: torch.cat([each] * len(seeds)) for key, each in load_file(run / f"{name}.safetensors").items()
        }
        for member, more in biases.items():
            values["bias"][member] += more
        save_file(values, to / f"{name}.safetensors")
    return to


def sloped(most: float) -> torch.Tensor:
    return torch.linspace(-most, most, len(WORDS) + 2)


def loss_at(temperature: float, logits: torch.Tensor, wanted: torch.Tensor) -> float:
    """Nats a token if `logits`, (N, V), are divided by a temperature and the tokens `wanted`, (N,), come."""
    return F.cross_entropy(logits / temperature, wanted).item()


def best_temperature(logits: torch.Tensor, wanted: torch.Tensor) -> float:
    return float(minimize_scalar(loss_at, bounds=(0.1, 10.0), args=(logits, wanted), method="bounded").x)


def logits_of(
    model: LanguageModel, tokens: torch.Tensor, streams: int, max_depth: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of a text in so many streams, as of a model that has no temperature, and what came."""
    length = (len(tokens) - 1) // streams
    x, target = (each[: streams * length].view(streams, length) for each in (tokens[:-1], tokens[1:]))
    own = 1.0 if model.temperature is None else model.temperature.item()
    with torch.no_grad():
        return own * model(x, max_depth=max_depth).flatten(0, 1).double(), target.flatten()


def test_the_whole_text_is_read(language_run: Path) -> None:
    """By the model read back, over all the test text at once, one stream, no token left out."""
    model, result = eirehn.load(language_run), read_json(language_run / "result.json")
    assert model.tokens == Vocabulary.load(language_run / "vocabulary.json")
    assert set(model.tokens.tokens) == {*WORDS, "<eos>", "<unk>"}
    text = (language_run.parent / "test.txt").read_text().replace("\n", " <eos> ").split()
    tokens = torch.from_numpy(model.tokens.encode(text)).long()
    expected = pytest.approx(math.exp(loss_at(1.0, *logits_of(model, tokens, 1))), rel=1e-5)
    assert evaluate(language_run).values[0] == expected
    assert evaluate(language_run, batch=1).values[0] == expected
    assert result["values"][0] == expected
    assert evaluate(language_run, batch=30).values[0] != expected  # thirty times from nothing
    validation = evaluate(language_run, split="validation", batch=10).values
    assert validation == pytest.approx(result["best_validation"], rel=1e-5)


def test_a_trained_network_is_of_use_whenever_it_is_stopped(tmp_path: Path) -> None:
    """Beside one that was never stopped, whose first inner step alone is worth little."""
    alone, start = {}, {"gate_bias": -2.0, "alpha": 0.05, "decay_bias": -4.0, "decay_scale": 0.1}
    for early in (0.0, 0.7):
        recipe = with_network(small(early=early, epochs=40, seeds=(0,)), max_depth=4, start=start)
        train(recipe, tmp_path / str(early))
        alone[early] = evaluate(tmp_path / str(early), max_depth=1).values[0]
    assert alone[0.7] < 0.8 * alone[0.0]


def test_models_together(tmp_path: Path) -> None:
    """Two regularised LSTMs and a third with a pointer as one: the mean of what each predicts."""
    data, a, b = written(tmp_path, train=2000, test=300), tmp_path / "a", tmp_path / "b"
    drops = {"dropout": 0.1, "input_dropout": 0.1, "output_dropout": 0.1}
    network = LanguageNetwork("LSTM", 16, num_layers=2, tied=False, start={}, **drops)
    plain = replace(small_language_recipe(data, epochs=2), network=network, seeds=(0, 1))
    train(plain, a)
    train(replace(plain, network=replace(network, pointer=5), seeds=(2,)), b)
    models = [eirehn.load(a, seed=seed) for seed in (0, 1)] + [eirehn.load(b)]
    tokens = data.texts().test.long()[None]
    with torch.no_grad():
        each = [model(tokens[:, :-1]).double().softmax(-1).gather(-1, tokens[:, 1:, None]) for model in models]
    together = evaluate_together([a, b])
    assert together.members == 3
    assert together.value == pytest.approx(math.exp(-(sum(each) / 3).log().mean().item()), rel=1e-5)
    assert together.value < math.exp(-sum(chance.log().mean().item() for chance in each) / 3)


def test_members_without_a_best_epoch(language_run: Path, tmp_path: Path) -> None:
    run = copied(language_run, tmp_path / "run", {1: sloped(1.0)}, [0.5, None])
    together = evaluate_together([run])
    assert (together.members, together.left_out) == (1, [f"{run}, seed 1"])
    assert together.value == pytest.approx(evaluate(run).values[0], rel=1e-6)
    assert math.isnan(evaluate(run).values[1])
    assert evaluate_together([run], which="last").members == 2


def test_what_cannot_be_evaluated_together(language_run: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    shutil.copy(language_run / "recipe.json", tmp_path / "empty")
    for runs in ([language_run, tmp_path / "empty"], [tmp_path / "empty", language_run]):
        with pytest.raises(RunError, match=r"empty has no trained model: it has no best\.safetensors"):
            evaluate_together(runs)
    # A text of the same numbers, by which other words are meant.
    recipe, files = RunFolder(language_run).recipe(), {}
    for name in ("train", "validation", "test"):
        files[name] = str(tmp_path / f"{name}.txt")
        text = Path(getattr(recipe.data, name)).read_text("utf-8").replace("w", "v")
        Path(files[name]).write_text(text, "utf-8")
    other = replace(recipe.data, **files)
    RunFolder(tmp_path / "other").open(replace(recipe, data=other))
    assert torch.equal(tokens_of(tmp_path / "other", "test"), tokens_of(language_run, "test"))
    with pytest.raises(ValueError, match=r"other was trained on a different one"):
        evaluate_together([language_run, tmp_path / "other"])


@pytest.mark.parametrize("options", [{}, {"batch": 1}, {"max_depth": 1}, {"which": "last"}], ids=str)
def test_temperatures(options: dict[str, Any], language_run: Path, tmp_path: Path) -> None:
    """Against a search by SciPy, of a model and of one whose last bias is too large. By default the test text is
    read in one stream, and the validation text in those of the training."""
    run = copied(language_run, tmp_path / "run", {1: sloped(1.5)}, [0.5, 0.5])
    recipe = RunFolder(run).recipe()
    recipe = replace(recipe, optimisation=replace(recipe.optimisation, batch_size=100))  # short streams differ most
    write_json(run / "recipe.json", recipe.to_dict())
    found = calibrate(run, **options)
    assert found.seeds == (0, 1)
    for seed in found.seeds:
        model, depth = eirehn.load(run, seed=seed, which=options.get("which", "best")), options.get("max_depth")
        wanted = best_temperature(*logits_of(model, tokens_of(run, "validation"), options.get("batch", 100), depth))
        assert found.temperatures[seed] == pytest.approx(wanted, abs=0.005)
        loss = loss_at(found.temperatures[seed], *logits_of(model, tokens_of(run, "test"), 1, depth))
        assert found.values[seed] == pytest.approx(math.exp(loss), rel=1e-5)
    assert abs(found.temperatures[0] - found.temperatures[1]) > 0.02
    assert 0.6 < min(found.temperatures) < max(found.temperatures) < 1.6


def test_temperatures_of_none_and_beyond_the_end(language_run: Path, tmp_path: Path) -> None:
    """Of four members: as trained, without a best epoch, far too sure, and with values that are not numbers."""
    biases = {2: sloped(40.0), 3: math.nan}
    run = copied(language_run, tmp_path / "run", biases, [0.5, None, 0.5, 0.5])
    found, alone = calibrate(run), calibrate(language_run)
    assert found.values[0] == pytest.approx(alone.values[0], rel=1e-5)
    assert found.temperatures[0] == pytest.approx(alone.temperatures[0], rel=1e-5)
    assert found.temperatures[2] == pytest.approx(1.6, rel=1e-9)
    for member in (1, 3):
        assert math.isnan(found.values[member])
        assert math.isnan(found.temperatures[member])


def test_an_overfitted_model_has_a_temperature_of_its_own(tmp_path: Path) -> None:
    run = tmp_path / "run"
    recipe = small_language_recipe(written(tmp_path, train=600, test=600), epochs=30, learning_rate=0.015)
    result = train(calibrated(recipe), run)
    told = [each[0] for each in temperatures(run)]
    assert told[0] == 1.0
    assert told[-1] > 1.1
    model = eirehn.load(run)
    own = model.temperature.item()
    assert own == pytest.approx(told[result["best_epoch"][0] - 1])
    loss = loss_at(own, *logits_of(model, tokens_of(run, "validation"), recipe.optimisation.batch_size))
    assert result["best_validation"] == [pytest.approx(math.exp(loss), rel=1e-5)]
    loss = loss_at(own, *logits_of(model, tokens_of(run, "test"), 1))
    assert result["values"] == evaluate(run).values == [pytest.approx(math.exp(loss), rel=1e-5)]
    later = eirehn.load(run, which="last")
    found = logits_of(later, tokens_of(run, "test"), 1)
    assert loss_at(later.temperature.item(), *found) < loss_at(1.0, *found)
    # What is to be found beyond it is little: it is the one of an epoch before.
    assert calibrate(run, split="validation", batch=10).temperatures == pytest.approx([1.0], abs=0.03)
