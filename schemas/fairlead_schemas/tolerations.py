"""Taints of nodes, and what a job puts up with: Kubernetes' tolerations in one text each.

key=value:Effect    that taint          key=value    the same, whatever the effect
key:Effect          any value of it     key          the same, whatever the effect
:Effect             every taint of the effect         :      every taint
"""

import re
from functools import lru_cache
from typing import NamedTuple

from fairlead_schemas.selectors import KEY_CHARS_MAX, KEY_PATTERN

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
VALUE_CHARS_MAX = 63

_EXPECTED = 'expected a toleration such as "key=value:NoSchedule", "key:NoExecute", "key" or ":NoSchedule"'
_KEY = re.compile(rf"{KEY_PATTERN}\Z", re.ASCII)
_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?\Z", re.ASCII)


class TolerationError(ValueError):
    """A toleration that cannot be read; the message says what was expected and what was found."""


class Toleration(NamedTuple):
    """Toleration in parsed form."""

    #: "": of every taint.
    key: str
    #: None: any value.
    value: str | None = None
    #: "": any effect.
    effect: str = ""

    @property
    def text(self) -> str:
        """Text of the toleration, as in a request."""
        name = self.key if self.value is None else f"{self.key}={self.value}"
        return f"{name}:{self.effect}" if self.effect or not name else name

    def tolerates(self, key: str, value: str, effect: str) -> bool:
        """Return True if a node's taint does not keep the job away."""
        if self.effect not in ("", effect):
            return False
        return not self.key or (self.key == key and self.value in (None, value))


@lru_cache(4096)
def parse(text: str) -> Toleration:
    """Read one toleration. Raises TolerationError."""
    name, colon, effect = text.strip().rpartition(":")
    if not colon:
        name, effect = effect, ""
    key, equals, value = name.partition("=")
    if not key and (equals or not colon):
        raise TolerationError(f'{_EXPECTED}, found "{text[:80]}"')
    return checked(Toleration(key, value if equals else None, effect))


def checked(found: Toleration) -> Toleration:
    """The same. Raises TolerationError for a key, value or effect that Kubernetes would not take."""
    if found.key and (len(found.key) > KEY_CHARS_MAX or not _KEY.match(found.key)):
        raise TolerationError(f'expected a key such as "fairlead/spot", found "{found.key[:80]}"')
    if found.value is not None and (len(found.value) > VALUE_CHARS_MAX or not _VALUE.match(found.value)):
        raise TolerationError(
            f'expected a value of at most {VALUE_CHARS_MAX} of A-Z a-z 0-9 . _ -, found "{found.value[:80]}"'
        )
    if found.effect not in ("", *EFFECTS):
        raise TolerationError(f'expected an effect of {", ".join(EFFECTS)}, found "{found.effect[:80]}"')
    return found


def tolerated(tolerations: tuple[str, ...], key: str, value: str, effect: str) -> bool:
    """Return True if any of a request's tolerations covers this taint."""
    return any(parse(text).tolerates(key, value, effect) for text in tolerations)
