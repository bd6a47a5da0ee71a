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
from .common import UsageError, add_model_options, check_apart, check_can_be_written, make_parser, parse


def score(given: list[str]) -> None:
    """Prints how well a trained language model predicts a text of yours, and how deep it goes for each word."""
    parser = make_parser("score", score)
    parser.add_argument("run", type=Path, help="folder of the run; of several seeds the best on validation data")
    parser.add_argument("text", type=Path, help="the text")
    parser.add_argument("--out", type=Path | None, help="write a row for each word, or character, to this CSV file")
    parser.add_argument("--apart", action="store_true", help="each line as a text of its own, from the beginning")
    parser.add_argument("--encoding", type=str, default="utf-8", help="of the text")
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
    kind = "words, ends of lines among them" if vocabulary.level == "word" else "characters"
    perplexity = 2 ** (bits / count) if bits < 1024 * count else math.inf
    print(f"{count:,} {kind}: perplexity {perplexity:.6g}, {bits / count:.4f} bits each, ", end="")
    print(f"depth {depth / count:.3f}; {unknown:,} not in the vocabulary, and read as <unk>")


def _written(rows: Iterable[Scored], out: Path) -> Iterator[Scored]:
    """The same, each also a row of a file, which is there when all are."""
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
