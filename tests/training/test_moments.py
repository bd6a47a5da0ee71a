"""What Adam remembers, kept as means over rows and columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from eirehn.training.moments import small, whole

SHAPES = [(2, 4, 30, 20), (2, 30, 20), (2, 30)]  # of two members: a matrix for each depth, a matrix, a vector
RMSPROP = (0.0, 0.99)


def sizes() -> list[Tensor]:
    """Of gradients: members, depths, rows and columns differ up to a hundredfold."""
    random = np.random.default_rng(0)
    found = []
    for shape in SHAPES:
        axes = np.ix_(*(10 ** random.uniform(-1, 1, size) for size in shape))
        found.append(torch.from_numpy(np.prod(np.broadcast_arrays(*axes), axis=0)).float())
    return found


def noise() -> list[Tensor]:
    return [size * torch.randn(size.shape) for size in sizes()]


def step(values: list[Tensor], optimizer: torch.optim.Optimizer, gradients: list[Tensor]) -> list[Tensor]:
    """How far a step goes with these gradients."""
    before = [value.detach().clone() for value in values]
    for value, gradient in zip(values, gradients, strict=True):
        value.grad = gradient.clone()
    optimizer.step()
    return [value.detach() - old for value, old in zip(values, before, strict=True)]


def trained(gradients: list[list[Tensor]], betas: tuple[float, float]) -> tuple[list[Tensor], torch.optim.Adam]:
    values = [torch.zeros(shape, requires_grad=True) for shape in SHAPES]
    optimizer = torch.optim.Adam(values, 0.01, betas)
    for each in gradients:
        step(values, optimizer, each)
    return values, optimizer


def arrived(values: list[Tensor], state: dict[str, Any]) -> torch.optim.Adam:
    optimizer = torch.optim.Adam(values, 0.01)
    optimizer.load_state_dict(whole(state, values))
    return optimizer


def test_products_of_rows_and_columns_arrive_as_they_were() -> None:
    values, optimizer = trained([sizes()] * 3, RMSPROP)
    before = optimizer.state_dict()
    after = whole(small(before), values)
    assert after["param_groups"] == before["param_groups"]
    for index, kept in before["state"].items():
        torch.testing.assert_close(after["state"][index]["exp_avg_sq"], kept["exp_avg_sq"], rtol=1e-5, atol=0)
        assert torch.equal(after["state"][index]["step"], kept["step"])


def test_steps_are_as_long_as_they_were() -> None:
    """To a tenth; with squares of zero they would be ten times as long."""
    torch.manual_seed(0)
    values, optimizer = trained([noise() for _ in range(300)], RMSPROP)
    other, next_ = arrived(values, small(optimizer.state_dict())), noise()
    for here, there in zip(step(values, optimizer, next_), step(values, other, next_), strict=True):
        assert (there.norm() / here.norm()).item() == pytest.approx(1, abs=0.1)
        assert torch.nn.functional.cosine_similarity(here.flatten(), there.flatten(), dim=0) > 0.97


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_a_member_that_has_diverged(wrong: float) -> None:
    """Stays what it is, and harms no other."""
    torch.manual_seed(0)
    values, optimizer = trained([noise() for _ in range(30)], RMSPROP)
    state = optimizer.state_dict()
    plain = whole(small(state), values)["state"]
    for kept in state["state"].values():
        kept["exp_avg_sq"][1] = wrong
    for index, kept in whole(small(state), values)["state"].items():
        assert torch.equal(kept["exp_avg_sq"][0], plain[index]["exp_avg_sq"][0])
        assert not bool(kept["exp_avg_sq"][1].isfinite().any())


@pytest.mark.parametrize("damage", ["columns", "rows", "vector", "more", "negative", "steps", "nan"])
def test_a_memory_that_does_not_fit(damage: str) -> None:
    values, optimizer = trained([sizes()], RMSPROP)
    state = small(optimizer.state_dict())
    kept, (_, matrix, vector) = state["state"], state["state"].values()
    if damage == "columns":
        del matrix["columns"]
    elif damage == "rows":
        matrix["rows"] = matrix["rows"][:, 1:]
    elif damage == "vector":
        vector["square"] = vector["square"][:, 1:]
    elif damage == "more":
        kept[3] = matrix
    elif damage == "negative":
        matrix["rows"] = -matrix["rows"]
    else:
        matrix["step"] = torch.ones(2) if damage == "steps" else torch.tensor(torch.nan)
    with pytest.raises((KeyError, ValueError), match=r"columns|optimiser"):
        whole(state, values)
