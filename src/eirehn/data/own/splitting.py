"""Which sequences to train on, to choose by, and to report."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...files import RunError

Indices = npt.NDArray[np.int64]
TRIES = 1000


class Division(NamedTuple):
    train: Indices
    validation: Indices
    test: Indices


def divide(
    count: int, classes: Any, group: Any, part: Any, *, validation: float, test: float, seed: int
) -> Division:
    """The shares `validation` and `test` of `count` sequences, drawn by `seed`, or those that `part` (N,) calls so.

    Sequences of one `group` (N,) stay together. Where there are `classes` (N,), each keeps its share in every part,
    and where there are groups too, every class is among those to train on.
    """
    everything = np.arange(count)
    known = {name: everything[part == name] if part is not None else everything[:0] for name in Division._fields}
    rest = known["train"] if part is not None else everything
    random = np.random.default_rng(seed)
    for name, share in (("test", test), ("validation", validation / (1 - test) if part is None else validation)):
        if share > 0 and not len(known[name]):
            known[name], rest = hold_out(rest, share, classes, group, random)
        if share > 0 and not len(known[name]):
            raise RunError(f"no sequences for {name} are left over: there are {count}")
    if not len(rest):
        raise RunError("no sequences to train on are left over")
    division = Division(rest, known["validation"], known["test"])
    if group is not None:
        _check_apart(division, group)
    return division


def _check_apart(division: Division, group: Any) -> None:
    """That the parts a file names share no group; those drawn never do."""
    found: dict[Any, str] = {}
    for name, rows in zip(Division._fields, division, strict=True):
        for each in np.unique(group[rows]).tolist():
            if found.setdefault(each, name) != name:
                raise RunError(f"group {each!r} is in two parts, {found[each]} and {name}")


def hold_out(rest: Indices, share: float, classes: Any, group: Any, random: Any) -> tuple[Indices, Indices]:
    """A share of `rest`, and what is left of it; see `divide`."""
    if group is not None:
        out = _whole_groups(rest, share, classes, group[rest], random)
    elif classes is not None:
        out = _of_each_class(rest, share, classes[rest], random)
    else:
        out = random.permutation(rest)[: min(len(rest) - 1, max(1, round(share * len(rest))))]
    return np.sort(out), np.setdiff1d(rest, out)


def _of_each_class(rest: Indices, share: float, classes: Any, random: Any) -> Indices:
    """At least one of each class that has two, so that a part knows all of them."""
    out = []
    for each in np.unique(classes):
        own = random.permutation(rest[classes == each])
        out.append(own[: min(len(own) - 1, max(1, round(share * len(own))))])
    return np.concatenate(out)


def _whole_groups(rest: Indices, share: float, classes: Any, group: Any, random: Any) -> Indices:
    groups = np.unique(group)
    count = min(len(groups) - 1, max(1, round(share * len(groups))))
    if count < 1:
        raise RunError(f"all sequences are of one group, {str(groups[0])!r}: none can be held out")
    good: Indices | None = None
    for _ in range(TRIES):
        out = np.isin(group, random.permutation(groups)[:count])
        if classes is None:
            return rest[out]
        inside, outside = set(classes[rest[~out]]), set(classes[rest[out]])
        if inside == outside:
            return rest[out]
        if outside <= inside and good is None:
            good = rest[out]
    if good is None:
        raise RunError(
            f"no {count} of {len(groups)} groups leave all classes to the others: there are too few groups"
        )
    return good
