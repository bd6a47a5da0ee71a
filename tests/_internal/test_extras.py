"""What is said where a library is missing."""

from __future__ import annotations

import sys

import pytest

from eirehn._internal.extras import missing, need


@pytest.mark.parametrize(
    ("module", "extra"), [("jinja2", "report"), ("sklearn", "sklearn"), ("pytorch_lightning", "train")]
)
def test_the_message_names_what_to_install(module: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need("json", "sys")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModuleNotFoundError) as caught:
        need("json", module)
    assert caught.value.name == module
    assert str(caught.value) == missing(f"{module}.part")
    assert str(caught.value) == f"{module} is not installed: pip install 'eirehn[{extra}]'"
