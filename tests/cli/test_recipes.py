"""`eirehn recipes`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from helpers.command import done


def test_recipes_are_yaml_that_train_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    done("recipes")
    assert "synthetic-best" in capsys.readouterr().out
    done("recipes synthetic-ei-rehn-15")
    content = yaml.safe_load(capsys.readouterr().out)
    assert content["network"]["hidden_size"] == 15
    content["data"] |= {"train": 10, "validation": 5, "test": 5}
    content["optimisation"]["epochs"] = 1
    content["seeds"] = [4]
    (tmp_path / "my.yaml").write_text(yaml.safe_dump(content))
    done("train --config my.yaml --out run --network.hidden_size 3")
    recipe = json.loads((tmp_path / "run" / "recipe.json").read_text())
    assert (recipe["network"]["hidden_size"], recipe["seeds"], recipe["data"]["train"]) == (3, [4], 10)
