"""The weights as the kernels of large networks read them, and the weight gradients at the end."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ....cells.gate import ALPHA_LIMIT
from ...weights import Weights


class Sizes(NamedTuple):
    """Of one network. HP and ZP are padded to whole 16-byte reads."""

    N: int
    B: int
    T: int
    R: int
    H: int
    Z: int
    HP: int
    ZP: int
    hyper: bool
    gated: bool
    elastic: bool
    own: bool

    @property
    def width(self) -> int:
        """Of a row of `ew`."""
        return 13 * self.HP + self.ZP if self.hyper else 3 * self.HP

    @property
    def projected(self) -> int:
        """Columns of w and ḡ."""
        return (4 if self.gated else 2) * self.HP if self.hyper else 0

    @property
    def grads(self) -> int:
        """Of a row of `grads`."""
        if self.hyper:
            return 3 * self.HP + self.projected + self.ZP
        return (3 if self.elastic else 2) * self.HP

    @property
    def sgz(self) -> int:
        """Of a row of `sgz`, which ends in a one and seven zeros: they give the biases' gradients."""
        return 2 * self.HP + self.ZP + 8 if self.hyper else 0


def member(weights: Weights[Tensor], e: int) -> Weights[Tensor]:
    return Weights(*(None if each is None else each[e] for each in weights))  # type: ignore[arg-type]  # W_h and b are there


def pad(tensor: Tensor, *sizes: int) -> Tensor:
    """Zeros behind each of the last axes, up to `sizes`."""
    missing = [size - have for size, have in zip(sizes, tensor.shape[-len(sizes) :], strict=True)]
    if not any(missing):
        return tensor
    return F.pad(tensor, [part for each in reversed(missing) for part in (0, each)])


def halves(tensor: Tensor, size: Sizes, *columns: int) -> list[Tensor]:
    """The residual's and the gate's rows, each padded to HP."""
    axis = -1 - len(columns)
    return [pad(half, size.HP, *columns) for half in tensor.split(size.H, axis)]


def padded(weights: Weights[Tensor], size: Sizes) -> Weights[Tensor]:
    """The matrices with halves and rows of HP and ZP, themselves where nothing is missing."""
    if (size.H, size.Z) == (size.HP, size.ZP):
        return Weights(*(None if each is None else each.contiguous() for each in weights))  # type: ignore[arg-type]

    def paired(tensor: Tensor, *columns: int) -> Tensor:
        return torch.cat(halves(tensor, size, *columns), -2)

    W_zs = weights.W_zs
    if W_zs is not None:
        W_zs = torch.cat([pad(half, size.ZP, size.HP) for half in W_zs.split(size.H, -1)], -1)
    return weights._replace(
        W_h=paired(weights.W_h, size.HP),  # (2HP, HP), or (sets, 2HP, HP)
        W_ah=None if weights.W_ah is None else pad(weights.W_ah, size.HP, size.HP),
        W_zs=W_zs,  # (ZP, 2HP)
        W_z=None if weights.W_z is None else pad(weights.W_z, size.ZP, size.ZP),
        P=None if weights.P is None else paired(weights.P, size.ZP),  # (2HP, ZP)
        P_bar=None if weights.P_bar is None else paired(weights.P_bar, size.ZP),
    )


def of_state(whole: Weights[Tensor]) -> Tensor:
    """`[W_h; W_ah]` (3HP, HP), or (sets, 2HP, HP), of padded weights."""
    return whole.W_h if whole.W_ah is None else torch.cat([whole.W_h, whole.W_ah], -2)


def of_hyper(whole: Weights[Tensor]) -> Tensor:
    """`[W_zs | W_z]` (ZP, 2HP + ZP)."""
    assert whole.W_zs is not None
    assert whole.W_z is not None
    return torch.cat([whole.W_zs, whole.W_z], -1)


def of_projections(whole: Weights[Tensor]) -> Tensor:
    """`[P; P_bar]` (4HP or 2HP, ZP)."""
    assert whole.P is not None
    return whole.P if whole.P_bar is None else torch.cat([whole.P, whole.P_bar], -2)


