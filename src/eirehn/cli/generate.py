"""`eirehn generate`: text from a trained language model."""

from __future__ import annotations

import sys
from pathlib import Path

from ..models.generate import generate as draw
from ..models.generate import pieces, read_prompt, trained_language_model
from .parser import add_model_options, make_parser, parse


def generate(given: list[str]) -> None:
    """Writes text with a trained language model, token by token. The same seed gives the same text."""
    parser = make_parser(generate)
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument("--prompt", type=str, default="", help="text to continue")
    parser.add_argument("--tokens", type=int, default=100, help="words or characters to write")
    parser.add_argument(
        "--temperature", type=float, default=1.0, help="below 1: more likely tokens; 0: always the most likely"
    )
    parser.add_argument(
        "--top_p",
        type=float,
        default=1.0,
        help="sample from the fewest most likely tokens with this total probability",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the sampling")
    parser.add_argument("--show_depth", action="store_true", help="write the number of inner steps below each word")
    add_model_options(parser)
    asked = parse(parser, given)
    from rich.console import Console

    model, vocabulary = trained_language_model(asked.run, which=asked.which, device=asked.device)
    prompt = read_prompt(asked.prompt, vocabulary)
    if prompt.unknown:
        unknown = ", ".join(map(repr, prompt.unknown))
        print(f"eirehn: not in the vocabulary, read as <unk>: {unknown}", file=sys.stderr)
    options = {name: asked[name] for name in ("tokens", "temperature", "top_p", "seed", "max_depth")}
    console = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
    drawn = draw(model, vocabulary, prompt.ids, **options)
    for piece in pieces(drawn, vocabulary.level, depth_of=model.network.max_depth if asked.show_depth else None):
        if console.is_terminal and piece.style:
            console.print(piece.text, style=piece.style, end="")
        else:  # a console would change tabs
            sys.stdout.write(piece.text)
            sys.stdout.flush()
    print()
