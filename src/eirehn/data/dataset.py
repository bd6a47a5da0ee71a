"""The form of all data sets: tensors of inputs and targets for training, validation and test."""

from __future__ import annotations

import functools
import hashlib
import stat
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from .._internal.files import RunError

if TYPE_CHECKING:  # keeps `import eirehn` fast
    import numpy.typing as npt

Floats: TypeAlias = "npt.NDArray[np.float64]"


class Split(NamedTuple):
    """The sequences of one part of a data set.

    Examples:
        >>> from eirehn.data import SyntheticData
        >>> test = SyntheticData(train=20, validation=5, test=5).load().test
        >>> test.x.shape, test.target.shape
        (torch.Size([5, 20, 2]), torch.Size([5, 20, 2]))
    """

    x: Tensor
    """Inputs `(N, T, X)`; for a text its tokens `(1, T)`."""
    target: Tensor
    """Targets: numbers `(N, T, O)` or, one per sequence, `(N, O)`; classes `(N,)`; for a text the next tokens
    `(1, T)`."""
    lengths: Tensor | None = None
    """Time steps of each sequence, `(N,)`, if `x` is padded at its end."""

    def map(self, change: Callable[[Tensor], Tensor]) -> Split:
        """With `change` applied to each tensor that is not None."""
        return Split(*(None if each is None else change(each) for each in self))  # type: ignore[arg-type]


class Splits(NamedTuple):
    """The parts of a data set.

    Examples:
        >>> from eirehn.data import SyntheticData
        >>> splits = SyntheticData(train=20, validation=5, test=5).load()
        >>> len(splits.train.x), len(splits.validation.x), len(splits.test.x)
        (20, 5, 5)
    """

    train: Split
    """Training data."""
    validation: Split
    """Validation data, which choose the best epoch; if empty, the last epoch is used."""
    test: Split
    """Test data, which give the result."""


Augment: TypeAlias = "Callable[[Sequence[Tensor], Sequence[np.random.Generator]], tuple[Tensor, ...]]"
"""Augments the inputs and targets of a batch, (M, B, …) each, with one generator per ensemble member."""


class Data(Protocol):
    """The interface of the data of a recipe: a frozen dataclass whose fields determine the data."""

    kind: ClassVar[str]

    @property
    def task(self) -> str:
        """regression, classification or language."""

    @property
    def input_size(self) -> int: ...

    @property
    def output_size(self) -> int: ...

    @property
    def augment(self) -> Augment | None:
        """Augments training batches; None if they stay as they are."""

    def load(self) -> Splits: ...

    def __hash__(self) -> int: ...

    def smaller(self, train: int) -> Data:
        """The same data with this number of training sequences."""


@dataclass(frozen=True)
class Scaling:
    """Converts the units of a user's data to those that a model was trained in, and back.

    Examples:
        >>> from eirehn.models import Scaling
        >>> scaling = Scaling(mean=(20.0,), scale=(5.0,))
        >>> scaling.inputs(torch.tensor([[[25.0]]]), like=torch.zeros(()))
        tensor([[[1.]]])
    """

    mean: tuple[float, ...]
    """Subtracted from each channel of the inputs."""
    scale: tuple[float, ...]
    """Then divides each channel."""
    target_mean: tuple[float, ...] = (0.0,)
    """Added to each output, after the multiplication."""
    target_scale: tuple[float, ...] = (1.0,)
    """Multiplies each output."""

    def inputs(self, x: Tensor, like: Tensor) -> Tensor:
        """Scales inputs.

        Args:
            x: inputs in the units of the data, `(…, X)`.
            like: a tensor with the dtype of the result.

        Returns:
            Inputs of the model, `(…, X)`.

        Examples:
            >>> from eirehn.models import Scaling
            >>> Scaling(mean=(20.0,), scale=(5.0,)).inputs(torch.tensor([[30.0]]), like=torch.zeros(()))
            tensor([[2.]])
        """
        # In double precision, as are the outputs: a small change of a large number would vanish otherwise.
        return ((x.double() - _double(self.mean, x)) / _double(self.scale, x)).to(like.dtype)

    def signals(self, x: Tensor) -> Tensor:
        """Scales inputs of the model back.

        Args:
            x: inputs of the model, `(…, X)`.

        Returns:
            Inputs in the units of the data, float64 of shape `(…, X)`.

        Examples:
            >>> from eirehn.models import Scaling
            >>> Scaling(mean=(20.0,), scale=(5.0,)).signals(torch.tensor([[2.0]]))
            tensor([[30.]], dtype=torch.float64)
        """
        return x.double() * _double(self.scale, x) + _double(self.mean, x)

    def outputs(self, prediction: Tensor) -> Tensor:
        """Scales predictions back.

        Args:
            prediction: outputs of the model, `(…, O)`.

        Returns:
            Predictions in the units of the data, float64 of shape `(…, O)`.

        Examples:
            >>> from eirehn.models import Scaling
            >>> Scaling((0.0,), (1.0,), target_mean=(20.0,), target_scale=(5.0,)).outputs(torch.tensor([[2.0]]))
            tensor([[30.]], dtype=torch.float64)
        """
        scale, mean = (_double(each, prediction) for each in (self.target_scale, self.target_mean))
        return prediction.double() * scale + mean


def _double(values: tuple[float, ...], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, device=like.device)


