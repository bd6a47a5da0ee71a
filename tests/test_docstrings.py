"""The API reference is complete: every public name is on a page, documented, with an example that runs."""

from __future__ import annotations

import ast
import dataclasses
import doctest
import inspect
import re
import textwrap
import warnings
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from torch import nn

import eirehn

PAGES = Path(__file__).parents[1] / "docs" / "api"
MODULES = ("eirehn", "eirehn.data", "eirehn.models", "eirehn.recipes", "eirehn.sklearn", "eirehn.training")
WITHOUT_EXAMPLE = {
    "eirehn.layers.RecurrentLayer.flatten_parameters",  # does nothing
    "eirehn.data.HarData.load",  # needs a download
}


def find(path):
    """The object of a dotted path: of a module, or of a class in one."""
    module, name = path.rsplit(".", 1)
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError:
        return getattr(find(module), name)


def directives():
    """The paths that the pages name, each with its options."""
    text = "\n".join(page.read_text("utf-8") for page in sorted(PAGES.glob("*.md")))
    found = re.findall(r"^::: (\S+)\n((?:    .*\n)*)", text + "\n", re.MULTILINE)
    return {path: (yaml.safe_load(options) or {}).get("options", {}) for path, options in found}


DIRECTIVES = directives()


def shown():
    """All that the pages show: the names, and the methods of classes."""
    for path, options in DIRECTIVES.items():
        each = find(path)
        yield path
        if inspect.isclass(each):
            hidden = [rule.removeprefix("!") for rule in options.get("filters", ["!^_"])]
            own = [name for name, value in vars(each).items() if callable(value) or isinstance(value, classmethod)]
            own = [name for name in own if not any(re.search(rule, name) for rule in hidden)]
            yield from (
                f"{path}.{name}" for name in options.get("members", own) if inspect.getdoc(getattr(each, name))
            )


SHOWN = list(shown())


def fields_documented(kind):
    """The fields of a config or tuple that have a docstring below them."""
    found = set()
    for each in kind.__mro__:
        if not each.__module__.startswith("eirehn"):
            continue
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        for field, below in zip(node.body, node.body[1:], strict=False):
            is_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            if isinstance(field, ast.AnnAssign) and is_text:
                found.add(field.target.id)
    return found


def args_documented(doc):
    section = re.search(r"^Args:\n((?:    .*\n|\n)*)", doc + "\n", re.MULTILINE)
    return set(re.findall(r"^    (\w+): ", section[1], re.MULTILINE)) if section else set()


def missing(path):
    """What the documentation of an object lacks."""
    each = find(path)
    doc = inspect.getdoc(each) or ""
    if not doc:
        return ["docstring"]
    found = []
    if ">>>" not in doc and not isinstance(each, property) and path not in WITHOUT_EXAMPLE:
        found.append("example")
    if isinstance(each, property) or (inspect.isclass(each) and issubclass(each, Warning)):
        return found
    wanted = {name for name in inspect.signature(each).parameters if name != "self"}
    is_config = inspect.isclass(each) and (dataclasses.is_dataclass(each) or issubclass(each, tuple))
    if is_config and "Args:" not in doc:
        return found + sorted(wanted - fields_documented(each))
    if inspect.isclass(each) and issubclass(each, nn.Module) and "Shape:" not in doc + each.forward.__doc__:
        found.append("shape")
    return found + sorted(wanted ^ args_documented(doc))


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_on_a_page(module):
    names = {name for name in import_module(module).__all__ if name not in ("ELASTIC", "FIXED", "KINDS", "SHALLOW")}
    assert {f"{module}.{name}" for name in names} <= set(DIRECTIVES)


@pytest.mark.parametrize("path", SHOWN)
def test_arguments_and_an_example(path):
    assert not missing(path)


def undocumented(x, *, depth=1):
    """Does nothing.

    Args:
        x: its input.
        other: which it does not take.
    """


def test_what_is_missing_is_noticed(monkeypatch):
    monkeypatch.setattr(eirehn, "undocumented", undocumented, raising=False)
    assert missing("eirehn.undocumented") == ["example", "depth", "other"]
    undocumented.__doc__ = None
    assert missing("eirehn.undocumented") == ["docstring"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The runs that examples load, of a model of sequences and of one of text."""
    from eirehn.data import SyntheticData, TextData
    from eirehn.models import LanguageNetwork, SequenceNetwork
    from eirehn.training import Hardware, LanguageOptimisation, Optimisation, Recipe, train

    folder, cpu = tmp_path_factory.mktemp("runs"), Hardware(accelerator="cpu")
    data = SyntheticData(train=40, validation=10, test=10)
    optimisation = Optimisation(epochs=1)
    train(Recipe("sequence", SequenceNetwork(hidden_size=4), data, optimisation, (0, 1), cpu), folder / "synthetic")
    text = folder / "text.txt"
    text.write_text("the company said the shares fell\n" * 20)
    recipe = Recipe(
        "text",
        LanguageNetwork(hidden_size=4),
        TextData(steps=5, train=str(text), validation=str(text), test=str(text)),
        LanguageOptimisation(epochs=1, batch_size=4),
        (0,),
        cpu,
    )
    train(recipe, folder / "text")
    return folder


def examples():
    """One path for each docstring: several classes may inherit it."""
    docs = {inspect.getdoc(find(path)): path for path in SHOWN}
    return [path for doc, path in docs.items() if ">>>" in (doc or "")]


@pytest.mark.parametrize("path", examples())
def test_examples_run(path, runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for name in ("synthetic", "text"):
        (tmp_path / "runs" / name).symlink_to(runs / name)
    known = {"eirehn": eirehn, "torch": torch, "nn": nn, "np": np}
    example = doctest.DocTestParser().get_doctest(inspect.getdoc(find(path)), known, path, None, 0)
    with warnings.catch_warnings():
        assert doctest.DocTestRunner(verbose=False).run(example).failed == 0
