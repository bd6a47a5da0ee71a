"""Messages about missing libraries of the package's extras."""

from __future__ import annotations

import importlib.util

EXTRAS = {
    "distributed": "dask",
    "huggingface_hub": "hub",
    "jinja2": "report",
    "matplotlib": "report",
    "mlflow": "mlflow",
    "onnx": "onnx",
    "onnxscript": "onnx",
    "optuna": "compare",
    "sklearn": "sklearn",
    "wandb": "wandb",
}
"""All other libraries are in `train`."""


def missing(module: str) -> str:
    """One line that names the install command."""
    name = module.partition(".")[0]
    return f"{name} is not installed: pip install 'eirehn[{EXTRAS.get(name, 'train')}]'"


def need(*modules: str) -> None:
    """Raises an ImportError that names the install command where one of `modules` is missing."""
    for module in modules:
        found = importlib.util.find_spec(module)
        if found is None or found.origin is None:  # a folder of this name, such as the one that wandb writes
            raise ModuleNotFoundError(missing(module), name=module)