def sent(array: Floats, like: Tensor) -> Tensor:
    """`array` in the dtype and on the device of `like`, without synchronising."""
    tensor = torch.from_numpy(array).to(like.dtype)
    return tensor.pin_memory().to(like.device, non_blocking=True) if like.is_cuda else tensor


def check_single(values: Tensor, what: str) -> None:
    """Raises an error if numbers are not finite in single precision."""
    if not values.isfinite().all():
        raise ValueError(
            f"{what} has values that are too large for single precision, or too far from those in training"
        )


def padded(x: Sequence[npt.NDArray[Any]], dtype: npt.DTypeLike = np.float32) -> tuple[Tensor, Tensor]:
    """Sequences (T, X) of different lengths as (N, T, X), padded with zeros, and their lengths (N,)."""
    lengths = [len(each) for each in x]
    out = np.zeros((len(x), max(lengths), x[0].shape[1]), dtype)
    for row, each in zip(out, x, strict=True):
        row[: len(each)] = each
    return torch.from_numpy(out), torch.tensor(lengths)


def moments(values: Floats, standardise: bool = True) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The shift and the scale of each column of `values` (rows, X): its mean and its standard deviation, or 1 for a
    constant one; 0 and 1 for all without `standardise`."""
    if not standardise:
        return (0.0,) * values.shape[1], (1.0,) * values.shape[1]
    with np.errstate(over="ignore", invalid="ignore"):
        mean, scale = values.mean(0), values.std(0)
    if not np.isfinite(mean).all() or not np.isfinite(scale).all():
        raise ValueError(
            f"values are too large to standardise, up to {np.abs(values).max():.3g}: scale them down first"
        )
    # The deviation of a constant can be a rounding error.
    varies = scale > 1e-12 * np.abs(values).max(0)
    return tuple(mean.tolist()), tuple(np.where(varies, scale, 1.0).tolist())


def standardised(
    x: Sequence[npt.NDArray[Any]] | npt.NDArray[Any],
    target: npt.NDArray[Any],
    parts: Sequence[npt.NDArray[np.int64]],
    standardise: bool,
    *,
    ragged: bool,
    names: tuple[str, str],
) -> tuple[list[Split], Scaling]:
    """The `parts` of a data set, shifted and scaled to mean 0 and deviation 1 over the first of them.

    Args:
        x: sequences, N of (T, X).
        target: numbers (N, O), which are standardised too, or classes (N,), which are not.
        parts: the indices of their sequences; only the first must have some.
        standardise: False to keep the units.
        ragged: whether the lengths of the sequences differ.
        names: of `x` and `target` in error messages.
    """
    scaling = Scaling(*moments(np.concatenate([x[row] for row in parts[0]], dtype=np.float64), standardise))
    with np.errstate(over="ignore"):
        if target.dtype.kind == "f":
            mean, scale = moments(target[parts[0]], standardise)
            scaling = replace(scaling, target_mean=mean, target_scale=scale)
            target = ((target - mean) / scale).astype(np.float32)
        splits = []
        for rows in parts:
            inputs, lengths = torch.empty(0, 1, x[0].shape[1]), torch.empty(0, dtype=torch.int64)
            if len(rows):
                inputs, lengths = padded([(x[row] - scaling.mean) / scaling.scale for row in rows])
            splits.append(Split(inputs, torch.from_numpy(target[rows]), lengths if ragged else None))
    for split in splits:
        for values, name in zip((split.x, split.target), names, strict=True):
            check_single(values, name)
    return splits, scaling


DAMAGED_ARRAY = (ValueError, EOFError, SyntaxError, tokenize.TokenError)
"""NumPy's errors for damaged arrays."""


def load_npz(path: Path, most_bytes: int) -> dict[str, npt.NDArray[Any]]:
    """The arrays of an untrusted npz file: no pickles, and at most `most_bytes` bytes."""
    try:
        with zipfile.ZipFile(path) as archive:
            if (total := sum(member.file_size for member in archive.infolist())) > most_bytes:
                raise RunError(f"{path} is too large: it unpacks to {total:,} bytes")
        with np.load(path, allow_pickle=False) as file:
            return {name: _array(path, file, name) for name in file.files}
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror or error}") from error
    except (*DAMAGED_ARRAY, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise RunError(f"{path} is damaged or not an npz file: {error}") from error


def _array(path: Path, file: Any, name: str) -> npt.NDArray[Any]:
    try:
        array = file[name]
    except ValueError as error:
        if "pickle" not in str(error) and "Object" not in str(error):
            raise
        raise RunError(
            f"{path}: array {name!r} holds Python objects, which are not read: they could run code. Save numbers, "
            "and sequences of unequal lengths padded, with an array of their lengths"
        ) from error
    if not isinstance(array, np.ndarray):
        raise RunError(f"{path}: {name!r} is not an array")
    return array


FileState = tuple[int, int]


def file_state(path: Path) -> FileState:
    """Size and modification time, to recognise a changed file."""
    try:
        found = path.stat()
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    if stat.S_ISFIFO(found.st_mode) or stat.S_ISSOCK(found.st_mode):
        raise RunError(f"{path} is a pipe; it must be a file, as it is read more than once")
    return found.st_size, found.st_mtime_ns


def checksum(path: Path) -> str:
    """SHA-256 of a file, computed again only when it has changed."""
    return _checksum(path.absolute(), file_state(path))


@functools.lru_cache(maxsize=32)
def _checksum(path: Path, state: FileState) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
