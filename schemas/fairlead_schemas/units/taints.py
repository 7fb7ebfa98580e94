"""Taints and tolerations, in Kubernetes' words; and the tolerations of jobs, each as one text. Pure text, without
knowledge of nodes or jobs.

A taint is "key=value:Effect", or "key:Effect" without a value. NoSchedule and NoExecute keep work without a
toleration away, NoExecute also evicts running work, PreferNoSchedule makes a node the last choice only. A
toleration has the same shape, and any part that it leaves out matches anything: "key=value:Effect",
"key:Effect" (any value), "key" (any value and effect), ":Effect", and "" for all taints.

key=value:Effect    that taint          key=value    the same, whatever the effect
key:Effect          any value of it     key          the same, whatever the effect
:Effect             every taint of the effect         :      every taint

Labels and taints of a node's admin, as Kubernetes writes them: labels "key=value"; taints "key=value:Effect",
and "key:Effect" for one without a value.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from fairlead_schemas.units.selectors import KEY_CHARS_MAX, KEY_PATTERN

NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "PreferNoSchedule", "NoExecute"
EFFECTS = (NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE)
#: Of one node, by one setter.
TAINTS_MAX = 32

_KEY = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,251}[A-Za-z0-9])?")
_VALUE = re.compile(r"[A-Za-z0-9._-]{0,63}")


class TaintError(ValueError):
    """The text is no taint; the message says what was expected and found."""


class TaintPattern(NamedTuple):
    """Taint, or with empty parts a pattern that matches several."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


def parse_full_taint(text: str) -> TaintPattern:
    """A taint as written by a person or agent. Raises BadTaint."""
    taint = parse_pattern(text)
    if not _KEY.fullmatch(taint.key) or not _VALUE.fullmatch(taint.value) or taint.effect not in EFFECTS:
        raise TaintError(f'expected key=value:Effect with one of the effects {", ".join(EFFECTS)}, found "{text[:80]}"')
    return taint


def parse_pattern(text: str) -> TaintPattern:
    """A toleration, or what names taints to be removed: parts that are left out are empty."""
    head, _, effect = text.partition(":")
    key, _, value = head.partition("=")
    return TaintPattern(key, value, effect)


def matches(wanted: TaintPattern, taint: TaintPattern) -> bool:
    """True when every part that the pattern names is the taint's own."""
    return all(not want or want == have for want, have in zip(wanted, taint, strict=True))


def tolerates(taints: tuple[str, ...], tolerations: tuple[str, ...]) -> bool:
    """True when nothing among the taints keeps such work from starting there."""
    return not taints or not any(_untolerated(taints, tolerations, (NO_SCHEDULE, NO_EXECUTE)))


def evicts(taints: Iterable[str], tolerations: tuple[str, ...]) -> bool:
    """True when such work may not even stay."""
    return any(_untolerated(taints, tolerations, (NO_EXECUTE,)))


def is_last_choice(taints: tuple[str, ...], tolerations: tuple[str, ...]) -> bool:
    """True when such work goes there only if it fits nowhere else."""
    return bool(taints) and any(_untolerated(taints, tolerations, (PREFER_NO_SCHEDULE,)))


def _untolerated(taints: Iterable[str], tolerations: tuple[str, ...], effects: tuple[str, ...]) -> Iterable[bool]:
    patterns = [parse_pattern(text) for text in tolerations]
    for text in taints:
        taint = parse_pattern(text)
        if taint.effect in effects:
            yield not any(matches(wanted, taint) for wanted in patterns)


EFFECT_NAMES = ("NoSchedule", "PreferNoSchedule", "NoExecute")
VALUE_CHARS_MAX = 63

_EXPECTED = 'expected a toleration such as "key=value:NoSchedule", "key:NoExecute", "key" or ":NoSchedule"'
_TOLERATION_KEY = re.compile(rf"{KEY_PATTERN}\Z", re.ASCII)
_TOLERATION_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?\Z", re.ASCII)


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
def parse_toleration(text: str) -> Toleration:
    """Read one toleration. Raises TolerationError."""
    name, colon, effect = text.strip().rpartition(":")
    if not colon:
        name, effect = effect, ""
    key, equals, value = name.partition("=")
    if not key and (equals or not colon):
        raise TolerationError(f'{_EXPECTED}, found "{text[:80]}"')
    return check_toleration(Toleration(key, value if equals else None, effect))


def check_toleration(found: Toleration) -> Toleration:
    """The same. Raises TolerationError for a key, value or effect that Kubernetes would not take."""
    if found.key and (len(found.key) > KEY_CHARS_MAX or not _TOLERATION_KEY.match(found.key)):
        raise TolerationError(f'expected a key such as "fairlead/spot", found "{found.key[:80]}"')
    if found.value is not None and (len(found.value) > VALUE_CHARS_MAX or not _TOLERATION_VALUE.match(found.value)):
        raise TolerationError(
            f'expected a value of at most {VALUE_CHARS_MAX} of A-Z a-z 0-9 . _ -, found "{found.value[:80]}"'
        )
    if found.effect not in ("", *EFFECT_NAMES):
        raise TolerationError(f'expected an effect of {", ".join(EFFECT_NAMES)}, found "{found.effect[:80]}"')
    return found


def tolerated(tolerations: tuple[str, ...], key: str, value: str, effect: str) -> bool:
    """Return True if any of a request's tolerations covers this taint."""
    return any(parse_toleration(text).tolerates(key, value, effect) for text in tolerations)


_LABEL_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = re.compile(rf"(?:[a-z0-9](?:[a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_LABEL_NAME}\Z", re.ASCII)
_LABEL_VALUE = re.compile(rf"(?:{_LABEL_NAME})?\Z", re.ASCII)


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
    if effect not in EFFECT_NAMES or not _LABEL_KEY.match(key) or not _LABEL_VALUE.match(value):
        raise NodeLabelError(
            f'expected a taint such as "key=value:NoSchedule" (or {", ".join(EFFECT_NAMES[1:])}), found "{text[:100]}"'
        )
    return Taint(key, value, effect)


def parse_label(text: str) -> tuple[str, str]:
    """(key, value) of "key=value", by Kubernetes' rules for labels. Raises NodeLabelError."""
    key, equals, value = text.partition("=")
    if not equals or not _LABEL_KEY.match(key) or not _LABEL_VALUE.match(value):
        raise NodeLabelError(f'expected a label such as "fairlead/rack=r1", found "{text[:100]}"')
    return key, value
