"""Predicts for new files with the model of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .._internal.checks import usable_device
from .._internal.files import RunError, read_json
from ..data.table import FileData, new_sequences
from ..data.table_columns import Cases
from ..data.text import TextData
from ..models import LanguageModel, SequenceModel
from ..models.inputs import check_channels
from ..models.io import load
from ..models.next_tokens import NextToken, next_tokens
from ..models.score import text_tokens
from ..models.sequence import outcomes
from .run import RunFolder

TOP = 5
"""Next tokens predicted for each line of a text."""


class Predictions(NamedTuple):
    """The result of `predict`.

    Examples:
        >>> from eirehn.training.predict import Predictions
        >>> found = Predictions(("id", "activity"), iter([("a", "walk"), ("b", "rest")]))
        >>> [row[1] for row in found.rows]
        ['walk', 'rest']
    """

    columns: tuple[str, ...]
    """The name of each value of a row."""
    rows: Iterator[tuple[Any, ...]]
    """A row for each sequence, or for each next token; they are computed while they are read."""


def predict(
    run: Path,
    path: Path,
    *,
    which: str = "best",
    max_depth: int | None = None,
    device: str | None = None,
    top: int | None = None,
    depths: bool = False,
) -> Predictions:
    """Predicts the class or the number of each sequence of a file, or the next tokens after each line of a text.

    The model is that of `eirehn.load`, also of a run with several seeds.

    Args:
        run: the run folder.
        path: a CSV, Parquet or npz file with the columns or arrays that the run was trained on, except the target;
            for a language model a text file.
        which: `"best"`, the weights of the best epoch, or `"last"`, those of the last. Default: `"best"`.
        max_depth: most inner steps of a time step. Default: the network's own.
        device: as torch calls it. Default: a GPU if there is one.
        top: the number of next tokens for each line of a text. Default: 5.
        depths: whether to add the mean depth of each sequence or line. Default: `False`.

    Returns:
        For a file of sequences: what it calls the sequence, or the number of its row, from 0; the class and the
        probability of each class, or the numbers in the units of the training data. For a text: line and rank, from
        1, token and probability.

    Raises:
        RunError: if there is not a trained run in the folder, or the file cannot be read or does not fit.
        ValueError: if an argument is out of range.

    Examples:
        >>> from pathlib import Path
        >>> from eirehn.training.predict import predict
        >>> _ = Path("new.txt").write_text("the company\\nthe\\n")
        >>> found = predict(Path("runs/text"), Path("new.txt"), top=1)
        >>> found.columns, len(list(found.rows))
        (('line', 'rank', 'token', 'probability'), 2)
    """
    model: SequenceModel | LanguageModel = load(run, which=which, device=usable_device(device))
    data = RunFolder(run).recipe().data
    if isinstance(model, LanguageModel):
        encoding = data.encoding if isinstance(data, TextData) else "utf-8"
        return _of_text(model, path, encoding, TOP if top is None else top, max_depth, depths)
    if not isinstance(data, FileData):
        raise RunError(
            f"{run} was not trained on a file of sequences; from Python, eirehn.load(…).predict(x) takes arrays"
        )
    if top is not None:
        raise ValueError(f"top is for language models, and {run} is not one")
    cases = new_sequences(path, data, read_json(run / "model.json").get("columns", ()))
    try:
        check_channels(cases.x[0].shape[1], model.input_size, model.signals)
    except ValueError as error:
        raise RunError(f"{path}: {error}") from None
    count = model.output_size
    numbers = [data.target] if count == 1 else [f"{data.target}_{at}" for at in range(1, count + 1)]
    classes = [data.target, *(f"probability_{name}" for name in model.classes)]
    first = str(data.sequence) if cases.names else "row"
    columns = (first, *(classes if model.classes else numbers), *(["depth"] if depths else []))
    return Predictions(columns, _of_sequences(model, cases, str(path), max_depth, depths))


def _of_sequences(
    model: SequenceModel, cases: Cases, name: str, max_depth: int | None, depths: bool
) -> Iterator[tuple[Any, ...]]:
    names: Iterator[Any] = iter(cases.names or range(len(cases.x)))
    for (outcome,), lengths in outcomes([model], cases.x, max_depth, name=name):
        values = outcome.prediction.double().cpu()  # (B, O)
        values = values.softmax(-1) if model.classes else values
        assert lengths is not None
        depth = (outcome.depth.double().mean(0).sum(-1).cpu() / lengths).tolist()  # (B,)
        likeliest = values.argmax(-1).tolist()
        for index, row in enumerate(values.tolist()):
            predicted = [model.classes[likeliest[index]]] if model.classes else []
            yield (next(names), *predicted, *row, *([depth[index]] if depths else []))


def _of_text(
    model: LanguageModel, path: Path, encoding: str, top: int, max_depth: int | None, depths: bool
) -> Predictions:
    assert model.tokens is not None
    tokens = text_tokens(path, model.tokens.level, encoding)
    found = next_tokens(model, model.tokens, tokens, top=top, max_depth=max_depth)
    columns = NextToken._fields if depths else NextToken._fields[:-1]
    return Predictions(columns, (tuple(each)[: len(columns)] for each in found))
