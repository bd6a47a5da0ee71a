"""What a report says of language models, against NumPy, the files themselves and what training measured."""

from __future__ import annotations

import csv
import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.language import small_language_recipe, written
from helpers.quick import quick

import eirehn
from eirehn._internal.files import RunError, read_json
from eirehn.data.dataset import Split
from eirehn.experiments import Experiment, language
from eirehn.experiments.reproduce import page, report_on, reproduce
from eirehn.experiments.results import row
from eirehn.experiments.trained import Trained
from eirehn.models import LanguageModel, LanguageNetwork
from eirehn.recipes import find
from eirehn.report.page import render
from eirehn.training.loaders import Windows
from eirehn.training.trainer import train

VARIED = {"alpha": 0.3, "gate_bias": 0.0, "decay_bias": -1.0, "decay_scale": 3.0}
"""A start from which depth differs between words and layers."""
NETWORKS = {
    "elastic": LanguageNetwork("EIREHN", 10, max_depth=3, start=VARIED),
    "tall": LanguageNetwork("EIREHN", 9, 2, max_depth=3, start=VARIED),
    "deep": LanguageNetwork(
        "EIREHN", 10, max_depth=4, start={"alpha": 0.05, "gate_bias": 0.0, "decay_bias": -4.0, "decay_scale": 0.1}
    ),
    "rhn": LanguageNetwork("RHN", 8, max_depth=2),
    "lstm": LanguageNetwork("LSTM", 8),
    "letters": LanguageNetwork("EIREHN", 8, max_depth=2, start=VARIED),
}
SEVERAL = "elastic tall deep rhn lstm"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("runs")
    words = replace(written(folder, train=1200, test=390), first=900)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Windows, "size", 50)  # so that the text is read in windows, each from where the last ended
        for name, network in NETWORKS.items():
            data = replace(words, level="char") if name == "letters" else words
            recipe = small_language_recipe(data, epochs=2 if name == "elastic" else 1)
            seeds = (0, 1) if name in ("elastic", "tall") else (0,)
            train(replace(recipe, name=name, network=network, seeds=seeds), folder / name)
        yield {name: Trained(folder / name) for name in NETWORKS}


def whole(run: Trained) -> int:
    return run.test.x.size(1)


def text(run: Trained) -> language.Text:
    return language.Text(run, whole(run))


@torch.no_grad()
def by_hand(run: Trained, max_depth: int | None = None):
    """The test text, and of each model the nats of what follows (N,) and the depths (layers, N)."""
    test = run.recipe.data.load().test
    x, target = test.x.numpy()[0], test.target.numpy()[0]
    found = []
    for model in run.models:
        logits, _, depth, _ = model.run(test.x.long(), max_depth=max_depth)
        scores = logits[0].double().numpy()
        top = scores.max(1)
        nats = np.log(np.exp(scores - top[:, None]).sum(1)) + top - scores[np.arange(len(target)), target]
        found.append((nats, depth[:, 0].numpy()))
    return x, found


@torch.no_grad()
def depths_by_hand(run: Trained) -> np.ndarray:
    """The depth before rounding for each token of a run's one layer, (N,): where Eq. 11 is zero in the deepest
    unit, from the weights and the states the model has."""
    model = run.models[0]
    tokens = run.recipe.data.load().test.x.long()
    p = {name: value.double().numpy() for name, value in model.body.cells[0].named_parameters()}
    alpha, beta = np.log1p(np.exp(p["alpha_hat"])), 1 / (1 + np.exp(-p["beta_hat"]))
    state, found = torch.zeros(1, 1, model.network.hidden_size), []
    limit = model.network.max_depth + 1
    for token in tokens[0]:
        x, h = model.embedding.weight[token].double().numpy(), state[0, 0].double().numpy()
        alpha_t = 1 / (1 + np.exp(-(p["W_ah"] @ h + p["W_ax"] @ x + p["b_a"])))
        root = (np.log(beta + np.exp(alpha)) / (alpha + alpha_t)).max()
        found.append(root if root <= limit else limit * (1 + np.log(root / limit)))
        state = model.run(token.view(1, 1), state).state
    return np.array(found)


def test_effective_depths(runs) -> None:
    """Of each group; and of each word of a passage, where all take the same number of inner steps."""
    run = runs["deep"]
    expected, place = depths_by_hand(run), np.arange(whole(run)) % 11 + 1
    assert expected.std() > 1e-3
    found = language.by_place(text(run)).effective
    assert found[1] == pytest.approx(expected[place == 2].mean(), rel=1e-5)
    assert found[4] == pytest.approx(expected[(place >= 5) & (place <= 6)].mean(), rel=1e-5)
    assert found[-1] == pytest.approx(expected[place == 11].mean(), rel=1e-5)
    first, *_ = language.passages(text(run))
    np.testing.assert_allclose(first.depth, expected[: len(first.tokens)], rtol=1e-5)
    assert first.taken == 4
    assert language.passages(text(runs["elastic"]))[0].taken is None
    assert language.by_place(text(runs["elastic"])).effective is not None
    assert text(runs["rhn"]).readings[0].effective is None


