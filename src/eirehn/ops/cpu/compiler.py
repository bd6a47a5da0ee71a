"""How numba compiles the functions that only other compiled ones call.

numba optimises each function by itself and makes machine code of it, and again as a part of each function that
calls it. Only kernels are called from Python: here all else stays as it is until it is part of a kernel.
"""

# numba says little about its types.
# mypy: ignore-errors

from __future__ import annotations

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class _Library(JITCodeLibrary):
    """The code of a function and of those it calls, neither optimised nor made into machine code."""

    def finalize(self):
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            if hasattr(library, "_reload_init"):  # not in numba 0.61
                self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True


class _InnerCompiler(Compiler):
    def compile_extra(self, func):
        self.state.flags.no_compile = True
        self.state.library = library = _Library(self.state.targetctx.codegen(), func.__qualname__)
        library.enable_object_caching()
        found = super().compile_extra(func)
        # numba finds a function by this, and never calls it: any builtin function will do that is its own.
        entry_point = [].append
        self.state.targetctx.insert_user_function(entry_point, found.fndesc, [library])
        return found._replace(entry_point=entry_point)


_NEEDED = ("_get_module_for_linking", "_raise_if_finalized", "finalize", "enable_object_caching")
InnerCompiler = _InnerCompiler if all(hasattr(JITCodeLibrary, name) for name in _NEEDED) else None
"""None for a version of numba that lacks what it uses: then numba compiles all functions as usual."""
