"""The kernels of a training step's update against the same in float64, on a GPU or, without one, emulated."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from helpers.cuda_on_cpu import COMPILER, Emulated
from helpers.quick import quick
from torch import Tensor

from eirehn.ops.cuda import nvrtc
from eirehn.ops.cuda import update as updating
from eirehn.ops.cuda.machine import Machine, declared, machine_of, text
from eirehn.ops.cuda.update import Part, Rule, update

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
SHAPES = ((1,), (3,), (1, 7, 5), (1, 1024), (1, 37, 211), (2, 4096))
ADAM = Rule(adam=True, betas=(0.9, 0.99), epsilon=1e-8)
RULES = {
    "sgd": Rule(),
    "sgd, clipped, with a penalty": Rule(penalty=0.3, clip=0.5),
    "sgd with a decay, clipped at more than there is": Rule(weight_decay=0.2, clip=1e6),
    "adam": ADAM,
    "adam with all options": replace(ADAM, penalty=0.1, clip=0.7, weight_decay=0.05),
    "rms": replace(ADAM, betas=(0.0, 0.9), clip=0.7, penalty=2e-4),
    "adamw": replace(ADAM, decoupled=True, weight_decay=0.1, clip=1.0),
}


OVERFLOWS = [(torch.nan, 48), (3e30, 48), (torch.inf, 3)]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    if GPU:
        found = machine_of(torch.device("cuda", 0))
        if found is None:
            pytest.skip("this GPU is not one that the kernels are for")
        return found
    if COMPILER is None:
        pytest.skip("g++ is not installed")
    return Emulated(tmp_path_factory.mktemp("emulated"), processors=2, threads=64)


def numbers(generator: np.random.Generator, shape: tuple[int, ...]) -> Tensor:
    return torch.tensor(generator.standard_normal(shape), dtype=torch.float32, device=DEVICE)


def made(rule: Rule, *, averaged: bool, seed: int = 0) -> list[Part]:
    """Gradients of values, of copies, and of both, and one tensor that is not trained; copies are to be written."""
    generator, parts = np.random.default_rng(seed), []
    for index, shape in enumerate((*SHAPES, (5,))):
        part = Part(numbers(generator, shape), group=index % 2 if index < len(SHAPES) else -1)
        if averaged:
            part.average = numbers(generator, shape)
        if rule.adam and part.group >= 0:
            part.second = torch.zeros_like(part.value)
            part.first = torch.zeros_like(part.value) if rule.betas[0] else None
        if index % 3 and part.group >= 0:
            part.low = torch.full_like(part.value, torch.nan, dtype=torch.bfloat16)
        parts.append(part)
    return parts


def with_gradients(parts: list[Part], seed: int) -> None:
    generator = np.random.default_rng([1, seed])
    for index, part in enumerate(parts):
        if part.group < 0:
            continue
        part.low_gradient = numbers(generator, part.value.shape).bfloat16() if index % 3 else None
        part.gradient = numbers(generator, part.value.shape) if index % 3 != 1 else None


def expected(rule: Rule, parts: list[Part], rates: list[float], step: int, share: float) -> list[dict[str, Any]]:
    """Of each part in float64: Adam's equations, after the penalty and the clipping of all gradients at once."""
    before = [
        {
            each.name: None if (own := getattr(part, each.name)) is None else own.double().cpu().numpy()
            for each in fields(Part)
            if each.name != "group"
        }
        for part in parts
    ]
    total = 0.0
    for part, old in zip(parts, before, strict=True):
        if part.group < 0:
            continue
        gradients = (each for each in (old["gradient"], old["low_gradient"]) if each is not None)
        old["g"] = sum(gradients) + rule.penalty * old["value"]
        total += float((old["g"] ** 2).sum())
    factor = share * (1.0 if rule.clip is None else min(1.0, rule.clip / (np.sqrt(total) + 1e-6)))
    for part, old in zip(parts, before, strict=True):
        if part.group >= 0:
            g, value, rate = factor * old["g"], old["value"], rates[part.group]
            if rule.decoupled:
                value = value * (1 - rate * rule.weight_decay)
            else:
                g = g + rule.weight_decay * value
            if rule.adam:
                beta1, beta2 = rule.betas
                first = g if old["first"] is None else beta1 * old["first"] + (1 - beta1) * g
                old["first"] = None if old["first"] is None else first
                old["second"] = beta2 * old["second"] + (1 - beta2) * g**2
                size = np.sqrt(old["second"] / (1 - beta2**step)) + rule.epsilon
                g = first / (1 - beta1**step) / size
            old["value"] = value - rate * g
        if old["average"] is not None:
            old["average"] = old["average"] + rates[-1] * (old["value"] - old["average"])
    return before


