"""`python -m bench.vectors FILE…`: hold the pure parts against published examples.

Files in the shape of tests/data/fairshare/vectors.json, tests/data/topology/allocation_vectors.json or
tests/data/mig/streams.json. Prints one JSON line per case (name, expect, got, ok); exits 1 if any differs, 2 if a file cannot be read or a case makes no sense.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from bench.vectors import allocation, fairshare
from bench.vectors import mig as migstreams
from bench.vectors.fairshare import Case


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file; any of its tables may be missing."""

    drf: list[fairshare.DrfCase] = []
    hdrf: list[fairshare.HdrfCase] = []
    kueue_dominant_share: fairshare.Kueue | None = None
    kai_over_quota: fairshare.Kai | None = None
    policy_cases: list[allocation.PolicyCase] = []
    sequences: list[allocation.SequenceCase] = []
    mig: list[migstreams.StreamCase] = []


#: {table: what plays its cases}
TABLES: dict[str, Callable[[Any], Iterator[Case]]] = {
    "drf": fairshare.drf,
    "hdrf": fairshare.hdrf,
    "kueue_dominant_share": fairshare.kueue_dominant_share,
    "kai_over_quota": fairshare.kai_over_quota,
    "policy_cases": allocation.policy_cases,
    "sequences": allocation.sequences,
    "mig": migstreams.streams,
}


def read(path: Path) -> Document:
    """A file; texts next to its tables are ignored. Raises OSError, and ValueError with the field that is wrong."""
    data = path.read_bytes()
    try:
        fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        tables = {name: raw for name, raw in fields.items() if not bytes(raw).startswith(b'"')}
        return msgspec.json.decode(msgspec.json.encode(tables), type=Document)
    except msgspec.ValidationError:
        raise
    except ValueError as error:
        raise ValueError(f"no JSON: {error}") from error


def run(document: Document) -> Iterator[Case]:
    """Every case of every table, named after both. Raises ValueError when one makes no sense."""
    for name, play in TABLES.items():
        table = getattr(document, name)
        if table:
            for case in play(table):
                yield case._replace(name=f"{name}: {case.name}")


def main() -> int:
    """Run every case of every file."""
    parser = argparse.ArgumentParser(prog="python -m bench.vectors", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    worst = 0
    for path in parser.parse_args().files:
        try:
            cases = list(run(read(path)))
        except (OSError, ValueError, RecursionError) as error:
            print(f"{path}: {error}", file=sys.stderr)
            return 2
        for case in cases:
            ok = case.got == case.expect
            worst |= not ok
            print(json.dumps({"name": case.name, "expect": case.expect, "got": case.got, "ok": ok}))
    return worst
