"""Prometheus' text format 0.0.4. Pure.

Written here because the client library names counters by its own rule (`_total`), and dcgm-exporter's counters do not follow it.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Sample(NamedTuple):
    """One series now. A label without a value is left out: to Prometheus both are the same."""

    labels: Mapping[str, str]
    value: float


class Family(NamedTuple):
    """All series of one name."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    samples: list[Sample]


def text(families: Iterable[Family]) -> bytes:
    """The exposition; families without samples are left out."""
    lines: list[str] = []
    for family in families:
        if family.samples:
            lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
            lines += [f"{family.name}{_labels(sample.labels)} {_number(sample.value)}" for sample in family.samples]
    return "".join(f"{line}\n" for line in lines).encode()


def _labels(labels: Mapping[str, str]) -> str:
    said = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items() if value)
    return f"{{{said}}}" if said else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
