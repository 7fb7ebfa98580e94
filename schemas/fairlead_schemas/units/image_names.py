"""Names of container images: the reference grammar, and the registries that a node may be sent to. Pure.

The grammar is that of the distribution project (distribution/reference, `reference.go`), with its lengths:

    [registry[:port]/]path[:tag][@digest]

The gateway refuses other names at submit, and an agent checks again before a name reaches its engine: the engine takes
the name as part of a request path, so `../containers/x` would be another request.
"""

import ipaddress
import re
from typing import NamedTuple

#: Of registry and path together, as registries accept it.
NAME_CHARS_MAX = 255
#: Of a whole reference; longer texts are not looked at.
REFERENCE_CHARS_MAX = 600
FOUND_CHARS_MAX = 80
#: The registry of names without one.
DEFAULT_REGISTRY = "docker.io"
#: In a list of registries: every public one.
PUBLIC = "public"
#: Names below these are never public: RFC 6761, RFC 6762 and the zone that ICANN keeps for private use.
_PRIVATE_ZONES = ("localhost", "local", "internal")

_LABEL = r"(?:[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9-]*[A-Za-z0-9])"
_REGISTRY = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[A-Fa-f0-9:]+\])(?::[0-9]{{1,5}})?"
_COMPONENT = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_DIGEST = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,128}"
_REFERENCE = re.compile(
    rf"(?P<name>(?:{_REGISTRY}/)?{_COMPONENT}(?:/{_COMPONENT})*)(?::(?P<tag>\w[\w.-]{{0,127}}))?(?:@(?P<digest>{_DIGEST}))?",
    re.ASCII,
)
_IDENTIFIER = re.compile(r"[a-f0-9]{64}")


class ImageName(NamedTuple):
    """A name that follows the grammar. `registry`: HOST[:PORT], in lower case."""

    registry: str
    path: str
    tag: str = ""
    digest: str = ""


class ImageNameError(ValueError):
    """A text that is not the name of an image; the message states what was expected and found."""


def parse_image(text: str) -> ImageName:
    """Split a name. Raises BadImageName."""
    found = _REFERENCE.fullmatch(text) if len(text) <= REFERENCE_CHARS_MAX else None
    if found is None or len(found["name"]) > NAME_CHARS_MAX or _IDENTIFIER.fullmatch(text):
        expected = f"expected [registry[:port]/]path[:tag][@digest] in lower case, at most {NAME_CHARS_MAX} characters"
        raise ImageNameError(f"{expected}, found {text[:FOUND_CHARS_MAX]!r}")
    registry, path = _split(found["name"])
    return ImageName(registry, path, found["tag"] or "", found["digest"] or "")


def _split(name: str) -> tuple[str, str]:
    """(registry, path), as engines tell them apart: a first part with a dot or a port, or "localhost", is a registry."""
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost" or first != first.lower()):
        return first.lower(), rest
    return DEFAULT_REGISTRY, name


class Registries(NamedTuple):
    """The registries that images may come from.

    A name is resolved by the engine alone, so a public name that leads to a private address passes; a list without
    "public" closes that.
    """

    #: HOST or HOST:PORT; "*.example.com" covers every name below example.com.
    listed: frozenset[str] = frozenset()
    public: bool = True

    def fault(self, registry: str) -> str:
        """Return why no image may come from there; "" where it may."""
        host = registry.rpartition(":")[0] if re.search(r":[0-9]+\Z", registry) else registry
        names = {registry, host}
        labels = host.split(".")
        names |= {f"*.{'.'.join(labels[at:])}" for at in range(1, len(labels))}
        if names & self.listed or (self.public and _is_public(host)):
            return ""
        allowed = ", ".join([*([PUBLIC] if self.public else []), *sorted(self.listed)])
        return f"expected an image of an allowed registry (FAIRLEAD_REGISTRIES: {allowed}), found registry {registry}"


def _is_public(host: str) -> bool:
    """Return True for a public name or address. A last label of digits is an address to some resolvers ("127.1")."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_global
    except ValueError:
        labels = host.lower().split(".")
    return len(labels) > 1 and labels[-1] not in _PRIVATE_ZONES and not re.match(r"[0-9]|0x", labels[-1])


#: "*.example.com", "registry.example.com:5000", "10.0.0.5:5000", "[fd00::1]:5000".
_LISTED = re.compile(rf"(?:\*\.)?{_REGISTRY}", re.ASCII)


def parse_registries(text: str) -> Registries:
    """Read a list such as "public, 10.0.0.5:5000". Raises ValueError for an entry that is no registry."""
    words = {word.strip().lower() for word in text.split(",") if word.strip()}
    for word in sorted(words):
        if not _LISTED.fullmatch(word):
            raise ValueError(f'expected "{PUBLIC}", HOST[:PORT] or *.DOMAIN, separated by commas, found "{word}"')
    return Registries(frozenset(words - {PUBLIC}), PUBLIC in words) if words else Registries()
