"""EI-REHN: the elastic highway network whose weights a small hypernetwork changes from one inner step to the
next."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .._internal.checks import finite, one_of, positive_int
from .base import Constants, Step, default_bound, fill_uniform, masked, product, residual_and_gate
from .gate import ElasticSteps
from .srehn import SREHNCell
from .weight_update import RENAMED, WEIGHT_UPDATES


class EIREHNCell(SREHNCell):
    """Early Improving Recurrent Elastic Highway Network, with the interface of `nn.GRUCell`.

    It is `SREHNCell` with a hypernetwork
    `z^r = tanh(W_zh s^{r-1} + W_zg ĝ^{r-1} + W_z z^{r-1} + b_z)`, whose initial values `s⁰`, `ĝ⁰` and `z⁰` are
    learned, that changes the weights between inner steps: `[s; ĝ]^r = [tanh; sigm](Ŵ^r h^{r-1} + [r=1] W_x x + b)`.
    `weight_update` says how `Ŵ^r` follows from `W_h` and z¹ … z^r. Rows 0 … H−1 of `W_h`, `W_x`, `b`, `P`, `P_bar`
    and `b_bar` are of the residual s, the others of the residual gate ĝ.

    Args:
        input_size: features of the input.
        hidden_size: units.
        max_depth: most inner steps of a time step. Default: 10.
        hyper_size: units of the hypernetwork. Default: `⌈hidden_size / 2⌉`.
        weight_update: how the hypernetwork changes the weights: `"bounded"`, the most stable; `"recursive"`, the
            same without a bound on the change; `"paper"`, Eqs. 17 and 22 of the paper; `"additive"`, Eq. 17 alone;
            `"scaling"`, which scales rows (Ha et al. 2016); `"outer"`, changes of rank one (Schmidhuber 1992); or
            `"none"`, which is SREHN. Default: `"bounded"`.
        device: device of the parameters. Default: torch's default.
        dtype: floating point type of the parameters. Default: torch's default.

    Shape:
        - input: `(B, X)`, or `(X,)` unbatched, with X = `input_size`.
        - state: `(B, H)`, or `(H,)`, with H = `hidden_size`.
        - depth (int64) and cost: `(B,)`, or `()`.

    Examples:
        >>> cell = eirehn.EIREHNCell(9, 32, max_depth=5)
        >>> h, depth = cell(torch.randn(4, 9), return_depth=True)
        >>> h.shape, depth.shape
        (torch.Size([4, 32]), torch.Size([4]))
    """

    W_zh: Tensor
    W_zg: Tensor
    W_z: Tensor
    b_z: Tensor
    s_0: Tensor
    g_0: Tensor
    z_0: Tensor
    P: Tensor
    P_u: Tensor
    P_v: Tensor
    P_bar: Tensor
    b_bar: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        max_depth: int = 10,
        hyper_size: int | None = None,
        weight_update: str = "bounded",
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        weight_update = RENAMED.get(weight_update, weight_update)
        one_of("weight_update", weight_update, WEIGHT_UPDATES)
        super().__init__(input_size, hidden_size, max_depth=max_depth, device=device, dtype=dtype)
        self.weight_update = weight_update
        self.hyper_size = (hidden_size + 1) // 2 if hyper_size is None else positive_int("hyper_size", hyper_size)
        update = WEIGHT_UPDATES[weight_update]
        if update is None:
            return
        sizes: dict[str, tuple[int, ...]] = {
            "W_zh": (self.hyper_size, hidden_size),
            "W_zg": (self.hyper_size, hidden_size),
            "W_z": (self.hyper_size, self.hyper_size),
            "b_z": (self.hyper_size,),
            "s_0": (hidden_size,),
            "g_0": (hidden_size,),
            "z_0": (self.hyper_size,),
        }
        sizes |= dict.fromkeys(update.projections, (2 * hidden_size, self.hyper_size))
        if update.gated:
            sizes |= {"P_bar": (2 * hidden_size, self.hyper_size), "b_bar": (2 * hidden_size,)}
        for name, size in sizes.items():
            self.register_parameter(name, nn.Parameter(torch.empty(size, device=device, dtype=dtype)))
        self.parameter_names = tuple(self._parameters)
        self._hyper_names = tuple(sizes)
        self._reset_hypernetwork()

    def reset_parameters(
        self,
        *,
        weight_bound: float | None = None,
        update_bias: float = 0.0,
        change_scale: float = 1.0,
        update_scale: float = 1.0,
        **initial: float,
    ) -> None:
        """Draws all parameters anew; those of the hypernetwork are uniform, too.

        Args:
            weight_bound: as for `SREHNCell.reset_parameters`. Default: `1/√hidden_size`.
            update_bias: bias of the gate ḡ of the weight update. Default: 0.
            change_scale: factor on the uniform initialisation of `P`, which makes the change of the weights.
                Default: 1.
            update_scale: factor on that of `P̄`. Default: 1.
            initial: the other arguments of `SREHNCell.reset_parameters`.

        Examples:
            >>> eirehn.EIREHNCell(9, 32).reset_parameters(gate_bias=-2.0, update_bias=1.0)
        """
        finite("update_bias", update_bias)
        finite("change_scale", change_scale, least=0.0)
        finite("update_scale", update_scale, least=0.0)
        super().reset_parameters(weight_bound=weight_bound, **initial)
        self._reset_hypernetwork(weight_bound, update_bias, change_scale, update_scale)

    def _reset_hypernetwork(
        self,
        weight_bound: float | None = None,
        update_bias: float = 0.0,
        change_scale: float = 1.0,
        update_scale: float = 1.0,
    ) -> None:
        update = WEIGHT_UPDATES[self.weight_update]
        if update is None:
            return
        bound = default_bound(weight_bound, self.hidden_size)
        fill_uniform(bound, *(getattr(self, name) for name in self._hyper_names))
        with torch.no_grad():
            for name in update.projections:
                getattr(self, name).mul_(change_scale)
            if update.gated:
                self.P_bar.mul_(update_scale)
                self.b_bar.fill_(update_bias)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]  # torch's has no types
        self.weight_update = RENAMED.get(self.weight_update, self.weight_update)

    def constants(self) -> Constants:
        """With `z^1`, which depends on learned initial values alone: one vector for all samples and time steps."""
        if WEIGHT_UPDATES[self.weight_update] is None:
            return super().constants()
        # hyper_step for one vector; addmv takes a third of the time of the general product, which matters for small
        # networks.
        pre = torch.addmv(torch.addmv(self.b_z, self.W_zh, self.s_0), self.W_zg, self.g_0)
        z = torch.tanh(torch.addmv(pre, self.W_z, self.z_0)).to(self.b_z.dtype)
        return super().constants()._replace(z=z)  # (Z,)

    def hyper_step(self, s: Tensor, g_hat: Tensor, z: Tensor) -> Tensor:
        """`z^r`, Eq. 18."""
        return torch.tanh(product(s, self.W_zh) + product(g_hat, self.W_zg) + product(z, self.W_z, self.b_z))

    def step(
        self, u: Tensor, h: Tensor, *, max_depth: int, constants: Constants, h_mask: Tensor | None = None
    ) -> Step:
        update = WEIGHT_UPDATES[self.weight_update]
        if update is None:
            return super().step(u, h, max_depth=max_depth, constants=constants, h_mask=h_mask)
        assert constants.z is not None
        s, g_hat, z = self.s_0, self.g_0, self.z_0
        changed = update(self)
        u_x = u[..., : 2 * self.hidden_size]
        steps = ElasticSteps(constants, self.local_decay(u, h, h_mask))
        for r, d in steps.walk(max_depth):
            z = constants.z if r == 1 else self.hyper_step(s, g_hat, z)  # (Z,), then (B, Z)
            Wh = product(masked(h, h_mask), self.W_h)  # (B, 2H)
            pre = changed(Wh, torch.cat([h, h], -1), z) + self.b  # (B, 2H)
            s, g_hat = residual_and_gate(pre + u_x if r == 1 else pre)  # (B, H) each
            g = d * g_hat
            h = torch.where(steps.open, g * s + (1 - g) * h, h)  # a closed unit keeps its bits
        return Step(h, steps.depth)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, hyper_size={self.hyper_size}, weight_update={self.weight_update!r}"