@pytest.mark.parametrize("name", NETWORKS)
def test_perplexities_are_those_of_training(runs, name: str) -> None:
    result = runs[name].result
    tokens = whole(runs[name])
    assert name == "letters" or language.columns(tokens) == 1
    perplexities, depths = zip(*language.perplexities_and_depths(text(runs[name])), strict=True)
    assert perplexities == pytest.approx(result["values"], rel=5e-3 if name == "letters" else 1e-6)
    assert depths == pytest.approx(result["depth"], rel=1e-2 if name == "letters" else 1e-6)


@pytest.mark.parametrize("name", ["elastic", "tall"])
def test_groups_by_frequency(runs, name: str) -> None:
    run = runs[name]
    words = Path(run.recipe.data.train).read_text().replace("\n", " <eos> ").split()
    seen = Counter(words[: run.recipe.data.first])
    x, found = by_hand(run)
    often = np.array([seen[run.models[0].tokens.tokens[number]] for number in x])
    part = language.by_frequency(text(run))
    assert len(np.unique(found[0][1])) > 1  # else depth would not be put to the test
    covered = 0
    groups = zip(part.names, part.counts, part.perplexity, part.next_perplexity, strict=True)
    for name, counts, own, follows in groups:
        low, high = map(int, name.removesuffix(" times").split("–")) if name != "never" else (0, 0)
        which = (often >= low) & (often <= high)
        covered += which.sum()
        spent = np.concatenate([depth[:, which].ravel() for _, depth in found])
        assert list(counts) == np.bincount(spent, minlength=4).tolist()
        before = np.flatnonzero(which[1:])  # a word is predicted at the step before it
        assert own == pytest.approx(np.mean([np.exp(nats[before].mean()) for nats, _ in found]), rel=1e-5)
        assert follows == pytest.approx(np.mean([np.exp(nats[which].mean()) for nats, _ in found]), rel=1e-5)
    assert covered == len(x)
    assert part.layers == run.recipe.network.num_layers
    assert sum(part.words) == len(run.models) * len(x)


def test_groups_by_place(runs) -> None:
    run = runs["elastic"]
    x, found = by_hand(run)
    part = language.by_place(text(run))
    names = "position 1, position 2, position 3, position 4, positions 5–6, positions 7–9, positions 10–14, the end"
    assert part.names == names.split(", ")
    assert part.ticks == ["1", "2", "3", "4", "5", "7", "10", "¶"]
    lines = [line.split() for line in Path(run.recipe.data.test).read_text().splitlines()]
    assert {len(line) for line in lines} == {10}
    place = np.arange(len(x)) % 11 + 1  # ten words and the end
    groups = [place == 1, place == 2, place == 3, place == 4, (place >= 5) & (place <= 6)]
    groups += [(place >= 7) & (place <= 9), place == 10, place == 11]
    for which, counts in zip(groups, part.counts, strict=True):
        spent = np.concatenate([depth[:, which].ravel() for _, depth in found])
        assert counts == np.bincount(spent, minlength=4).tolist()


def test_places_in_lines_of_all_lengths() -> None:
    lines = np.random.default_rng(0).integers(1, 9, 50).tolist()
    ends = np.concatenate([np.arange(1, length + 1) == length for length in lines])
    assert language.places(ends).tolist() == [place for length in lines for place in range(1, length + 1)]


def test_early_curve(runs) -> None:
    run = runs["elastic"]
    part = language.early(text(run))
    assert part.caps == [1, 2, 3]
    for cap, mean, std in zip(part.caps, part.mean, part.std, strict=True):
        perplexities = [np.exp(nats.mean()) for nats, _ in by_hand(run, cap)[1]]
        assert mean == pytest.approx(np.mean(perplexities), rel=1e-5)
        assert std == pytest.approx(np.std(perplexities, ddof=1), rel=1e-2, abs=1e-4)
    assert part.mean[-1] == pytest.approx(np.mean(run.result["values"]), rel=1e-6)


