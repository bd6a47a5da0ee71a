"""A text, which is one long sequence, as batches: in columns side by side, each read on from batch to batch."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from ..data.splits import Split


class Columns:
    """One pass over a text (1, N), cut into `batch_size` columns of one length, `steps` of each a batch, (M, B, T).

    What is left over at the end is not read, so that every batch has one shape. With several processes each takes
    every `world`-th column, and `share` says what part of a batch that is. The position is all there is to go on
    from.
    """

    def __init__(
        self, text: Split, batch_size: int, steps: int, members: int = 1, *, rank: int = 0, world: int = 1
    ) -> None:
        self.batch_size, self.steps, self.members = batch_size, steps, members
        x, target = columns(text, batch_size)
        self.length = x.size(1)
        if len(self) < 1:
            raise ValueError(
                f"the text to train on is too short for batch_size {batch_size} and steps {steps}: it has "
                f"{text.x.size(1) + 1} tokens, and {batch_size * steps + 1} are needed"
            )
        self.x, self.target = x[rank::world], target[rank::world]
        self.share = len(self.x) * world / batch_size
        self._position = 0

    def __len__(self) -> int:
        return self.length // self.steps

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, float]]:
        first = self._position % len(self)  # a finished epoch is followed by a new one
        for number in range(first, len(self)):
            self._position = number + 1
            now = slice(number * self.steps, (number + 1) * self.steps)
            x, target = (each[:, now].long().expand(self.members, -1, -1) for each in (self.x, self.target))
            yield x, target, self.share
        self._position = 0

    def state_dict(self) -> dict[str, int]:
        return {"position": self._position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._position = state["position"]


class Windows:
    """A text (1, N) to be evaluated in `batch_size` columns, a window at a time; one column reads all of it."""

    size = 1024  # tokens of a window: what is told of each is as many numbers as there are words

    def __init__(self, text: Split, batch_size: int, *, rank: int = 0, world: int = 1) -> None:
        x, target = columns(text, min(batch_size, text.x.size(1)))
        self.x, self.target = x[rank::world], target[rank::world]
        self.steps = max(1, self.size // batch_size)

    def __len__(self) -> int:
        return -(-self.x.size(1) // self.steps)

    def __iter__(self) -> Iterator[Split]:
        for x, target in zip(self.x.split(self.steps, 1), self.target.split(self.steps, 1), strict=True):
            yield Split(x.long(), target.long())


def columns(text: Split, count: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets, (B, L) each, views of the text."""
    length = text.x.size(1) // count
    x, target = (each[0, : count * length].view(count, length) for each in (text.x, text.target))
    return x, target
