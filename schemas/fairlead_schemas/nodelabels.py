"""Labels and taints of a node's admin, as Kubernetes writes them: labels "key=value"; taints "key=value:Effect",
and "key:Effect" for one without a value.
"""

import re
from typing import NamedTuple

#: New work that does not put up with it stays away; goes elsewhere if it can; and what runs there must leave, too.
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
#: A node has no more of them.
TAINTS_MAX = 32

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(rf"(?:[a-z0-9](?:[a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_NAME}\Z", re.ASCII)
_VALUE = re.compile(rf"(?:{_NAME})?\Z", re.ASCII)


class NodeLabelError(ValueError):
    """A taint or a label that is none; the message says what was expected and what was found."""


class Taint(NamedTuple):
    """Taint in parsed form."""

    key: str
    value: str
    effect: str

    @property
    def text(self) -> str:
        """Text of the taint, as in an inventory."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


def parse_taint(text: str) -> Taint:
    """Read one taint. Raises NodeLabelError."""
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    if effect not in EFFECTS or not _KEY.match(key) or not _VALUE.match(value):
        raise NodeLabelError(
            f'expected a taint such as "key=value:NoSchedule" (or {", ".join(EFFECTS[1:])}), found "{text[:100]}"'
        )
    return Taint(key, value, effect)


def parse_label(text: str) -> tuple[str, str]:
    """(key, value) of "key=value", by Kubernetes' rules for labels. Raises NodeLabelError."""
    key, equals, value = text.partition("=")
    if not equals or not _KEY.match(key) or not _VALUE.match(value):
        raise NodeLabelError(f'expected a label such as "fairlead/rack=r1", found "{text[:100]}"')
    return key, value
