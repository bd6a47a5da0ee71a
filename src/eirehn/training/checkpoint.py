"""The state of a training on disk: written whole or not at all, read without pickle."""

from __future__ import annotations

import hashlib
import io
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pytorch_lightning.plugins.io import CheckpointIO

from .._internal.files import RunError, replacing

KIND = b"eirehn training state "
MARK = KIND + b"3\n"  # increased when the content of a state changes


class WholeFiles(CheckpointIO):
    """Lightning's checkpoints, each moved to its place when it is completely written."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        payload = io.BytesIO()
        torch.save(checkpoint, payload)
        content = payload.getbuffer()
        with replacing(Path(path)) as file:
            file.write(MARK + hashlib.sha256(content).digest())
            file.write(content)

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: bool | None = True
    ) -> dict[str, Any]:
        try:
            whole = Path(path).read_bytes()
        except OSError as error:
            raise RunError(f"cannot read {path}: {error.strerror}") from error
        start = len(MARK) + hashlib.sha256().digest_size
        content = memoryview(whole)[start:]
        if whole.startswith(KIND) and not whole.startswith(MARK):
            raise RunError(
                f"{path} was written by another version of eirehn; use that version, or move the file to train "
                "from the beginning"
            )
        if whole[:start] != MARK + hashlib.sha256(content).digest():
            raise RunError(f"{path} is damaged; move the file away to train from the beginning")
        return torch.load(io.BytesIO(content), map_location=map_location or "cpu", weights_only=True)  # type: ignore[no-any-return]

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)


def generator_states() -> dict[str, Any]:
    """The states of Python's, NumPy's and torch's generators, in types that load without pickle."""
    version, numbers, gauss = random.getstate()
    _, keys, position, has_gauss, cached = np.random.get_state()  # noqa: NPY002  # users' code may use it
    states: dict[str, Any] = {
        "python": (version, list(numbers), gauss),
        "numpy": (
            torch.from_numpy(np.asarray(keys).astype(np.int64)),
            int(position),
            int(has_gauss),
            float(cached),
        ),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds the generators with `seed`, and restores them afterwards."""
    before = generator_states()
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)
    try:
        yield
    finally:
        set_generator_states(before)


def set_generator_states(states: dict[str, Any]) -> None:
    version, numbers, gauss = states["python"]
    random.setstate((version, tuple(numbers), gauss))
    keys, position, has_gauss, cached = states["numpy"]
    np.random.set_state(("MT19937", keys.numpy().astype(np.uint32), position, has_gauss, cached))  # noqa: NPY002
    torch.set_rng_state(states["torch"].cpu())
    if "cuda" in states and torch.cuda.is_available():
        # The number of GPUs may have changed since they were saved.
        for device, state in zip(range(torch.cuda.device_count()), states["cuda"], strict=False):
            torch.cuda.set_rng_state(state.cpu(), device)
