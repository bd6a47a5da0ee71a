"""The examples in the docstrings of the public names run, and print what they say."""

import doctest

import pytest
import torch
from torch import nn

import eirehn

NAMES = [name for name in eirehn.__all__ if ">>>" in (getattr(eirehn, name).__doc__ or "")]


@pytest.mark.parametrize("name", NAMES)
def test_examples(name):
    known = {"torch": torch, "nn": nn, "layer": eirehn.EIREHN(2, 3), "x": torch.randn(4, 1, 2)}
    known |= {each: getattr(eirehn, each) for each in eirehn.__all__}
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner(verbose=False)
    (example,) = finder.find(getattr(eirehn, name), name, globs=known)
    assert runner.run(example).failed == 0


def test_every_layer_has_one():
    assert {"ACT", "EIREHN", "GRU", "LSTM", "RHN", "RNN", "SREHN", "SRHN"} <= set(NAMES)
