"""Every system and option of the family, with weights under which gates shut at different depths."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

import eirehn
from helpers import oracle

SYSTEMS: dict[str, tuple[type[nn.Module], dict[str, Any]]] = {
    "RHN": (eirehn.RHN, {"depth": 4}),
    "SRHN": (eirehn.SRHN, {"depth": 4}),
    "SREHN": (eirehn.SREHN, {"max_depth": 5}),
    **{
        f"EIREHN-{update}": (eirehn.EIREHN, {"max_depth": 5, "weight_update": update})
        for update in ("paper", "recursive", "bounded", "additive", "scaling", "outer", "none")
    },
    **{f"ACT-{cell}": (eirehn.ACT, {"cell": cell, "max_depth": 5}) for cell in ("RNN", "GRU", "LSTM")},
}
HIGHWAY = [name for name in SYSTEMS if not name.startswith("ACT")]
FUSED = [name for name in HIGHWAY if name not in ("EIREHN-outer", "EIREHN-none")]
ELASTIC = [name for name in HIGHWAY if "REHN" in name]
# The three ways a network can be built; the other options differ in arithmetic alone.
KINDS = ["RHN", "SREHN", "EIREHN-paper", "ACT-LSTM"]


def make(name: str, input_size: int, hidden_size: int, *, seed: int = 0, **options: Any) -> Any:
    """A float64 layer with weights far from their start: gates of one batch shut at different depths."""
    kind, defaults = SYSTEMS[name]
    torch.manual_seed(seed)
    layer = kind(input_size, hidden_size, **{"dtype": torch.float64, **defaults, **options})
    if name in ELASTIC:
        torch.manual_seed(seed)
        start = {"alpha": 0.05, "gate_bias": 0.0, "decay_bias": -4.0, "decay_scale": 0.1}  # all inner steps
        layer.reset_parameters(**start)
    enliven(layer)
    layer._watched = True  # such weights may be dead for a small batch; the warning has tests of its own
    return layer


def enliven(layer: nn.Module) -> None:
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if parameter.requires_grad:
                spread = 1.5 if ".W_a" in name else 0.5
                parameter.add_(spread * torch.randn_like(parameter))
            if name.endswith("b_a"):
                parameter.add_(3.0)
            if name.endswith("b_p"):
                parameter.sub_(2.0)


def moderate(name: str, X: int, H: int, **options: Any) -> Any:
    """Weights with which a rounding does not grow from step to step, however many units there are."""
    layer = make(name, X, H, **options)
    with torch.no_grad():
        for key, value in layer.named_parameters():
            if value.dim() > 1 and ".W_a" not in key:
                value.mul_(min(1.0, 2 / H**0.5))
    return layer


def draw(layer: Any, steps: int, batch: int, *, seed: int = 1) -> tuple[Tensor, Any]:
    """An input (T, B, X) and an initial state for it."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    size = (len(layer.cells), batch, layer.hidden_size)
    pair = getattr(layer, "kind", None) == "LSTM"
    return normal(steps, batch, layer.input_size), (normal(*size), normal(*size)) if pair else normal(*size)


def oracle_run(name: str, layer: Any, index: int, x: Tensor, state: Tensor, **options: Any) -> oracle.Result:
    """The NumPy oracle on the parameters of cell `index`."""
    cell = layer.cells[index]
    p = {key: value.detach().numpy() for key, value in cell.named_parameters()}
    system, _, update = name.partition("-")
    max_depth = options.pop("max_depth", None) or cell.resolve_depth(None)
    if system == "ACT":
        p = {
            "W_ih": p["cell.weight_ih"],
            "W_hh": p["cell.weight_hh"],
            "b": p["cell.bias_ih"],
            "w_p": p["w_p"][0],
            "b_p": p["b_p"],
        }
        return oracle.act(update, p, x.numpy(), state.numpy(), epsilon=cell.epsilon, max_depth=max_depth, **options)
    return oracle.highway(
        system,
        p,
        x.numpy(),
        state.numpy(),
        max_depth=max_depth,
        weight_update=update or "paper",
        **{key: None if value is None else np.asarray(value) for key, value in options.items()},
    )


def parts(state: Any) -> tuple[Tensor, ...]:
    return state if isinstance(state, tuple) else (state,)


def joined(state: Any) -> Tensor:
    return torch.cat(parts(state), -1)


def run(
    layer: Any, x: Tensor, h0: Tensor, pack: Any = lambda x: x, *, with_cost: bool = True, **options: Any
) -> list[Tensor]:
    """Out, h_n, depth and, with it, cost, and every gradient of a loss that each of their numbers enters with a
    weight of its own; `pack` makes of x what the layer reads."""
    layer.zero_grad()
    x, h0 = x.clone().requires_grad_(), h0.clone().requires_grad_()
    torch.manual_seed(0)
    out, h_n, depth, *cost = layer(pack(x), h0, return_depth=True, return_cost=with_cost, **options)
    out = out.data if isinstance(out, PackedSequence) else out
    loss_of(out, h_n, *cost).backward()
    return [out, h_n, depth, *cost, x.grad, h0.grad, *(p.grad.clone() for p in layer.parameters())]


def loss_of(out: Tensor, h_n: Tensor, *cost: Tensor) -> Tensor:
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype, device=out.device).view_as(out)
    return (out * weight).sum() + sum(each.square().sum() for each in (h_n, *cost))


def largest_error(found: Iterable[Tensor], exact: Iterable[Tensor]) -> float:
    """Of all numbers, each over the largest of its tensor; NaN where there is one."""
    errors = [torch.zeros((), dtype=torch.float64)]
    for value, truth in zip(found, exact, strict=True):
        assert value.shape == truth.shape
        if truth.numel():
            value, truth = (each.detach().cpu().double() for each in (value, truth))
            errors.append((value - truth).abs().max() / truth.abs().max().clamp(min=1e-30))
    return float(torch.stack(errors).max())


def stream_of(layer: Any, *tensors: Tensor | None, max_depth: int = 3) -> Any:
    """The kernel for one sample, or None where it cannot run."""
    from eirehn.ops.cpu.call import stream

    cell = layer.cells[0]
    values = [getattr(cell, name) for name in cell.parameter_names]
    kind = getattr(cell, "weight_update", "none")
    return stream(kind, cell.parameter_names, (*tensors, None, *values), max_depth=max_depth, reverse=False)
