"""Imports that follow the import of another library."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import Any


def import_after(library: str, own: str) -> None:
    """Imports our module `own` as soon as `library` has been imported, now if it already is: what registers
    something with a library must not make `import eirehn` wait for it."""
    if library in sys.modules:
        _import(own, library)
    else:
        sys.meta_path.insert(0, _After(library, own))


class _After:
    def __init__(self, library: str, own: str) -> None:
        self.library, self.own = library, own

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self.library:
            return None
        others = (each for each in sys.meta_path if each is not self)
        spec = next(filter(None, (each.find_spec(name, path, target) for each in others)), None)
        if spec is not None and spec.loader is not None:
            execute = partial(self._execute, spec.loader.exec_module)
            spec.loader.exec_module = execute  # type: ignore[method-assign]  # of this loader alone
        return spec

    def _execute(self, execute: Callable[[Any], None], module: Any) -> None:
        execute(module)
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            _import(self.own, self.library)


def _import(own: str, library: str) -> None:
    try:
        import_module(own)
    except Exception as error:  # whoever imports the library may not need us
        warnings.warn(f"{own} does not fit this version of {library}: {error}", stacklevel=2)
