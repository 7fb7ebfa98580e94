"""Many nodes' columns put end to end, as NumPy arrays that DuckDB reads in place. Pure.

Nothing is done per sample: lists are joined per batch and column, and turned into arrays once per transaction. bench/telemetry
says what that saves.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from fairlead_schemas.wire.samples import NS_PER_MS, Columns, GpuColumns, ResourceColumns, SampleColumns, UseColumns
from fairlead_telemetry.samples.intake import SampleHead
from fairlead_telemetry.schema.samples import FILED

type Arrays = dict[str, NDArray[Any]]

#: {table: (field of a batch, its columns)}
KINDS: Mapping[str, type[Columns]] = {"samples": GpuColumns, "uses": UseColumns, "resources": ResourceColumns}
_FIELD = {"samples": "gpus", "uses": "uses", "resources": "resources"}
_NAMES = frozenset({"uuid", "parent", "run"})


def column_arrays(batches: Iterable[SampleColumns], kind: str) -> Arrays:
    """Return {column: its values over all batches} of one table; {} where there are no rows. A column without known values is
    left out.
    """
    field, names = _FIELD[kind], KINDS[kind].__struct_fields__
    joined: list[list[Any]] = [[] for _ in names]
    nodes, incarnations, times, numbers, simulated = (list[Any]() for _ in range(5))
    for batch in batches:
        columns = getattr(batch, field)
        if columns is None:
            continue
        fields = msgspec.structs.astuple(columns)
        rows = len(fields[0])
        for values, column in zip(joined, fields, strict=True):
            values.extend(column if type(column) is list else [column] * rows)
        nodes += [batch.node] * rows
        incarnations += [batch.incarnation] * rows
        times += [batch.at_ns // NS_PER_MS] * rows
        numbers += [batch.n] * rows
        simulated += [batch.simulated] * rows
    if not nodes:
        return {}
    head: Arrays = {
        "time": np.array(times, dtype="datetime64[ms]"),
        "node": _texts(nodes),
        "incarnation": _texts(incarnations),
        "n": np.array(numbers, dtype=np.int64),
        "simulated": np.array(simulated, dtype=np.bool_),
    }
    arrays = ((name, _array(name, values)) for name, values in zip(names, joined, strict=True))
    return head | {name: array for name, array in arrays if array is not None}


def heads_arrays(heads: Mapping[tuple[str, str], SampleHead]) -> Arrays:
    """The rows of `sample_heads`."""
    return {
        "node": _texts([node for node, _ in heads]),
        "incarnation": _texts([incarnation for _, incarnation in heads]),
        **{
            name: np.array([getattr(head, name) for head in heads.values()], dtype=np.int64)
            for name in SampleHead._fields
        },
    }


def coarse(arrays: Arrays) -> Arrays:
    """Each to the unit that it is kept to (schema.measured.FILED)."""
    return {name: _to_step(array, FILED[name].step) if name in FILED else array for name, array in arrays.items()}


def _to_step(array: NDArray[Any], step: int) -> NDArray[Any]:
    return (array + step // 2) // step * step


def _array(name: str, values: list[Any]) -> NDArray[Any] | None:
    """None where no value is known."""
    if name in _NAMES:
        return _texts(values)
    unknown = values.count(None)
    if unknown == len(values):
        return None
    if not unknown:
        return np.array(values, dtype=np.int64)
    mask = [value is None for value in values]
    return np.ma.MaskedArray([0 if value is None else value for value in values], mask=mask, dtype=np.int64)


def _texts(values: list[str]) -> NDArray[Any]:
    return np.array(values, dtype=np.object_)
