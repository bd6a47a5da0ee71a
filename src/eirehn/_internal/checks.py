"""Checks of arguments, with torch's messages where torch has one."""

from __future__ import annotations

import difflib
import math
import textwrap
from collections.abc import Collection, Iterable

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence


class UnstableTraining(UserWarning):
    """The warning of a training that has become unstable.

    It says how many steps were skipped because their gradients were not finite, or that a seed has stopped: it had
    no step with finite gradients in an epoch, or its weights are not finite. A smaller learning rate usually helps.

    Examples:
        >>> import warnings
        >>> warnings.simplefilter("error", eirehn.UnstableTraining)  # stop at once instead
    """


def usable_device(name: str | None) -> torch.device:
    """The device of this name if tensors can be created on it; if None, a GPU if there is one."""
    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(0, device=device)
        if device.type == "meta":
            raise RuntimeError("it holds no values")
    except (AssertionError, NotImplementedError, RuntimeError) as error:
        said = textwrap.shorten(str(error).partition("\n")[0], 200, placeholder=" …")
        raise ValueError(f"device must be one that torch can use here, got {name!r} ({said})") from error
    return device


def positive_int(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} should be of type int, got: {type(value).__name__}")
    if value <= 0:
        raise ValueError(f"{name} must be greater than zero, got {value}")
    if value > 1 << 62:  # tensors and kernels count in int64
        raise ValueError(f"{name} must be at most 2**62, got {value}")
    return value


def non_negative_int(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name} must be an integer of at least 0, got {value!r}")
    return value


def one_of(name: str, value: object, accepted: Collection[str]) -> None:
    if value not in accepted:
        raise ValueError(f"{name} must be one of {', '.join(accepted)}, got {value!r}")


def finite(name: str, value: float, *, above: float | None = None, least: float | None = None) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError(f"{name} should be a number, got: {type(value).__name__}")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}")
    if above is not None and value <= above:
        raise ValueError(f"{name} must be greater than {above:g}, got {value}")
    if least is not None and value < least:
        raise ValueError(f"{name} must be at least {least:g}, got {value}")
    return float(value)


def floating(dtype: torch.dtype | None) -> torch.dtype | None:
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype should be a torch.dtype, got: {type(dtype).__name__}")
    if dtype is not None and not dtype.is_floating_point:
        raise ValueError(f"dtype must be a floating point type, got {dtype}")
    return dtype


HALVED = (torch.float32, torch.float16, torch.bfloat16)  # types that autocast converts into each other


def check_dtype(given: Tensor, weight: Tensor, name: str = "input") -> None:
    if given.dtype == weight.dtype:
        return
    if given.dtype in HALVED and weight.dtype in HALVED and torch.is_autocast_enabled(given.device.type):
        return
    raise ValueError(
        f"RNN {name} dtype ({given.dtype}) does not match weight dtype ({weight.dtype}). "
        f"Convert {name}: {name}.to({weight.dtype}), or convert model: model.to({given.dtype})"
    )


def check_tensor(name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} should be a Tensor, got: {type(value).__name__}")


def check_cell_input(name: str, input: Tensor, input_size: int, weight: Tensor) -> None:
    check_tensor("input", input)
    if input.dim() not in (1, 2):
        raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
    if input.size(-1) != input_size:
        raise ValueError(f"input.size(-1) must be equal to input_size. Expected {input_size}, got {input.size(-1)}")
    check_dtype(input, weight)


def check_cell_state(name: str, hx: Tensor, input: Tensor, hidden_size: int, weight: Tensor) -> None:
    check_tensor("hx", hx)
    expected = (*input.shape[:-1], hidden_size)
    if tuple(hx.shape) != expected:
        raise ValueError(f"{name}: Expected hidden size {expected}, got {list(hx.shape)}")
    check_dtype(hx, weight, "hx")


def check_layer_input(name: str, input: Tensor | PackedSequence, input_size: int, weight: Tensor) -> None:
    data = input.data if isinstance(input, PackedSequence) else input
    check_tensor("input", data)
    if isinstance(input, PackedSequence):
        if data.dim() != 2:
            raise ValueError(f"input must have 2 dimensions, got {data.dim()}")
    elif data.dim() not in (2, 3):
        raise ValueError(f"{name}: Expected input to be 2D or 3D, got {data.dim()}D instead")
    if data.size(-1) != input_size:
        raise ValueError(f"input.size(-1) must be equal to input_size. Expected {input_size}, got {data.size(-1)}")
    check_dtype(data, weight)


def check_not_exporting() -> None:
    """For sequences of different lengths."""
    if torch.compiler.is_exporting():
        raise ValueError("torch.export takes sequences of one length, (B, T, X), not lengths or a PackedSequence")


def check_layer_state(part: Tensor, size: tuple[int, int, int], *, batched: bool, weight: Tensor) -> None:
    """Checks a part of `hx`, which should be of `size` (cells, B, H)."""
    check_tensor("hx", part)
    dims = 3 if batched else 2
    if part.dim() != dims:
        kind = "batched 3-D" if batched else "unbatched 2-D"
        raise ValueError(f"For {kind} input, hx should also be {dims}-D but got {part.dim()}-D tensor")
    expected = size if batched else (size[0], size[2])
    if tuple(part.shape) != expected:
        raise ValueError(f"Expected hidden size {expected}, got {list(part.shape)}")
    check_dtype(part, weight, "hx")


def check_pair(hx: object) -> tuple[Tensor, Tensor]:
    """Checks an LSTM's state `(h, c)`."""
    if not isinstance(hx, (tuple, list)) or len(hx) != 2 or not all(isinstance(part, Tensor) for part in hx):
        raise TypeError(f"hx should be a pair of Tensors (h, c), got: {type(hx).__name__}")
    h, c = hx
    if h.shape != c.shape:
        raise ValueError(f"h and c must have one shape, got {list(h.shape)} and {list(c.shape)}")
    return h, c


def boolean(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} should be of type bool, got: {type(value).__name__}")
    return value


def probability(name: str, value: object) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= 1:
        raise ValueError(
            f"{name} should be a number in range [0, 1] representing the probability of an element being "
            f"zeroed, got {value!r}"
        )
    return float(value)


def nearest(name: str, known: Iterable[str]) -> str:
    """The one of the `known` names that is most similar to `name`."""
    return difflib.get_close_matches(name, list(known), n=1, cutoff=0.0)[0]
