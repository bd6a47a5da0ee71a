"""torch's own RNN, GRU and LSTM in the form the paper counts: one bias vector, where torch has two."""

from __future__ import annotations

from typing import TypeVar

from torch import nn

Recurrent = TypeVar("Recurrent", bound=nn.RNNBase | nn.RNNCellBase)


def one_bias(module: Recurrent) -> Recurrent:
    """Sets the hidden-to-hidden biases of a torch RNN, GRU or LSTM (layer or cell) to zero and freezes them.

    What is left to train has the paper's parameter count. `module.reset_parameters()` draws the frozen biases
    anew: call `one_bias` again after it.

    >>> lstm = one_bias(nn.LSTM(2, 20))
    >>> sum(p.numel() for p in lstm.parameters() if p.requires_grad)
    1840
    """
    if not isinstance(module, (nn.RNNBase, nn.RNNCellBase)):
        raise TypeError(f"one_bias takes a torch RNN, GRU or LSTM, got: {type(module).__name__}")
    if not module.bias:
        raise ValueError("one_bias needs a module with biases, got one made with bias=False")
    for name, parameter in module.named_parameters():
        if name.startswith("bias_hh"):
            nn.init.zeros_(parameter)
            parameter.requires_grad_(False)
    return module
