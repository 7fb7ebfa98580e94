"""Filters and attribute paths of RFC 7644, sections 3.4.2.2 and 3.5.2, read into functions over resources. Pure.

Start at `parse_filter` and `parse_path`. Both raise ScimError (400) for what cannot be read, and for unknown attributes.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from fairlead_gateway.directories.scim_errors import ScimError
from fairlead_gateway.directories.scim_schema import ENTERPRISE, NOT_KEPT, Attribute, Resource, ResourceShape

CHARS_MAX = 2_000
DEPTH_MAX = 10

type Test = Callable[[Resource], bool]

_TOKEN = re.compile(r'\s*(?:([()\[\]])|("(?:[^"\\]|\\.)*")|([^\s()\[\]"]+))')
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda found, value: found == value,
    "co": lambda found, value: value in found,
    "sw": lambda found, value: found.startswith(value),
    "ew": lambda found, value: found.endswith(value),
    "gt": lambda found, value: found > value,
    "ge": lambda found, value: found >= value,
    "lt": lambda found, value: found < value,
    "le": lambda found, value: found <= value,
}


class Filter(NamedTuple):
    """Filter. `equals`: (name of the attribute, value) where it is one comparison with `eq`, which may be looked up."""

    test: Test
    equals: tuple[str, Any] | None = None


class Place(NamedTuple):
    """Target of a change: an attribute, the values of it that a filter selects, and a sub-attribute of them."""

    attribute: Attribute
    chosen: Filter | None = None
    sub: Attribute | None = None


def parse_filter(text: str, shape: ResourceShape) -> Filter:
    """Return the filter of a query."""
    reader = _Reader(text, "invalidFilter", lambda name: _find(name, shape))
    found = reader.either(0)
    reader.finish()
    return found


def parse_path(text: str, shape: ResourceShape) -> Place | None:
    """Return the place that a path names; None for an attribute that SCIM has and that is not kept."""
    head, bracket, rest = text.partition("[")
    found = _find(head.strip(), shape)
    if found is None:
        if _is_not_kept(head.strip()):
            return None
        raise ScimError(400, "invalidPath", f"there is no attribute {head[:80]!r}")
    attribute, sub = found
    if not bracket:
        return Place(attribute, None, sub)
    inner, closed, after = rest.rpartition("]")
    if not closed or sub is not None or not attribute.is_many or not attribute.subs:
        raise ScimError(400, "invalidPath", f"expected ATTRIBUTE[FILTER].SUB, found {text[:80]!r}")
    reader = _Reader(inner, "invalidFilter", lambda name: _sub(attribute, name))
    chosen = reader.either(0)
    reader.finish()
    if after:
        sub = attribute.sub(after.removeprefix("."))
        if sub is None and after.removeprefix(".").lower() in NOT_KEPT:
            return None
        if sub is None or not after.startswith("."):
            raise ScimError(400, "invalidPath", f"there is no sub-attribute {after[:80]!r} of {attribute.name}")
    return Place(attribute, chosen, sub)


type _Found = tuple[Attribute, Attribute | None]


def _find(name: str, shape: ResourceShape) -> _Found | None:
    prefix = shape.schema.lower() + ":"
    if name.lower().startswith(prefix):
        name = name[len(prefix) :]
    first, dot, second = name.partition(".")
    attribute = shape.attribute(first)
    if attribute is None or not dot:
        return None if attribute is None else (attribute, None)
    sub = attribute.sub(second)
    return None if sub is None else (attribute, sub)


def _sub(attribute: Attribute, name: str) -> _Found | None:
    sub = attribute.sub(name)
    return None if sub is None else (sub, None)


def _is_not_kept(name: str) -> bool:
    return name.lower().startswith(ENTERPRISE) or any(part in NOT_KEPT for part in name.lower().split("."))


class _Reader:
    """Recursive descent over the tokens of one filter."""

    def __init__(self, text: str, code: Any, find: Callable[[str], _Found | None]) -> None:
        self._code = code
        self._find = find
        if len(text) > CHARS_MAX:
            raise self._bad(f"expected at most {CHARS_MAX} characters")
        self._tokens = list(self._split(text))
        self._at = 0

    def _bad(self, detail: str) -> ScimError:
        return ScimError(400, self._code, detail)

    def _split(self, text: str) -> Iterator[str]:
        at = 0
        text = text.rstrip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise self._bad(f"cannot be read at character {at + 1}")
            at = found.end()
            yield found[1] or found[2] or found[3]

    def _next(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1] if self._at <= len(self._tokens) else ""

    def _take(self, *words: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at].lower() in words:
            self._at += 1
            return True
        return False

    def finish(self) -> None:
        """Raise ScimError unless all was read."""
        if self._at < len(self._tokens):
            raise self._bad(f"expected and, or, or the end, found {self._tokens[self._at][:40]!r}")

    def either(self, depth: int) -> Filter:
        """Read alternatives."""
        if depth > DEPTH_MAX:
            raise self._bad(f"expected at most {DEPTH_MAX} levels of brackets")
        found = [self._both(depth)]
        while self._take("or"):
            found.append(self._both(depth))
        return found[0] if len(found) == 1 else Filter(lambda one: any(each.test(one) for each in found))

    def _both(self, depth: int) -> Filter:
        found = [self._single(depth)]
        while self._take("and"):
            found.append(self._single(depth))
        return found[0] if len(found) == 1 else Filter(lambda one: all(each.test(one) for each in found))

    def _single(self, depth: int) -> Filter:
        negated = self._take("not")
        if self._take("("):
            inner = self.either(depth + 1)
            self._expect(")")
            return Filter(lambda one: not inner.test(one)) if negated else inner
        if negated:
            raise self._bad("expected ( after not")
        return self._comparison(depth)

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise self._bad(f"expected {word}")

    def _comparison(self, depth: int) -> Filter:
        name = self._next()
        found = self._find(name)
        if found is None:
            raise self._bad(f"there is no attribute {name[:80]!r}")
        attribute, sub = found
        if self._take("["):
            outer, self._find = self._find, lambda inner: _sub(attribute, inner)
            inner = self.either(depth + 1)
            self._find = outer
            self._expect("]")
            return Filter(lambda one: any(inner.test(each) for each in values_of(one, attribute, None)))
        if sub is None and attribute.subs:
            sub = attribute.sub("value")
        operator = self._next().lower()
        if operator == "pr":
            return Filter(lambda one: any(each not in ("", None) for each in values_of(one, attribute, sub)))
        return self._compare(operator, attribute, sub)

    def _compare(self, operator: str, attribute: Attribute, sub: Attribute | None) -> Filter:
        leaf, value = sub or attribute, self._value()
        compare = _COMPARE.get("eq" if operator == "ne" else operator)
        if compare is None:
            raise self._bad(f"expected an operator such as eq, found {operator[:40]!r}")
        if isinstance(value, bool) != (leaf.kind == "boolean") or not isinstance(value, bool | str):
            raise self._bad(f"{leaf.name}: cannot be compared with {str(value)[:40]!r}")
        if leaf.kind == "boolean" and operator not in ("eq", "ne"):
            raise self._bad(f"{leaf.name}: expected eq or ne")
        exact = leaf.case_exact or leaf.kind in ("boolean", "dateTime")
        wanted = value if exact else str(value).lower()

        def test(one: Resource) -> bool:
            found = values_of(one, attribute, sub)
            hit = any(compare(each if exact else str(each).lower(), wanted) for each in found)
            return hit != (operator == "ne")

        return Filter(
            test, (leaf.name if sub is None else f"{attribute.name}.{leaf.name}", value) if operator == "eq" else None
        )

    def _value(self) -> Any:
        text = self._next()
        try:
            return msgspec.json.decode(text if text.startswith('"') else text.lower())
        except msgspec.MsgspecError:
            raise self._bad(f'expected a value such as "ada" or true, found {text[:40]!r}') from None


def values_of(one: Resource, attribute: Attribute, sub: Attribute | None) -> list[Any]:
    """Return the values of an attribute, or of a sub-attribute of each of them, that a resource has."""
    found = one.get(attribute.name)
    values: list[Any] = [] if found is None else found if isinstance(found, list) else [found]
    if sub is None:
        return values
    return [each[sub.name] for each in values if isinstance(each, dict) and sub.name in each]
