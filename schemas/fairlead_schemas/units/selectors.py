"""Requirements of a job on a node's labels: Kubernetes' label selectors, and versions.

One requirement is one text, so that it can be counted, compared and shown as it was written:

    key=value   key!=value   key in (a,b)   key notin (a,b)   key   !key     as Kubernetes reads them
    key~word   key~a|b        the value has the word (one of them) between dashes, whatever the case: "A100" is in
                              NVIDIA-A100-SXM4-80GB
    key>=550.54   key<13      versions, number by number; a value without a number does not suit
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

KEY_CHARS_MAX = 253
VALUE_CHARS_MAX = 200
WORDS_MAX = 32
#: Values of one set: also the names of as many nodes.
VALUES_MAX = 256
#: Label of every node with its name; no node can set it to another.
NODE_LABEL = "fairlead/node"

KEY_PATTERN = r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?"
_SET = re.compile(rf"({KEY_PATTERN})\s+(in|notin)\s+\(([^()]*)\)\Z", re.ASCII)
_PAIR = re.compile(rf"({KEY_PATTERN})\s*(!=|==|>=|<=|=|>|<|~)\s*(.*)\Z", re.ASCII | re.DOTALL)
_BARE = re.compile(rf"(!?)\s*({KEY_PATTERN})\Z", re.ASCII)
_NUMBERS = re.compile(r"\d+(?:\.\d+)*", re.ASCII)
_WORDS = re.compile(r"[^A-Za-z0-9.]+", re.ASCII)


class SelectorError(ValueError):
    """A requirement that cannot be read; the message says what was expected and what was found."""


class Requirement(NamedTuple):
    """Requirement in parsed form."""

    key: str
    operator: str  # = != in notin exists absent ~ >= <= > <
    values: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Text of the requirement, as in a request."""
        match self.operator:
            case "exists":
                return self.key
            case "absent":
                return f"!{self.key}"
            case "in" | "notin":
                return f"{self.key} {self.operator} ({','.join(self.values)})"
            case "~":
                return f"{self.key}~{'|'.join(self.values)}"
            case _:
                return f"{self.key}{self.operator}{self.values[0]}"

    def suits(self, labels: dict[str, str]) -> bool:
        """Return True if the labels satisfy the requirement. As in Kubernetes, a missing label satisfies a requirement
        that forbids a value.
        """
        value = labels.get(self.key)
        match self.operator:
            case "=" | "in":
                return value in self.values
            case "!=" | "notin":
                return value not in self.values
            case "exists":
                return value is not None
            case "absent":
                return value is None
            case "~":
                return value is not None and any(has_word(value, word) for word in self.values)
            case _:
                return value is not None and _compares(value, self.operator, self.values[0])


@lru_cache(4096)
def parse(text: str) -> Requirement:
    """Read one requirement. Raises SelectorError."""
    stripped = text.strip()
    if found := _SET.match(stripped):
        values = tuple(sorted({value.strip() for value in found[3].split(",")}))
        if not all(values) or len(values) > VALUES_MAX:
            raise SelectorError(f'expected 1 to {VALUES_MAX} values such as "key in (a,b)", found "{text[:80]}"')
        return _checked(Requirement(found[1], found[2], values), text)
    if found := _PAIR.match(stripped):
        values = (
            tuple(sorted({word.strip() for word in found[3].split("|")})) if found[2] == "~" else (found[3].strip(),)
        )
        return _checked(Requirement(found[1], "=" if found[2] == "==" else found[2], values), text)
    if found := _BARE.match(stripped):
        return _checked(Requirement(found[2], "absent" if found[1] else "exists"), text)
    raise SelectorError(
        f'expected a requirement such as "key=value", "key in (a,b)" or "key>=1.2", found "{text[:80]}"'
    )


