import pytest
import torch


@pytest.fixture
def masks(monkeypatch):
    """The masks that dropout draws, in order, with their rates."""
    drawn, original = [], torch.nn.functional.dropout

    def dropout(x, p=0.5, training=True, inplace=False):
        mask = original(torch.ones_like(x), p)
        if p > 0:
            drawn.append((p, mask.double().numpy()))
        return x * mask

    monkeypatch.setattr(torch.nn.functional, "dropout", dropout)
    return drawn
