"""Models saved, shared and loaded as users of Hugging Face's libraries do, without a network."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers.small import DATA, small

import eirehn
from eirehn._internal.files import RunError, read_json, write_json
from eirehn.data.vocabulary import Vocabulary
from eirehn.models import LanguageModel, LanguageNetwork, Scaling, SequenceModel, SequenceNetwork
from eirehn.models.io import load
from eirehn.training.trainer import train

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub") / "run"
    train(small(epochs=1), folder)
    return folder


def classifier() -> SequenceModel:
    network = SequenceNetwork("SREHN", 4, num_layers=2, max_depth=3, bidirectional=True, pooling="mean")
    model = SequenceModel(network, 2, 3, last=True, scaling=Scaling((5.0, -1.0), (2.0, 0.5)))
    model.classes, model.signals = ("rest", "walk", "é"), ("x", "y")
    return model.eval()


def cached(folder: Path, cache: Path) -> None:
    """Lays a folder into a cache as huggingface_hub does after a download."""
    repository = cache / "models--user--name"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    shutil.copytree(folder, repository / "snapshots" / COMMIT)


def test_a_seed_of_a_run_from_the_cache_of_the_hub(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    model, result, x = load(run, seed=1), read_json(run / "result.json"), DATA.load().test.x
    model.save_pretrained(tmp_path / "saved")
    cached(tmp_path / "saved", tmp_path / "cache")
    again = SequenceModel.from_pretrained("user/name", cache_dir=tmp_path / "cache", local_files_only=True)
    assert not again.training
    assert torch.equal(again(x), model(x))
    assert again.results["value"] == result["values"][1]
    assert again.results["depth"] == result["depth"][1]
    card = (tmp_path / "saved" / "README.md").read_text()
    values = torch.tensor(result["values"], dtype=torch.float64)
    for text in (
        f"| test mse | {result['values'][1]:.4g} (seed 1) |",
        f"| mean of 2 seeds | {values.mean():.4g} ± {values.std():.4g} |",
        f"| mean depth | {result['depth'][1]:.2f} of at most 3 inner steps |",
        f"| parameters | {result['parameters']:,} |",
    ):
        assert text in card
    with pytest.raises(RunError, match=r"cannot be fetched from the hub: [^\n]*$"):
        SequenceModel.from_pretrained("user/other", cache_dir=tmp_path / "cache", local_files_only=True)


def test_all_of_a_classifier(tmp_path: Path) -> None:
    model, x = classifier(), torch.randn(4, 7, 2)
    model.save_pretrained(tmp_path)
    again = SequenceModel.from_pretrained(tmp_path)
    assert torch.equal(again(x), model(x))
    assert (again.classes, again.signals, again.scaling) == (model.classes, model.signals, model.scaling)
    assert {path.name for path in tmp_path.iterdir()} == {"README.md", "best.safetensors", "model.json"}
    (tmp_path / "README.md").write_text("mine")
    again.save_pretrained(tmp_path)
    assert (tmp_path / "README.md").read_text() == "mine"


def test_results_are_of_the_weights_that_are_saved(run: Path, tmp_path: Path) -> None:
    """Also in a folder where another model has been saved."""
    model, folder = load(run, seed=1), tmp_path / "saved"
    model.save_pretrained(folder)
    load(folder).save_pretrained(folder)  # the same weights
    assert "| test mse |" in (folder / "README.md").read_text()
    assert load(folder).results == model.results
    with torch.no_grad():
        next(model.parameters())[..., 0] += 1e-3
    model.save_pretrained(folder)
    assert "| test mse |" not in (folder / "README.md").read_text()
    assert read_json(folder / "model.json")["results"] == {}
    classifier().save_pretrained(folder)
    assert "| classes | rest, walk, é |" in (folder / "README.md").read_text("utf-8")


def test_results_without_a_number(run: Path, tmp_path: Path) -> None:
    model, whole = load(run), dict(load(run).results)
    for key, value in (("seed", None), ("value", "x"), ("values", 3), ("values", ["x"]), ("value", 10**400)):
        model.results = {**whole, key: value, "depth": "deep"}
        model.save_pretrained(tmp_path)
        assert "test mse" not in (card := (tmp_path / "README.md").read_text())
        assert "mean depth" not in card
        load(tmp_path)


def test_the_card_is_one_that_the_hub_reads(tmp_path: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    classifier().save_pretrained(tmp_path / "mine")
    card = hub.ModelCard.load(tmp_path / "mine" / "README.md")
    assert card.data.library_name == "eirehn"
    assert "classification" in card.data.tags
    for text in ("# mine\n", 'eirehn.load("mine")', "| classes | rest, walk, é |", "Apache-2.0"):
        assert text in card.text


def test_a_language_model(tmp_path: Path) -> None:
    model = LanguageModel(LanguageNetwork("EIREHN", 4), vocabulary=3).eval()
    with pytest.raises(ValueError, match="tokens must be the Vocabulary of the model's 3 tokens"):
        model.save_pretrained(tmp_path)
    model.tokens = Vocabulary("word", ("<unk>", "<eos>", "a"))
    model.save_pretrained(tmp_path)
    again, ids = LanguageModel.from_pretrained(tmp_path), torch.tensor([[0, 2, 1]])
    assert torch.equal(again(ids), model(ids))
    assert again.tokens == model.tokens
    assert "3 words" in (tmp_path / "README.md").read_text()
    with pytest.raises(RunError, match=r"holds a LanguageModel, not a SequenceModel: use LanguageModel\."):
        SequenceModel.from_pretrained(tmp_path)


def test_what_is_uploaded(monkeypatch: pytest.MonkeyPatch) -> None:
    hub, found = pytest.importorskip("huggingface_hub"), {}
    model, x = classifier(), torch.randn(4, 7, 2)
    there: dict[str, str] = {}

    def create_repo(self: Any, repo_id: str, **options: Any) -> Any:
        found.update(options)
        return SimpleNamespace(repo_id=f"user/{repo_id}")

    def snapshot_download(self: Any, repo_id: str, *, allow_patterns: list[str], local_dir: str) -> None:
        for name in there.keys() & set(allow_patterns):
            (Path(local_dir) / name).write_text(there[name])

    def upload_folder(self: Any, *, repo_id: str, folder_path: str, commit_message: str) -> Any:
        found.update(repo_id=repo_id, token=self.token, card=(Path(folder_path) / "README.md").read_text())
        there.update({name: (Path(folder_path) / name).read_text() for name in ("README.md", "model.json")})
        found["same"] = torch.equal(load(folder_path)(x), model(x))
        return SimpleNamespace(commit_url="https://huggingface.co/user/name/commit/1")

    monkeypatch.setattr(hub.HfApi, "create_repo", create_repo)
    monkeypatch.setattr(hub.HfApi, "snapshot_download", snapshot_download)
    monkeypatch.setattr(hub.HfApi, "upload_folder", upload_folder)
    assert model.push_to_hub("name", private=True, token="mine").endswith("commit/1")
    card = found.pop("card")
    assert 'SequenceModel.from_pretrained("user/name")' in card
    assert found == {"private": True, "exist_ok": True, "repo_id": "user/name", "token": "mine", "same": True}

    model.classes = ("sit", "walk", "é")
    model.push_to_hub("name")
    assert "sit, walk" in found["card"]
    there["README.md"] = "mine"
    model.push_to_hub("name")
    assert found["card"] == "mine"
    model.classes = (None,)
    with pytest.raises(TypeError, match="classes must be text or numbers"):
        model.push_to_hub("name")

    def refused(*_: Any, **__: Any) -> Any:
        raise hub.errors.LocalTokenNotFoundError("no token\nfound")

    monkeypatch.setattr(hub.HfApi, "create_repo", refused)
    with pytest.raises(RunError, match=r"^cannot upload to name: no token found$"):
        model.push_to_hub("name")


def test_errors_of_the_hub_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    for name in ("a/b/c", "har best"):  # refused before the hub is asked
        with pytest.raises(RunError, match=rf"^cannot upload to {name}: [^\n]+$"):
            classifier().push_to_hub(name)
    with pytest.raises(RunError, match=r"cannot be fetched from the hub: [^\n]+$"):
        SequenceModel.from_pretrained("user/name.git")
    with pytest.raises(RunError, match=r"^\./typo is neither a folder"):
        SequenceModel.from_pretrained("./typo")

    def offline(*_: Any, **__: Any) -> Any:
        raise errors.pop()

    errors: list[BaseException] = [KeyboardInterrupt(), type("ConnectError", (Exception,), {})()]
    monkeypatch.setattr(hub.HfApi, "create_repo", offline)
    with pytest.raises(RunError, match=r"^cannot upload to name: ConnectError$"):
        classifier().push_to_hub("name")
    with pytest.raises(KeyboardInterrupt):
        classifier().push_to_hub("name")


class Bomb:
    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)

    def __init__(self, path: Path) -> None:
        self.path = str(path)


def test_files_that_are_refused(tmp_path: Path) -> None:
    model, folder = classifier(), tmp_path / "saved"
    with pytest.raises(RunError, match="is neither a folder nor the name of a model on the hub"):
        SequenceModel.from_pretrained(tmp_path / "missing")
    folder.mkdir()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(tmp_path / "exploded")))
    with pytest.raises(RunError, match=r"has no model.json; pytorch_model.bin may hold pickled objects"):
        SequenceModel.from_pretrained(folder)
    model.save_pretrained(folder)
    values, about = folder / "best.safetensors", read_json(folder / "model.json")
    whole = values.read_bytes()
    for content in (whole[:200], (folder / "pytorch_model.bin").read_bytes()):
        values.write_bytes(content)
        with pytest.raises(RunError, match=r"best.safetensors is damaged"):
            SequenceModel.from_pretrained(folder)
    assert not (tmp_path / "exploded").exists()
    values.unlink()
    with pytest.raises(RunError, match=r"cannot read .*best.safetensors"):
        SequenceModel.from_pretrained(folder)
    values.write_bytes(whole)
    write_json(folder / "model.json", {**about, "seeds": [0, 1], "best_score": [1.0, 0.5]})
    with pytest.raises(RunError, match=r"does not fit the model.json"):
        SequenceModel.from_pretrained(folder)
    for name, size in (("hidden_size", 10**7), ("hidden_size", 10**30), ("num_layers", 10**9)):
        write_json(folder / "model.json", {**about, "network": {**about["network"], name: size}})
        with pytest.raises(RunError, match=r"does not fit the model|model.json is damaged"):
            SequenceModel.from_pretrained(folder)
    write_json(folder / "model.json", {**about, "results": [1]})
    with pytest.raises(RunError, match="results is not a mapping"):
        SequenceModel.from_pretrained(folder)


def test_the_models_of_a_run_are_not_replaced(run: Path) -> None:
    before = {path: path.read_bytes() for path in run.iterdir() if path.is_file()}
    with pytest.raises(RunError, match="is a run folder, whose models would be replaced"):
        classifier().save_pretrained(run)
    assert {path: path.read_bytes() for path in run.iterdir() if path.is_file()} == before


def test_a_saved_model_can_be_fine_tuned(run: Path, tmp_path: Path) -> None:
    """`--init` takes its folder."""
    load(run, seed=1).save_pretrained(tmp_path / "saved")
    recipe = replace(small(epochs=1, learning_rate=1e-30), seeds=(0,), init=str(tmp_path / "saved"))
    train(recipe, tmp_path / "tuned")
    x = DATA.load().test.x
    torch.testing.assert_close(load(tmp_path / "tuned")(x), load(run, seed=1)(x))


def test_without_huggingface_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    classifier().save_pretrained(tmp_path)
    SequenceModel.from_pretrained(tmp_path)
    for asks in (lambda: SequenceModel.from_pretrained("user/name"), lambda: classifier().push_to_hub("user/name")):
        with pytest.raises(
            ModuleNotFoundError, match=r"^huggingface_hub is not installed: pip install 'eirehn\[hub\]'$"
        ):
            asks()


def test_a_layer_with_the_mixin_of_the_hub(tmp_path: Path) -> None:
    """As the page on deploying shows it."""
    hub = pytest.importorskip("huggingface_hub")

    class Layer(eirehn.EIREHN, hub.PyTorchModelHubMixin):
        pass

    layer, x = Layer(9, 4, max_depth=3, batch_first=True), torch.randn(2, 5, 9)
    layer.save_pretrained(tmp_path)
    assert torch.equal(Layer.from_pretrained(tmp_path)(x)[0], layer(x)[0])
