"""Writes trained models as ONNX files."""

from __future__ import annotations

import copy
import json
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from .. import __version__
from .._internal.extras import need
from .._internal.files import replacing
from .language import LanguageModel
from .sequence import SequenceModel


def export_onnx(
    model: SequenceModel | LanguageModel, path: str | os.PathLike[str], *, max_depth: int | None = None
) -> None:
    """Writes a trained model as an ONNX file, which ONNX Runtime runs without PyTorch and eirehn.

    The file takes any number of sequences of any length, and at each time step stops when no sequence of the batch
    takes another inner step. Its metadata has the names of classes (`classes`) and of input channels (`signals`),
    or the tokens of a language model (`tokens`), as JSON. Needs `pip install 'eirehn[onnx]'`.

    Args:
        model: a model as `eirehn.load` returns it.
        path: the file to write.
        max_depth: most inner steps of a time step. Default: the network's own.

    Raises:
        ValueError: if the model cannot be exported.
        RunError: if the file cannot be written.

    Shape:
        Inputs and outputs of the file, by name; L·D is the number of layers and directions.

        - x, of a sequence model: `(batch, time, input_size)`, float64 for a model that scales its inputs, otherwise
          of the type of the weights.
        - tokens, of a language model: `(batch, time)`, int64.
        - logits, or prediction for numbers, log_probabilities for a model with a pointer: as `forward` returns it.
        - depth: `(L·D, batch, time)`, int64.
        - state, of a language model, as its `hx`: zeros at the start of a text, then next_state of the call before;
          for an LSTM h and c; with a pointer also pointer_outputs, and pointer_words, which are −1 at the start.

    Examples:
        >>> from eirehn.models import SequenceModel, SequenceNetwork, export_onnx
        >>> model = SequenceModel(SequenceNetwork("SREHN"), input_size=2, output_size=3, last=True)
        >>> export_onnx(model, "model.onnx")  # doctest: +SKIP
    """
    need("onnx", "onnxscript")
    model = copy.deepcopy(model).cpu().eval()
    dtype = next(model.parameters()).dtype
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"ONNX export takes a model of float32 or float64, got {dtype}: convert it with model.float()"
        )
    frame = _language(model, max_depth) if isinstance(model, LanguageModel) else _sequences(model, dtype, max_depth)
    with torch.no_grad(), _quiet():
        try:
            program: Any = torch.onnx.export(frame, frame.example, dynamo=True, verbose=False, **frame.options)
        except torch.onnx.OnnxExporterError as error:
            raise ValueError(f"this model cannot be exported: {_reason(error)}") from error
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # the lines of Python that made it
    program.model.metadata_props.update({"eirehn": __version__, **_about(model)})
    with replacing(Path(path)) as file:
        file.write(program.model_proto.SerializeToString())


class _Frame(nn.Module):
    """A model whose inputs and outputs are tensors."""

    def __init__(
        self, model: nn.Module, max_depth: int | None, example: tuple[Tensor, ...], **options: Any
    ) -> None:
        super().__init__()
        self.model, self.max_depth, self.example, self.options = model, max_depth, example, options


class _Sequences(_Frame):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        outcome = self.model.run(x, max_depth=self.max_depth)  # type: ignore[operator]
        return outcome.prediction, outcome.depth


class _Language(_Frame):
    form: Any

    def forward(self, tokens: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        outcome = self.model.run(tokens, tree_unflatten(states, self.form), max_depth=self.max_depth)  # type: ignore[operator]
        return outcome.prediction, outcome.depth, *tree_flatten(outcome.state)[0]


def _sequences(model: SequenceModel, dtype: torch.dtype, max_depth: int | None) -> _Frame:
    x = torch.zeros(2, 3, model.input_size, dtype=dtype if model.scaling is None else torch.float64)
    return _Sequences(
        model,
        max_depth,
        (x,),
        dynamic_shapes=({0: "batch", 1: "time"},),
        input_names=["x"],
        output_names=["logits" if model.classes else "prediction", "depth"],
    )


def _language(model: LanguageModel, max_depth: int | None) -> _Frame:
    tokens = torch.zeros(2, 3, dtype=torch.int64)
    with torch.no_grad():
        states, form = tree_flatten(model.run(tokens, max_depth=1 if max_depth else None).state)
    own = len(states) - 2 * (model.pointer is not None)
    names = ["state"] if own == 1 else ["h", "c"]
    axes = [{1: "batch"}] * own + [{0: "batch"}] * (len(states) - own)
    names += ["pointer_outputs", "pointer_words"][: len(states) - own]
    frame = _Language(
        model,
        max_depth,
        (tokens, *states),
        dynamic_shapes=({0: "batch", 1: "time"}, tuple(axes)),
        input_names=["tokens", *names],
        output_names=[
            "logits" if model.pointer is None else "log_probabilities",
            "depth",
            *(f"next_{name}" for name in names),
        ],
    )
    frame.form = form
    return frame


def _about(model: SequenceModel | LanguageModel) -> dict[str, str]:
    """What else one must know to use the file."""
    found: dict[str, Any] = {"network": model.network.kind}
    if isinstance(model, SequenceModel):
        found |= {"classes": model.classes, "signals": model.signals}
    elif model.tokens is not None:
        found |= {"level": model.tokens.level, "tokens": model.tokens.tokens}
    return {
        name: value if isinstance(value, str) else json.dumps(list(value), ensure_ascii=False, default=str)
        for name, value in found.items()
        if value
    }


def _reason(error: BaseException) -> str:
    """The first line of the error below all others."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error).partition("\n")[0]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporter says of itself, and of torchvision that is not installed."""
    log = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
