"""eirehn: recurrent networks with elastic depth, for PyTorch."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._internal.imports import import_after

if TYPE_CHECKING:
    from ._internal.checks import UnstableTraining
    from .cells import (
        GRU,
        LSTM,
        RNN,
        ACTCell,
        EIREHNCell,
        RHNCell,
        SREHNCell,
        SRHNCell,
        depth_bound,
        elastic_gate,
        one_bias,
    )
    from .layers import ACT, EIREHN, RHN, SREHN, SRHN
    from .models.io import load
    from .ops import use_backend

__version__ = "0.2.0"

__all__ = [
    "ACT",
    "EIREHN",
    "GRU",
    "LSTM",
    "RHN",
    "RNN",
    "SREHN",
    "SRHN",
    "ACTCell",
    "EIREHNCell",
    "RHNCell",
    "SREHNCell",
    "SRHNCell",
    "UnstableTraining",
    "depth_bound",
    "elastic_gate",
    "load",
    "one_bias",
    "use_backend",
]

_PACKAGES = ("cells", "data", "layers", "models", "ops")
_PLACES = {
    **dict.fromkeys(("ACT", "EIREHN", "RHN", "SREHN", "SRHN"), "layers"),
    "UnstableTraining": "_internal.checks",
    "load": "models.io",
    "use_backend": "ops",
}
"""Where public names are that are not in `cells`."""


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used, so that `eirehn --help` does not wait for torch."""
    if name in _PACKAGES:
        return import_module(f".{name}", __name__)
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f".{_PLACES.get(name, 'cells')}", __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})


# The operator of exported programs, which torch.export.load looks up by its name, and what it is in ONNX.
import_after("torch", "eirehn._internal.scan_operator")
import_after("onnxscript.function_libs.torch_lib.ops", "eirehn.ops.onnx")
