"""What is said where a library is missing."""

from __future__ import annotations

import sys

import pytest

from eirehn._internal.extras import missing, need


def test_the_message_names_what_to_install() -> None:
    assert missing("matplotlib.axes") == "matplotlib is not installed: pip install 'eirehn[report]'"
    assert missing("sklearn") == "sklearn is not installed: pip install 'eirehn[sklearn]'"
    assert missing("pytorch_lightning") == "pytorch_lightning is not installed: pip install 'eirehn[train]'"


def test_need(monkeypatch: pytest.MonkeyPatch) -> None:
    need("json", "sys")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'eirehn\[report\]'") as caught:
        need("json", "jinja2")
    assert caught.value.name == "jinja2"
