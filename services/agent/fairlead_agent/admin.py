"""What a node's admin says of it: labels and taints, from the environment and from the command line.

FAIRLEAD_NODE_LABELS  "fairlead/rack=r1,fairlead/block=b2": what comes later counts; it also overrides what the agent finds
FAIRLEAD_NODE_TAINTS  "team=vision:NoSchedule,drill:NoExecute"
"""

import argparse
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fairlead_bus.settings import BadSetting
from fairlead_schemas.nodelabels import TAINTS_MAX, NodeLabelError, parse_label, parse_taint
from fairlead_schemas.queues import POOL_LABEL

LABELS = "FAIRLEAD_NODE_LABELS"
TAINTS = "FAIRLEAD_NODE_TAINTS"
LABELS_MAX = 64
#: Labels that say what the agent was told otherwise or sees for itself, and how to change them.
OWN = {
    POOL_LABEL: "set FAIRLEAD_POOL",
    "fairlead/runtime": "set FAIRLEAD_RUNTIME",
    "fairlead/devices": "set FAIRLEAD_DEVICES",
    "fairlead/simulated": "set FAIRLEAD_DEVICES",
    "fairlead/gpu-injection": "set FAIRLEAD_RUNTIME, or write CDI specifications (nvidia-ctk cdi generate --format=json)",
}


class Admin(NamedTuple):
    """Labels, and taints as an inventory has them, each once."""

    labels: dict[str, str] = {}
    taints: tuple[str, ...] = ()


def from_environment(env: Mapping[str, str]) -> Admin:
    """Read and check. Raises BadSetting."""
    labels = dict(_read(env, LABELS, parse_label))
    if len(labels) > LABELS_MAX:
        raise BadSetting(f"{LABELS}: expected at most {LABELS_MAX} labels, found {len(labels)}")
    for key, how in OWN.items():
        if key in labels:
            raise BadSetting(f'{LABELS}: "{key}" is the agent\'s own; {how}')
    taints = sorted({taint.text for taint in _read(env, TAINTS, parse_taint)})
    if len(taints) > TAINTS_MAX:
        raise BadSetting(f"{TAINTS}: expected at most {TAINTS_MAX} taints, found {len(taints)}")
    return Admin(labels, tuple(taints))


def _read[T](env: Mapping[str, str], name: str, parse: Callable[[str], T]) -> list[T]:
    try:
        return [parse(text.strip()) for text in env.get(name, "").split(",") if text.strip()]
    except NodeLabelError as error:
        raise BadSetting(f"{name}: {error}") from error


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The same on a command line, after what the environment says."""
    parser.add_argument("--label", action="append", default=[], metavar="KEY=VALUE", help="a label of the node")
    parser.add_argument("--taint", action="append", default=[], metavar="KEY=VALUE:EFFECT", help="a taint of the node")


def with_arguments(env: Mapping[str, str], arguments: Any) -> dict[str, str]:
    """The environment with what the command line adds."""
    said = dict(env)
    for name, texts in ((LABELS, arguments.label), (TAINTS, arguments.taint)):
        if texts:
            said[name] = ",".join([said.get(name, ""), *texts])
    return said