def first_projections(weights: Weights[Tensor], projections: Tensor, size: Sizes) -> Tensor:
    """`w¹` and `ḡ¹`, the same for all samples and time steps, in float32."""
    assert weights.z1 is not None
    y = torch.mv(projections.float(), pad(weights.z1.to(projections.dtype).float(), size.ZP))
    if weights.b_bar is not None:
        bias = torch.cat(halves(weights.b_bar, size)).float()
        y = torch.cat([y[: 2 * size.HP], torch.sigmoid(y[2 * size.HP :] + bias)])
    return y


def weight_gradients(
    size: Sizes, weights: Weights[Tensor], mh: Tensor, sgz: Tensor, grads: Tensor
) -> dict[str, Tensor]:
    """Sums over all rows of gradient × input, one product for each weight. `grads` (T R, B, ·) and its inputs
    hold nothing but zeros, or finite times zero, where an inner step was not taken."""
    T, R, B, H, HP, Z = size.T, size.R, size.B, size.H, size.HP, size.Z
    found: dict[str, Tensor] = {}
    by_step = grads.view(T, R, B, size.grads)
    if size.own:
        d = by_step.transpose(0, 1).reshape(R, T * B, 2 * HP)
        x = mh.view(T, R, B, HP).transpose(0, 1).reshape(R, T * B, HP)
        found["W_h"] = F.pad(_unpadded(torch.bmm(d.mT, x), size)[..., :H], (0, 0, 0, 0, 0, weights.W_h.size(0) - R))
    else:
        rows = grads.view(T * R * B, size.grads)
        found["W_h"] = _unpadded(rows[:, : 2 * HP].mT @ mh.view(-1, HP), size)[..., :H]
    if size.elastic:
        d = by_step[:, 0, :, 2 * HP : 3 * HP].reshape(T * B, HP)
        found["W_ah"] = (d.mT @ mh.view(T, R, B, HP)[:, 0].reshape(T * B, HP))[:H, :H]
    if size.hyper:
        x = sgz.view(T * R * B, size.sgz)
        middle = 3 * HP + size.projected
        of_z = _unpadded(rows[:, 3 * HP : middle].mT @ x[:, 2 * HP :], size)  # (4H or 2H, ZP + 8)
        found["P"] = of_z[: 2 * H, :Z]
        if size.gated:
            found["P_bar"] = of_z[2 * H :, :Z]
            found["b_bar"] = of_z[2 * H :, size.ZP]
        into_z = (rows[:, middle:].mT @ x)[:Z]  # (Z, 2HP + ZP + 8)
        found["W_zs"] = torch.cat([into_z[:, :H], into_z[:, HP : HP + H]], -1)
        found["W_z"] = into_z[:, 2 * HP : 2 * HP + Z]
        found["b_z"] = into_z[:, 2 * HP + size.ZP]
    return found


def first_gradient(size: Sizes, whole: Weights[Tensor], grads: Tensor) -> Tensor:
    """Of z¹: all that reaches it goes through the same weights, so the sum comes first."""
    first = grads.view(size.T, size.R, size.B, size.grads)[:, 0, :, 3 * size.HP :]
    total = first.sum((0, 1), dtype=torch.float32)
    through = [each for each in (whole.P, whole.P_bar, whole.W_z) if each is not None]
    parts = total.split([each.size(0) for each in through])
    back = [torch.mv(each.float().mT, part) for each, part in zip(through, parts, strict=True)]
    return torch.stack(back).sum(0)[: size.Z]


def summed_gradients(size: Sizes, weights: Weights[Tensor], sums: Tensor) -> dict[str, Tensor]:
    """Of b, α and β, from what the kernel summed, (sets, 4, HP)."""
    H = size.H
    b = torch.cat([sums[:, 0, :H], sums[:, 1, :H]], -1)
    found = {"b": F.pad(b, (0, 0, 0, weights.b.size(0) - b.size(0))) if size.own else b[0]}
    if weights.alpha is not None:
        found["alpha"] = sums[0, 2, :H].masked_fill(weights.alpha > ALPHA_LIMIT[torch.float32], 0.0)
        found["beta"] = sums[0, 3, :H]
    return found


def _unpadded(tensor: Tensor, size: Sizes) -> Tensor:
    """Rows in blocks of HP, less the padding of each."""
    if size.H == size.HP:
        return tensor
    blocks = tensor.split(size.HP, -2)
    return torch.cat([block[..., : size.H, :] for block in blocks], -2)
