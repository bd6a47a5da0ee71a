"""What is said where a library is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from eirehn._internal.extras import missing, need


@pytest.mark.parametrize(
    ("module", "extra"),
    [("huggingface_hub", "hub"), ("sklearn", "sklearn"), ("pytorch_lightning", "train"), ("wandb", "wandb")],
)
def test_the_message_names_what_to_install(module: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need("json", "sys")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModuleNotFoundError) as caught:
        need("json", module)
    assert caught.value.name == module
    assert str(caught.value) == missing(f"{module}.part")
    assert str(caught.value) == f"{module} is not installed: pip install 'eirehn[{extra}]'"


def test_a_folder_is_not_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W&B writes to a folder of its own name."""
    (tmp_path / "eirehn_test_folder").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="eirehn_test_folder is not installed"):
        need("eirehn_test_folder")
