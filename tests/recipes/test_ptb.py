"""The rows of Tables 3 and 4 are the paper's networks by the RHN authors' recipe."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from eirehn.cli.common import UsageError
from eirehn.cli.reproduce import chosen_rows
from eirehn.data.ptb import PtbData
from eirehn.experiments import experiments
from eirehn.experiments.results import label, paper_result
from eirehn.models import LanguageModel
from eirehn.recipes import find, ptb
from eirehn.training.config import Recipe


def parameters(recipe: Recipe) -> int:
    """All that are trained: not a temperature."""
    with torch.device("meta"):
        model = LanguageModel(recipe.network, 10_000)
    return sum(value.numel() for value in model.parameters() if value.requires_grad)


@pytest.mark.parametrize(
    ("name", "size", "perplexity"),
    [
        ("ptb-rhn-1200-r2", 20.7, 73.4),
        ("ptb-rhn-1200-r3", 23.5, 69.8),
        ("ptb-rhn-1200-r4", 26.4, 68.3),
        ("ptb-rhn-1200-r5", 29.3, 67.6),
        ("ptb-ei-rehn-1200-r2", 25.3, 69.2),
        ("ptb-ei-rehn-1200-r3", 25.3, 67.4),
        ("ptb-ei-rehn-1200-r4", 25.3, 66.2),
        ("ptb-ei-rehn-1200-r5", 25.3, 66.8),
        ("ptb-ei-rehn-1000-r4", 19, 68.7),
        ("ptb-rhn-830-r10", 24, 66.0),
        ("ptb-lstm-1500", 66, 78.4),
        ("ptb-lstm-650-pointer", 20, 70.9),  # 21M in its authors' table
    ],
)
def test_rows(name: str, size: float, perplexity: float) -> None:
    found = parameters(find(name)) / 1e6
    if name == "ptb-rhn-830-r10":
        assert 23 < found < 24.5
    else:
        assert round(found, 1 if isinstance(size, float) else None) == size
    assert paper_result(find(name))[0] == perplexity
    assert find(name) in experiments()["ptb"].rows


def test_the_recipe_is_that_of_the_reading_in_fewer_epochs() -> None:
    assert (ptb.PAPER.epochs, ptb.PAPER.decay) == (500, 1.02)
    for row in (find("ptb-ei-rehn-1200-r4"), find("ptb-rhn-1050-r4")):
        assert row.data == PtbData(steps=35)
        o, n = row.optimisation, row.network
        assert (o.optimizer, o.learning_rate, o.batch_size, o.epochs) == ("sgd", 0.2, 20, 300)
        assert (o.schedule, o.decay_from, o.clip) == ("decay", 20, 10.0)
        assert (o.penalty, o.weight_decay, o.sum_steps) == (1e-7, 0.0, True)
        slower = (1.005, 0.5, True, 0.99998) if n.kind == "EIREHN" else (1.02, 1.0, False, 0.0)
        assert (o.decay, o.recurrent_rate, o.shift, o.average) == slower
        drops = (n.word_dropout, n.input_dropout, n.hidden_dropout, n.output_dropout)
        assert drops == (0.25, 0.75, 0.25, 0.75)
        own = (
            {"gate_bias": -1.0, "alpha": 0.25, "decay_bias": -4.0, "decay_scale": 0.1}
            if n.kind == "EIREHN"
            else {"gate_bias": -2.0}
        )
        assert n.start == {"weight_bound": 0.04, **own}
        assert n.tied
        assert n.num_layers == 1


def test_rows_by_short_names() -> None:
    chosen = chosen_rows(experiments()["ptb"], ["ei-rehn-1200-r4,rhn-1050-r4", "ptb-lstm-1500"])
    assert chosen == ["ptb-ei-rehn-1200-r4", "ptb-rhn-1050-r4", "ptb-lstm-1500"]
    with pytest.raises(UsageError, match=r"no row 'ei-rehn-1300-r4'; did you mean 'ptb-ei-rehn-1200-r4'"):
        chosen_rows(experiments()["ptb"], ["ei-rehn-1300-r4"])


@pytest.mark.parametrize(
    ("name", "recipe", "count"),
    [
        ("best", ptb.best(), 25_342_000),
        ("short", ptb.short(), 25_342_000),
        ("early", ptb.early(), 25_342_000),
        ("pointer", ptb.pointing(), 25_144_000),
        ("scaling", ptb.scaling(), 25_057_888),
    ],
)
def test_our_own(name: str, recipe: Recipe, count: int) -> None:
    (found,) = chosen_rows(experiments()["ptb"], [name])
    assert find(found) == recipe
    assert recipe in experiments()["ptb"].rows
    assert parameters(recipe) == count <= 25.4e6
    assert paper_result(recipe)[0] is None  # the paper's network, not its recipe
    assert "our recipe" in label(recipe)
    assert "embedding size 500, our recipe" in label(
        replace(recipe, network=replace(recipe.network, embedding_size=500))
    )


def test_what_makes_the_best_one() -> None:
    best, short = ptb.best(), ptb.short()
    changes = {"epochs": 370, "schedule": "constant", "average": 0.99998, "decay_from": 48}
    assert best.optimisation == replace(short.optimisation, **changes)
    assert best.network == replace(short.network, calibrated=True)
    early = replace(short.optimisation, early=0.25)
    assert ptb.early() == replace(short, name="ptb-early", optimisation=early)


def test_each_row_is_there_once() -> None:
    names = [row.name for row in ptb.recipes()]
    assert len(set(names)) == len(names) == 19