def _checked(found: Requirement, text: str) -> Requirement:
    if len(found.key) > KEY_CHARS_MAX or any(len(value) > VALUE_CHARS_MAX for value in found.values):
        raise SelectorError(
            f"expected a key of at most {KEY_CHARS_MAX} and values of at most {VALUE_CHARS_MAX} characters"
        )
    if found.operator in (">", "<", ">=", "<=") and not version(found.values[0]):
        raise SelectorError(f'expected a version such as 550.54 after "{found.operator}", found "{text[:80]}"')
    if found.operator == "~" and (len(found.values) > WORDS_MAX or not all(map(_words, found.values))):
        raise SelectorError(
            f'expected 1 to {WORDS_MAX} words such as "A100" or "A100|H100" after "~", found "{text[:80]}"'
        )
    if not all(map(str.isprintable, found.values)):
        raise SelectorError(f"expected printable values, found {text[:80]!r}")
    return found


def equal(key: str, value: str) -> str:
    """The requirement that a label has this very value. Raises SelectorError where no text says so: a key that is none, a
    value with spaces around it."""
    text = f"{key}={value}"
    if parse(text) != (key, "=", (value,)):
        raise SelectorError(f'expected a label such as "fairlead/rack: r1", found "{key[:80]}: {value[:80]}"')
    return text


def with_name(labels: dict[str, str], node: str) -> dict[str, str]:
    """Return a node's labels with its name among them."""
    return {**labels, NODE_LABEL: node}


def named(names: Iterable[str], *, without: bool = False) -> list[str]:
    """Return the requirements that a node is one of these, or (`without`) none of them. Raises SelectorError for more names than one
    requirement holds.
    """
    wanted = sorted(set(names))
    if not without:
        return [parse(f"{NODE_LABEL} in ({','.join(wanted)})").text]
    parts = [wanted[at : at + VALUES_MAX] for at in range(0, len(wanted), VALUES_MAX)]
    return [parse(f"{NODE_LABEL} notin ({','.join(part)})").text for part in parts]


def contradictions(requirements: Iterable[str]) -> list[str]:
    """Return the nodes that one of the requirements names and another one excludes, sorted."""
    found = [parse(text) for text in requirements]
    named_, excluded = (
        {value for each in found if each.key == NODE_LABEL and each.operator in operators for value in each.values}
        for operators in (("in", "="), ("notin", "!="))
    )
    return sorted(named_ & excluded)


def key_of(text: str) -> str:
    """The label that a requirement is about; "" where it cannot be read."""
    try:
        return parse(text).key
    except SelectorError:
        return ""


def suits(labels: dict[str, str], selector: tuple[str, ...]) -> bool:
    """True when the labels meet every requirement. What cannot be read (it was checked at the door) is met by none."""
    for text in selector:
        key, _, value = text.partition("=")
        if labels.get(key) == value and value:  # the plain kind, by far the most frequent
            continue
        try:
            if not parse(text).suits(labels):
                return False
        except SelectorError:
            return False
    return True


def has_word(value: str, word: str) -> bool:
    """Return True when the words of `word` are adjacent in `value`, regardless of case: H100 in NVIDIA-H100-PCIe."""
    have, want = _words(value), _words(word)
    return any(have[at : at + len(want)] == want for at in range(len(have) - len(want) + 1)) if want else False


def _words(text: str) -> list[str]:
    return [word for word in _WORDS.split(text.upper()) if word]


def version(text: str) -> tuple[int, ...]:
    """The numbers that the text begins with: "550.54.15" is (550, 54, 15); () where there is none."""
    found = _NUMBERS.match(text.strip().removeprefix("v"))
    return tuple(map(int, found[0].split("."))) if found else ()


def _compares(value: str, operator: str, wanted: str) -> bool:
    have, want = version(value), version(wanted)
    if not have:
        return False
    length = max(len(have), len(want))
    have += (0,) * (length - len(have))
    want += (0,) * (length - len(want))
    return {">=": have >= want, "<=": have <= want, ">": have > want, "<": have < want}[operator]