@pytest.mark.parametrize("name", ["elastic", "tall", "letters"])
def test_passages_are_of_the_text(runs, name: str) -> None:
    run = runs[name]
    written_text = Path(run.recipe.data.test).read_text()
    if name != "letters":
        written_text = written_text.replace("\n", " <eos> ")
    x, found = by_hand(run)
    nats, depth = found[0]
    parts = language.passages(text(run))
    assert len(parts) == language.PASSAGES
    known = run.models[0].tokens
    for part in parts:
        assert part.spaced == (name != "letters")
        shown = (" " if part.spaced else "").join(part.tokens)
        assert shown in written_text
        assert part.tokens[-1] == part.end
        numbers = known.encode(part.tokens)
        first = next(i for i in range(len(x)) if np.array_equal(x[i : i + len(numbers)], numbers))
        assert first == 0 or x[first - 1] == known.encode([part.end])[0]
        if name == "letters":  # read in columns, some of which start from nothing
            continue
        np.testing.assert_allclose(part.depth, depth.mean(0)[first : first + len(numbers)])
        assert (part.chance[0] is None) == (first == 0)
        chances = np.exp(-np.concatenate([[np.nan], nats]))[first : first + len(numbers)]
        np.testing.assert_allclose(np.array(part.chance, np.float64), chances, rtol=1e-4)


def test_pieces_of_a_text_without_lines() -> None:
    assert language.pieces([], 100, 10) == [slice(0, 20), slice(25, 45), slice(50, 70), slice(75, 95)]
    assert language.pieces([], 30, 10) == [slice(0, 20), slice(22, 30)]
    assert language.pieces([4, 11, 40], 50, 10) == [slice(0, 12), slice(12, 32), slice(41, 50)]


