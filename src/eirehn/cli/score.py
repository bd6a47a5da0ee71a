"""`eirehn score`: how well a trained language model predicts a text."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

from .._internal.files import replacing
from ..models.generate import trained_language_model
from ..models.score import Scored, text_tokens
from ..models.score import score as scored
from .common import UsageError, check_apart, check_can_be_written
from .parser import add_model_options, make_parser, parse


def score(given: list[str]) -> None:
    """Prints the perplexity of a text under a trained language model, and the mean depth."""
    parser = make_parser(score)
    parser.add_argument(
        "run", type=Path, help="folder of the run; of several seeds, the best on validation data is used"
    )
    parser.add_argument("text", type=Path, help="the text file")
    parser.add_argument("--out", type=Path | None, help="write a row for each word or character to this CSV file")
    parser.add_argument("--apart", action="store_true", help="score each line as a text of its own")
    parser.add_argument("--encoding", type=str, default="utf-8", help="encoding of the text")
    add_model_options(parser)
    asked = parse(parser, given)
    check_can_be_written("--out", asked.out)
    check_apart("--out", asked.out, asked.run)
    if asked.out is not None and asked.out.exists() and asked.text.exists() and asked.out.samefile(asked.text):
        raise UsageError(f"--out must be a file of its own, and {asked.out} is the text")
    model, vocabulary = trained_language_model(asked.run, which=asked.which, device=asked.device)
    tokens = text_tokens(asked.text, vocabulary.level, asked.encoding)
    rows = scored(model, vocabulary, tokens, apart=asked.apart, max_depth=asked.max_depth)
    count, unknown, bits, depth = 0, 0, 0.0, 0.0
    for row in rows if asked.out is None else _written(rows, asked.out):
        count, unknown = count + 1, unknown + (not row.known)
        bits, depth = bits + row.bits, depth + row.depth
    kind = "words, including ends of lines" if vocabulary.level == "word" else "characters"
    perplexity = 2 ** (bits / count) if bits < 1024 * count else math.inf
    print(f"{count:,} {kind}: perplexity {perplexity:.6g}, {bits / count:.4f} bits each, ", end="")
    print(f"depth {depth / count:.3f}; {unknown:,} not in the vocabulary, read as <unk>")


def _written(rows: Iterable[Scored], out: Path) -> Iterator[Scored]:
    """The same rows, which are also written to a file."""
    with replacing(out) as file:
        text = io.TextIOWrapper(file, "utf-8", newline="")
        table = csv.writer(text)
        table.writerow(Scored._fields)
        for row in rows:
            shown = [format(value, ".6g") if isinstance(value, float) else value for value in row]
            table.writerow([int(value) if isinstance(value, bool) else value for value in shown])
            yield row
        text.flush()
        text.detach()
