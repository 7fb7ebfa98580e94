"""Taints and tolerations, in Kubernetes' words. Pure text, without knowledge of nodes or jobs.

A taint is "key=value:Effect", or "key:Effect" without a value. NoSchedule and NoExecute keep work without a
toleration away, NoExecute also evicts running work, PreferNoSchedule makes a node the last choice only. A
toleration has the same shape, and any part that it leaves out matches anything: "key=value:Effect",
"key:Effect" (any value), "key" (any value and effect), ":Effect", and "" for all taints.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "PreferNoSchedule", "NoExecute"
EFFECTS = (NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE)
#: Of one node, by one setter.
TAINTS_MAX = 32

_KEY = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,251}[A-Za-z0-9])?")
_VALUE = re.compile(r"[A-Za-z0-9._-]{0,63}")


class BadTaint(ValueError):
    """The text is no taint; the message says what was expected and found."""


class Taint(NamedTuple):
    """Taint, or with empty parts a pattern that matches several."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


def parsed(text: str) -> Taint:
    """A taint as written by a person or agent. Raises BadTaint."""
    taint = pattern(text)
    if not _KEY.fullmatch(taint.key) or not _VALUE.fullmatch(taint.value) or taint.effect not in EFFECTS:
        raise BadTaint(f'expected key=value:Effect with one of the effects {", ".join(EFFECTS)}, found "{text[:80]}"')
    return taint


def pattern(text: str) -> Taint:
    """A toleration, or what names taints to be removed: parts that are left out are empty."""
    head, _, effect = text.partition(":")
    key, _, value = head.partition("=")
    return Taint(key, value, effect)


def matches(wanted: Taint, taint: Taint) -> bool:
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
    patterns = [pattern(text) for text in tolerations]
    for text in taints:
        taint = pattern(text)
        if taint.effect in effects:
            yield not any(matches(wanted, taint) for wanted in patterns)
