"""States of trainings: damaged ones are refused, and generators go back to where they were."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from helpers.resume import stopped
from helpers.small import small

from eirehn._internal.files import RunError
from eirehn.training.checkpoint import KIND, MARK, generator_states, set_generator_states
from eirehn.training.trainer import train


def test_damaged_states_are_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    stopped(small(), tmp_path, 6)
    content = path.read_bytes()
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 0x10]) + content[middle + 1 :]
    wrong = dict.fromkeys((content[:middle], b"", b"nonsense", flipped), "last.ckpt is damaged")
    for damaged, said in {**wrong, content.replace(MARK, KIND + b"1\n", 1): "another version"}.items():
        path.write_bytes(damaged)
        with pytest.raises(RunError, match=said):
            train(small(), tmp_path)
        assert path.read_bytes() == damaged


@pytest.mark.parametrize("there", [0, 1, 3])
def test_another_number_of_gpus(there: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state saved with two of them."""
    states = generator_states() | {"cuda": [torch.tensor([index], dtype=torch.uint8) for index in range(2)]}
    found: dict[int, int] = {}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: there)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: found.update({device: int(state)}))
    set_generator_states(states)
    assert found == {index: index for index in range(min(there, 2))}
