"""`eirehn recipes`: list or print recipes."""

from __future__ import annotations

from ..models import SHALLOW
from .parser import make_parser, parse


def recipes(given: list[str]) -> None:
    """Lists the recipes, or prints one as YAML for `eirehn train --config`."""
    parser = make_parser(recipes)
    parser.add_argument("name", type=str | None, nargs="?", help="print this recipe as YAML")
    asked = parse(parser, given)
    from ..recipes import find
    from ..recipes import recipes as known

    if asked.name is not None:
        import yaml  # type: ignore[import-untyped,unused-ignore]  # it has no types, unless stubs are installed

        print(yaml.safe_dump(find(asked.name).to_dict(), sort_keys=False, allow_unicode=True), end="")
        return
    for name, recipe in known().items():
        network, optimisation = recipe.network, recipe.optimisation
        depth = "" if network.kind in SHALLOW else f"depth {network.max_depth}"
        print(
            f"{name:34} {network.kind:7} {network.hidden_size:4} units  {depth:8}  "
            f"{optimisation.epochs} epochs  {len(recipe.seeds)} seeds"
        )
