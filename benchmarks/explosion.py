"""Through which path the gradients of EI-REHN explode.

    python benchmarks/explosion.py [--seeds 8] [--json results/explosion.json]

Trains EI-REHN on the 800 windows of HAR of `stability.py` with the weight updates "paper", "recursive" and
"bounded", at three times the learning rate there and from gates that fall slowly (α 0.05, gate bias 0), where
training is least stable, until a gradient is not finite, or for 20 epochs. On the batch where that happened, or the
last one, it then measures, in float64 and by the equations written out below, the gradient of the last state with
respect to the first over 128 time steps: once as it is, and once with the derivative along one path set to zero.
The paths are the product `W h`, the diagonal change `c ⊗ h` of the residual, of its gate, or of both, the
hypernetwork `z`, and the local decay α_t. The path without which the gradient is small is the one through which it
explodes.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from stability import DEPTH, Model, har, steps_of
from torch import Tensor

from eirehn import EIREHN
from eirehn._internal.files import write_json
from eirehn.training.provenance import cores, provenance

UPDATES = ("paper", "recursive", "bounded")
PATHS = ("", "W h", "change of the residual", "change of the gate", "change of both", "hypernetwork", "local decay")


def last_state(cell: Any, x: Tensor, h: Tensor, without: str) -> Tensor:
    """All time steps of `x` (B, T, X) from `h` (B, H), with no derivative along the path `without`."""

    def along(path: str, value: Tensor) -> Tensor:
        both = path.startswith("change") and without == "change of both"
        return value.detach() if both or path == without else value

    alpha, beta = F.softplus(cell.alpha_hat), torch.sigmoid(cell.beta_hat)
    for x_t in x.unbind(1):
        alpha_t = torch.sigmoid(h @ cell.W_ah.T + x_t @ cell.W_ax.T + cell.b_a)
        alpha_t = along("local decay", alpha_t)
        s, g, z = cell.s_0, cell.g_0, cell.z_0
        a, c = torch.ones_like(cell.b), torch.zeros_like(cell.b)
        for r in range(1, cell.max_depth + 1):
            d = torch.relu(beta + alpha.exp() - torch.exp((alpha + alpha_t) * r))
            z = torch.tanh(s @ cell.W_zh.T + g @ cell.W_zg.T + z @ cell.W_z.T + cell.b_z)
            w, g_bar = along("hypernetwork", z) @ cell.P.T, along("hypernetwork", z) @ cell.P_bar.T + cell.b_bar
            w, g_bar = torch.tanh(w) if cell.weight_update == "bounded" else w, torch.sigmoid(g_bar)
            hh = torch.cat([along("change of the residual", h), along("change of the gate", h)], -1)
            Wh = along("W h", h @ cell.W_h.T)
            if cell.weight_update == "paper":
                pre = g_bar * (Wh + c * hh) + (1 - g_bar) * w * hh + cell.b
                c = c + w
            else:
                a, c = g_bar * a, g_bar * c + (1 - g_bar) * w
                pre = a * Wh + c * hh + cell.b
            s, g = (pre + x_t @ cell.W_x.T if r == 1 else pre).chunk(2, -1)
            s, g = torch.tanh(s), torch.sigmoid(g)
            h = d * g * s + (1 - d * g) * h
    return h


def run(update: str, seed: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    data = har()

    def make(inputs: int, hidden: int) -> EIREHN:
        layer = EIREHN(inputs, hidden, max_depth=DEPTH, batch_first=True, weight_update=update)
        layer.reset_parameters(alpha=0.05, gate_bias=0.0, decay_bias=-4.0, decay_scale=0.1)
        return layer

    torch.manual_seed(seed)
    model = Model(make, data)
    for batch, finite in steps_of(model, data, torch.Generator().manual_seed(seed), 0.03):
        x = batch.double()
        if not finite:
            break
    cell = model.double().layer.cells[0]
    begin = x[:, :4]  # over many steps a chaotic network makes two roundings two results
    same = last_state(cell, begin, torch.zeros(len(x), data.hidden_size, dtype=torch.float64), "")
    torch.testing.assert_close(same, model.layer(begin)[0][:, -1], rtol=1e-9, atol=1e-9)
    norms = {}
    for path in PATHS:
        h = torch.zeros(len(x), data.hidden_size, dtype=torch.float64, requires_grad=True)
        (found,) = torch.autograd.grad(last_state(cell, x, h, path).sum(), h)
        norms[path or "all"] = found.norm(dim=-1).max().item()
    return {"update": update, "seed": seed, "exploded": not finite, "largest": norms}


def table(found: dict[str, Any]) -> str:
    """Of each update the seed with the largest gradient."""
    names = ["all paths", *(f"without {path}" for path in PATHS[1:])]
    lines = [f"| weight update | seeds that exploded | {' | '.join(names)} |", "|---" * (2 + len(names)) + "|"]
    for update in UPDATES:
        runs = [each for each in found["runs"] if each["update"] == update]
        worst = max(runs, key=lambda each: each["largest"]["all"])["largest"]
        exploded = sum(each["exploded"] for each in runs)
        cells = [update, f"{exploded} of {len(runs)}", *(f"{worst[path or 'all']:.0e}" for path in PATHS)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Through which path the gradients of EI-REHN explode.")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--json", type=Path, default=Path("results/explosion.json"))
    asked = parser.parse_args()
    jobs = [(update, seed) for update in UPDATES for seed in range(asked.seeds)]
    with ProcessPoolExecutor(cores()) as pool:
        runs = list(pool.map(run, *zip(*jobs, strict=True)))
    command = f"python benchmarks/explosion.py --seeds {asked.seeds}"
    found = {"command": command, **provenance(), "runs": runs}
    write_json(asked.json, found)
    print(table(found))


if __name__ == "__main__":
    main()