def test_a_large_model_reads_a_part_in_columns(runs) -> None:
    run = runs["letters"]
    tokens = language.tokens_to_read([run, run], bearable=1.0)
    assert tokens == 1000 < whole(run)
    number = f"{whole(run):,}".replace(",", " ")
    assert language.what_was_read(language.Text(run, tokens)).replace("\N{NO-BREAK SPACE}", " ") == (
        f"Measured on the first 1 000 of {number} characters of the test text, read in 2 parallel streams, "
        "each after 200 characters of the validation text."
    )
    test = run.recipe.data.load().test
    (found,) = language.Text(run, tokens).readings
    with torch.no_grad():
        start = run.models[0].run(run.recipe.data.load().validation.x[:, :200].long()).state
        for half in (slice(0, 500), slice(500, 1000)):
            outcome = run.models[0].run(test.x[:, half].long(), start)
            likely = outcome.prediction[0].double().log_softmax(-1).numpy()
            nats = -likely[np.arange(500), test.target[0, half].numpy()]
            np.testing.assert_allclose(found.nats[half].numpy(), nats, rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(found.depth[:, half].numpy(), outcome.depth[:, 0].numpy())


def test_work_of_the_papers_network() -> None:
    with torch.device("meta"):
        model = LanguageModel(find("ptb-ei-rehn-1200-r4").network, 10_000)
    assert 5e7 < language.work(model) < 8e7  # 12 M to tell words apart, 13.3 M four times
    assert 8000 < language.WORK / language.work(model) < 12_000


def test_the_best_of_each_kind_by_validation(runs) -> None:
    chosen = language.best_of_each([runs[name] for name in ("deep", "rhn", "elastic")])
    figures = {name: np.mean(runs[name].result["best_validation"]) for name in ("deep", "elastic")}
    assert {run.recipe.name for run in chosen} == {"rhn", min(figures, key=figures.__getitem__)}


def test_a_text_that_has_changed_is_refused(runs, tmp_path: Path) -> None:
    folder = runs["elastic"].folder
    for name in ("recipe.json", "result.json", "model.json", "best.safetensors"):
        shutil.copy(folder / name, tmp_path)
    vocabulary = json.loads((folder / "vocabulary.json").read_text())
    vocabulary["tokens"][2] += "x"
    (tmp_path / "vocabulary.json").write_text(json.dumps(vocabulary))
    with pytest.raises(RunError, match="has changed since"):
        language.Text(Trained(tmp_path), 10)


def test_curves_have_their_time(runs) -> None:
    curve = language.timed(runs["elastic"])
    seconds = runs["elastic"].result["seconds"]
    assert curve.seconds == pytest.approx([seconds / 2, seconds])


@pytest.mark.parametrize("names", quick(SEVERAL, "lstm", of=[SEVERAL, "lstm", "rhn", "letters"]))
def test_report(runs, names: str) -> None:
    chosen = [runs[name] for name in names.split()]
    results = {"rows": [row(run.recipe, run.result) for run in chosen]}
    report = page("Words", "Some.", results, chosen)
    elastic = names in (SEVERAL, "letters")
    for name in ("histograms", "frequencies", "positions", "passages"):
        assert bool(getattr(report, name)) == elastic
    assert bool(report.early) == (names != "lstm")
    assert not report.tables
    shown = render(report)
    assert ('class="passage' in shown) == elastic
    assert ("Measured on" in shown) == (names != "lstm")
    assert "perplexity" in shown


def test_results_have_how_each_row_was_learned(runs) -> None:
    run = runs["elastic"]
    about = language.about_row(run)
    assert (about["gpu_hours"] > 0) == torch.cuda.is_available()
    with open(run.folder / "metrics.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    for name, column in (("train_loss", "train_loss"), ("validation_perplexity", "perplexity")):
        by_seed = [[float(line[column]) for line in lines if line["seed"] == str(seed)] for seed in (0, 1)]
        np.testing.assert_allclose(about["learning_curve"][name], by_seed, atol=1e-4)


@pytest.mark.slow
def test_weights_that_were_not_kept(runs, tmp_path: Path) -> None:
    """They are large: the table and the curves stay, and the report says what is left out."""
    folder = tmp_path / "light"
    folder.mkdir()
    for name in ("recipe.json", "result.json", "metrics.csv"):
        shutil.copy(runs["elastic"].folder / name, folder)
    page = report_on([folder, runs["rhn"].folder], tmp_path / "report.html", command="eirehn …").read_text("utf-8")
    assert "The weights of EI-REHN" in page
    assert 'class="passage"' not in page
    assert f"{read_json(folder / 'result.json')['values'][0]:.2f}" in page
    assert 'id="training"' in page
    page = report_on([runs["rhn"].folder], tmp_path / "other.html", command="eirehn …").read_text("utf-8")
    assert "The weights of" not in page


def ended(name: str, **changes: object) -> SimpleNamespace:
    """A run of which nothing but its result is known."""
    recipe = find(name)
    recipe = replace(recipe, network=replace(recipe.network, **changes))
    result = {"values": [70.5, None], "best_validation": [73.25, None], "parameters": 25_340_000}
    return SimpleNamespace(recipe=recipe, result=result, label="ours")


def test_tables_of_the_paper() -> None:
    rows = language.tables([ended("ptb-ei-rehn-1200-r4"), ended("ptb-rhn-1200-r2", output_dropout=0.5)])
    tables = Counter(each.table for each in rows)
    assert tables == {"Table 3: by depth": 8, "Table 4: compared with other models": 6, "Other models of ours": 1}
    by_model = {each.model: each for each in rows}
    assert by_model["RHN-1200, depth 2"].paper_test == 73.4
    assert by_model["RHN-1200, depth 2"].test is None  # of another dropout, so no row of the paper's
    assert by_model["RHN-1200, depth 5"].millions == 29.3
    found = by_model["EI-REHN-1200, depth 4"]
    assert (found.millions, found.paper_test, found.validation, found.test) == (25.3, 66.2, 73.25, 70.5)
    found = by_model["EI-REHN-1200D"]
    assert (found.millions, found.paper_validation, found.paper_test, found.test) == (25, 70.0, 66.2, 70.5)
    assert by_model["Ensemble of LSTMs (Zaremba 2014)"].millions is None
    assert by_model["ours"].millions == 25.34


@pytest.mark.slow
@torch.no_grad()
def test_figures_to_report_read_the_text_in_one(tmp_path: Path) -> None:
    """Of a reproduced row: test from end to end; validation, which only chooses, in columns from nothing."""
    data = written(tmp_path, train=1200, test=390)
    recipe = replace(small_language_recipe(data, epochs=2), name="row", network=NETWORKS["elastic"])
    experiment = Experiment("texts", "Texts", "Some words.", [recipe])
    results = reproduce(experiment, tmp_path / "all", command="", jobs=1)
    assert "as one stream" in results["evaluation"]
    assert "test perplexity" in (tmp_path / "all" / "report.html").read_text()
    model, texts = eirehn.load(tmp_path / "all" / "row"), data.texts()

    def perplexity(text: torch.Tensor, columns: int) -> float:
        length = (len(text) - 1) // columns
        inputs, wanted = (text.long()[at : at + columns * length].view(columns, length) for at in (0, 1))
        chances = model(inputs).double().softmax(-1).gather(-1, wanted.unsqueeze(-1))
        return (-chances.log().mean()).exp().item()

    found = results["rows"][0]
    assert found["values"][0] == pytest.approx(perplexity(texts.test, 1), rel=1e-5)
    assert found["values"][0] != pytest.approx(perplexity(texts.test, 10), rel=1e-4)
    chosen_by = read_json(tmp_path / "all" / "row" / "result.json")["best_validation"][0]
    assert chosen_by == pytest.approx(perplexity(texts.validation, 10), rel=1e-5)


@pytest.mark.parametrize("count", [2, 1000, (1 << 21) + 1, (1 << 21) + 2])
def test_occurrences_of_a_long_text(count: int) -> None:
    """Counted piece by piece, all of them: also the last, which is a target only."""
    tokens = torch.from_numpy(np.random.default_rng(0).integers(0, 7, count).astype(np.int16))
    found = language.occurrences(Split(tokens[None, :-1], tokens[None, 1:]), 9)
    assert found.tolist() == [int((tokens == number).sum()) for number in range(9)]
