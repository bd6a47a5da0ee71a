"""What people give a model to predict for: tensors, arrays and lists of sequences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..data.dataset import padded

if TYPE_CHECKING:  # keeps `import eirehn` fast
    import numpy.typing as npt

    Cases = npt.NDArray[Any] | list[npt.NDArray[Any]]  # (N, T, X), or N of (T, X), each T its own

AT_ONCE = 256
STEPS_AT_ONCE = 1 << 18
"""Most sequences of a batch, and most time steps of all together unless one has more, which bounds its memory."""


def as_array(x: Any) -> Any:
    """A tensor as a NumPy array; anything else as it is."""
    if not isinstance(x, Tensor):
        return x
    return (x.float() if x.dtype == torch.bfloat16 else x).numpy(force=True)  # NumPy has no bfloat16


def read_cases(x: Any, lengths: Any, channels: int, names: Sequence[str]) -> tuple[Cases, bool]:
    """Sequences from an array or tensor (N, T, X), with the lengths (N,) of padded ones, from one sequence (T, X),
    or from a list of N sequences (T, X) of any lengths; and whether it is more than one sequence alone."""
    x = [as_array(each) for each in x] if isinstance(x, (list, tuple)) else as_array(x)
    if is_ragged(x):
        if lengths is not None:
            raise ValueError("lengths are for padded sequences, and x is a list of sequences")
        found = [sequence(each, index, "x") for index, each in enumerate(x)]
        for each in found:
            check_channels(each.shape[1], channels, names)
        return found, True
    try:
        array = np.asarray(x, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"x must be numbers, {SHAPES}: {error}") from None
    check_shape(array.shape, channels, names)
    if not array.size:
        raise ValueError(f"x must have sequences and time steps, got shape {array.shape}")
    cases = array if array.ndim == 3 else array[None]
    if lengths is not None:
        ends = checked_lengths(lengths, *cases.shape[:2]).tolist()
        rows = [row[:end] for row, end in zip(cases, ends, strict=True)]
        for index, row in enumerate(rows):
            check_finite(row[None], "x", first=index)
        return rows, array.ndim == 3
    check_finite(cases, "x")
    return cases, array.ndim == 3


SHAPES = "(B, T, X), (T, X), or a list of sequences (T, X)"


def check_shape(shape: Sequence[int], channels: int, names: Sequence[str]) -> None:
    if len(shape) not in (2, 3):
        raise ValueError(f"x must be {SHAPES}, got shape {tuple(shape)}")
    check_channels(shape[-1], channels, names)


def check_channels(given: int, channels: int, names: Sequence[str]) -> None:
    if given != channels:
        named = f" ({', '.join(names)})" if names else ""
        raise ValueError(f"expected {channels} channel{'s' if channels > 1 else ''}{named}, got {given}")


def checked_lengths(lengths: Any, count: int, steps: int) -> Tensor:
    """Lengths, given as a tensor, an array or a list, as a tensor (count,) of 1 to `steps`."""
    try:
        found = torch.as_tensor(lengths)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"lengths must be whole numbers, one for each sequence: {error}") from None
    if found.shape != (count,) or found.dtype == torch.bool or found.is_floating_point() or found.is_complex():
        raise ValueError(
            f"lengths must be whole numbers, one for each of {count} sequences, got {found.dtype} of shape "
            f"{tuple(found.shape)}"
        )
    known = found.cpu()
    for length in known[(known < 1) | (known > steps)][:1].tolist():
        raise ValueError(f"lengths must be from 1 to the number of time steps, {steps}, got {length}")
    return found


def is_ragged(x: Any) -> bool:
    """Whether x is a collection of separate sequences rather than one array."""
    if isinstance(x, np.ndarray):
        return x.dtype == object and x.ndim == 1 and len(x) > 0 and np.ndim(x[0]) > 0
    if not isinstance(x, (list, tuple)) or not len(x):
        return False
    if all(isinstance(each, np.ndarray) and each.ndim == 2 for each in x):
        return True
    try:
        np.asarray(x)
    except ValueError:  # of unequal lengths
        return all(np.ndim(_first(each)) < 2 for each in x)
    return False


def _first(each: Any) -> Any:
    return next(iter(each), 0.0) if hasattr(each, "__iter__") else 0.0


def sequence(each: Any, index: int, name: str) -> npt.NDArray[Any]:
    """A sequence (T, X) or (T,) of a list called `name`, (T, X)."""
    shapes = f"{name}: sequence {index} must be"
    try:
        array = np.asarray(each, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{shapes} numbers, (time, channels) or (time,): {error}") from None
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"{shapes} (time, channels) or (time,), got {np.shape(each)}")
    check_finite(array[None], name, first=index)
    return array


def check_finite(x: npt.NDArray[Any], name: str, *, first: int = 0) -> None:
    """Raises an error if sequences (N, T, X), numbered from `first`, have values that are not finite."""
    for row, step, channel in np.argwhere(~np.isfinite(x))[:1]:
        raise ValueError(f"{name} contains NaN or infinity: sequence {first + row}, step {step}, column {channel}")


def batches(cases: Cases) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Sequences in order as tensors (B, T, X) of float64, with their lengths (B,) if `cases` is a list."""
    first = 0
    while first < len(cases):
        last, longest = first, 0
        while last < min(len(cases), first + AT_ONCE):
            longest = max(longest, len(cases[last]))
            if last > first and longest * (last + 1 - first) > STEPS_AT_ONCE:
                break
            last += 1
        part = cases[first:last]
        if isinstance(part, list):
            yield padded(part, np.float64)
        else:
            yield torch.from_numpy(np.array(part, np.float64)), None
        first = last