@pytest.mark.parametrize("averaged", quick(True, of=[False, True]))
@pytest.mark.parametrize("name", quick("sgd, clipped, with a penalty", "adam with all options", of=RULES))
def test_three_steps(name: str, averaged: bool, machine: Machine) -> None:
    rule, rates = RULES[name], [0.1, 0.02, 0.3]
    parts = made(rule, averaged=averaged)
    table = torch.tensor(rates, device=DEVICE)
    left_out = torch.zeros(1, dtype=torch.float64, device=DEVICE)
    share = torch.tensor([0.5], device=DEVICE)
    for step in range(1, 4):
        with_gradients(parts, step)
        wanted = expected(rule, parts, rates, step, 0.5)
        update(machine, rule, parts, table, left_out, step=torch.tensor(float(step), device=DEVICE), share=share)
        for part, own in zip(parts, wanted, strict=True):
            for key in ("value", "first", "second", "average"):
                found = getattr(part, key)
                assert (found is None) == (own[key] is None)
                if found is not None:
                    np.testing.assert_allclose(found.cpu().numpy(), own[key], rtol=2e-6, atol=2e-6)
            if part.low is not None:
                assert torch.equal(part.low, part.value.bfloat16())
    assert left_out.item() == 0


@pytest.mark.parametrize("name", quick("rms", of=["sgd, clipped, with a penalty", "rms"]))
@pytest.mark.parametrize(
    ("bad", "most"), [(torch.inf, 48), *(pytest.param(*each, marks=pytest.mark.slow) for each in OVERFLOWS)]
)
def test_gradients_that_overflow_move_nothing(
    bad: float, most: int, name: str, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And are counted once, by however many launches."""
    monkeypatch.setattr(updating, "MOST", most)
    rule = RULES[name]
    parts = made(rule, averaged=True)
    with_gradients(parts, 0)
    last = parts[-2].low_gradient
    assert last is not None
    last[-1, -1] = bad
    before = [part.value.clone() for part in parts]
    left_out = torch.full((1,), 2.0, dtype=torch.float64, device=DEVICE)
    rates, step = torch.tensor([0.1, 0.1, 0.5], device=DEVICE), torch.ones((), device=DEVICE)
    update(machine, rule, parts, rates, left_out, step=step)
    assert left_out.item() == 3
    for part, old in zip(parts, before, strict=True):
        assert torch.equal(part.value, old)
        assert part.average is not None
        assert part.average.isfinite().all()


@pytest.mark.slow
def test_more_tensors_than_a_launch_takes(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The length of a gradient is that of all of them."""
    rule, found = RULES["adam with all options"], []
    for most in (updating.MOST, 2):
        monkeypatch.setattr(updating, "MOST", most)
        parts = made(rule, averaged=True)
        with_gradients(parts, 0)
        left_out = torch.zeros(1, dtype=torch.float64, device=DEVICE)
        step = torch.ones((), device=DEVICE)
        update(machine, rule, parts, torch.tensor([0.1, 0.2, 0.3], device=DEVICE), left_out, step=step)
        found.append([part.value for part in parts])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("gradient", lambda zeros: zeros(4).double()),
        ("low", lambda zeros: zeros(4)),
        ("average", lambda zeros: zeros(5)),
        ("second", lambda zeros: zeros(8)[::2]),
        ("value", lambda zeros: zeros(5)[1:]),
    ],
)
def test_tensors_that_do_not_fit_are_refused(field: str, wrong: Any, machine: Machine) -> None:
    def zeros(count: int) -> Tensor:
        return torch.zeros(count, device=DEVICE)

    part = replace(Part(zeros(4)), **{field: wrong(zeros)})
    with pytest.raises(ValueError, match=f"{field} must"):
        update(machine, Rule(), [part], zeros(2), zeros(1))


@pytest.mark.skipif(nvrtc.compiler() is None, reason="CUDA's runtime compiler is not installed")
def test_compiles() -> None:
    flags = dict.fromkeys(("ADAM", "FIRST", "DECOUPLED", "CLIPPED", "AVERAGED"), True)
    constants = {"THREADS": 512, "PATIENCE": 0, "PARTS": updating.MOST, "GROUPS": 2, **flags}
    assert nvrtc.compiled("\n".join([declared(constants), text("hardware"), text("update")]), "sm_90")
