"""Sequences in CSV files: a row for each time step (long), or for each sequence (wide)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...files import RunError
from .cases import NO_VALUE, Cases, Floats, Roles, Texts, ends, numbers, parts
from .table import Table, read_table


def read_csv(
    path: Path, roles: Roles, *, task: str, channels: int, ragged: bool, delimiter: str, encoding: str
) -> Cases:
    """Long where `roles` name the column that tells sequences apart, and wide otherwise."""
    table = read_table(path, delimiter=delimiter, encoding=encoding)
    if roles.sequence is not None:
        return _long(table, roles, task)
    if roles.time is not None:
        raise ValueError("time orders the rows of a long file: name the column of its sequences too")
    return _wide(table, roles, task, channels, ragged)


def _values(table: Table, roles: Roles) -> list[str]:
    """The names of the signals' columns: those asked for, or all that have no other role."""
    taken = {roles.target, roles.sequence, roles.time, roles.group, roles.part}
    names = list(roles.values) or [name for name in table.columns if name not in taken]
    if not names:
        raise RunError(f"{table.path} has no columns left for the values")
    for name in names:
        if name in taken:
            raise ValueError(f"column {name!r} cannot be a value and something else too")
    return names


def _column(table: Table, name: str) -> Floats:
    return numbers(table.column(name, "values"), lambda row: table.where(row, name))


def _target(table: Table, name: str, task: str) -> Texts | Floats:
    cells = table.column(name, "the target")
    if task == "regression":
        return numbers(cells, lambda row: table.where(row, name))[:, None]
    return _texts(table, cells, name)


def _texts(table: Table, cells: Iterable[str], name: str) -> Texts:
    found = np.array([cell.strip() for cell in cells])
    for row in np.flatnonzero(np.char.lower(found) == "")[:1]:
        raise RunError(f"{table.where(int(row), name)}: a value is missing; fill it in, or leave the sequence out")
    return found


def _names(table: Table, name: str | None, role: str) -> Texts | None:
    return None if name is None else _texts(table, table.column(name, role), name)


def _long(table: Table, roles: Roles, task: str) -> Cases:
    assert roles.sequence is not None
    keys = _texts(table, table.column(roles.sequence, "sequence"), roles.sequence)
    target = _target(table, roles.target, task)
    group, part = _names(table, roles.group, "group"), _names(table, roles.part, "split")
    values = np.stack([_column(table, name) for name in _values(table, roles)], 1)  # (rows, X)
    _, first, code = np.unique(keys, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))  # sequences in the order in which the file begins them
    order, starts = _order(table, roles, rank[code])
    for name, each in ((roles.target, target), (roles.group, group), (roles.part, part)):
        if each is not None:
            _check_constant(table, name, each[order], order, starts)
    firsts = order[starts]
    return Cases(
        np.split(values[order], starts[1:]),
        target[firsts],
        None if group is None else group[firsts],
        None if part is None else parts(part[firsts], lambda row: table.where(int(firsts[row]), str(roles.part))),
    )


def _order(table: Table, roles: Roles, code: npt.NDArray[np.int64]) -> tuple[Any, Any]:
    """The rows sequence by sequence, in time, and where in that each sequence starts."""
    if roles.time is None:
        order = np.argsort(code, kind="stable")
    else:
        time = numbers(table.column(roles.time, "time"), lambda row: table.where(row, str(roles.time)))
        order = np.lexsort((time, code))
        again = (np.diff(code[order]) == 0) & (np.diff(time[order]) == 0)
        for at in np.flatnonzero(again)[:1]:
            raise RunError(f"{table.where(int(order[at + 1]), roles.time)}: its sequence has this time already")
    return order, np.flatnonzero(np.diff(code[order], prepend=-1))


def _check_constant(table: Table, name: str | None, values: Any, order: Any, starts: Any) -> None:
    same = (values[1:] == values[:-1]).reshape(len(values) - 1, -1).all(1)
    same[starts[1:] - 1] = True
    for at in np.flatnonzero(~same)[:1]:
        where = table.where(int(order[at + 1]), str(name))
        cell = table.columns[str(name)][order[at + 1]]
        raise RunError(f"{where}: {cell!r} differs from the rows before it of its sequence, which has one")


def _wide(table: Table, roles: Roles, task: str, channels: int, ragged: bool) -> Cases:
    names = _values(table, roles)
    if len(names) % channels:
        raise ValueError(f"{len(names)} columns of values do not make whole time steps of {channels} channels")
    target = _target(table, roles.target, task)
    group, part = _names(table, roles.group, "group"), _names(table, roles.part, "split")
    if part is not None:
        part = parts(part, lambda row: table.where(row, str(roles.part)))
    cells = [table.column(name, "values") for name in names]
    if not ragged:
        values = np.stack([_column(table, name) for name in names], 1)
        return Cases(list(values.reshape(len(values), -1, channels)), target, group, part)
    missing = np.array([[cell.strip().lower() in NO_VALUE for cell in column] for column in cells]).T
    last = ends(missing)
    x = []
    for row, end in enumerate(last.tolist()):
        if end == 0 or end % channels:
            raise RunError(f"{table.path}, line {table.lines[row]} ends after {end} values, in no whole time step")
        own = [column[row] for column in cells[:end]]
        x.append(numbers(own, lambda at, row=row: table.where(row, names[at])).reshape(-1, channels))
    return Cases(x, target, group, part)
