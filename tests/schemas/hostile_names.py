"""Names and paths that try to lead elsewhere, made from a seed: each is a different one, and none of them may be taken."""

import random
from collections.abc import Iterator

#: What a step out, a hidden end or a second meaning is made of.
_BAD = (
    "..",
    "../",
    "/..",
    "/",
    "//",
    "\\",
    "..\\",
    "\0",
    "\n",
    "\r",
    "\t",
    " ",
    ":",
    ",",
    "%2e%2e",
    "%00",
    "~",
    "$HOME",
    "*",
    "\u202e",
    "\uff0e\uff0e",
    "\u2215",
    ".",
    "./",
    "/./",
    "\x7f",
    "A",
    "é",
    "\ud800",
    "`id`",
    "${IFS}",
    "proc",
    "\u0000etc",
)
#: Of these, what no path may have even inside of a part.
_MEANT = ("\\", " ", ":", ",", "%2e%2e", "%00", "~", "$HOME", "*", "`id`", "${IFS}")
_PLAIN = (
    "a",
    "data",
    "etc",
    "passwd",
    "shadow",
    "run",
    "docker.sock",
    "x1",
    "hf-token",
    "root",
    "self",
    "fd",
    "7",
    "sys",
)
_CLOSED = (
    "/proc",
    "/sys",
    "/dev",
    "/etc/fairlead",
    "/run/nvidia-container-devices",
    "/var/run/nvidia-container-devices",
)


def names(seed: int, count: int) -> Iterator[str]:
    """So many names that are no tokens: each has a part that no name may have."""
    rng = random.Random(seed)
    seen: set[str] = {""}
    while len(seen) <= count:
        parts = [rng.choice(_PLAIN) for _ in range(rng.randrange(5))]
        for _ in range(1 + rng.randrange(3)):
            parts.insert(rng.randrange(len(parts) + 1), rng.choice([bad for bad in _BAD if bad != "proc"]))
        name = "".join(parts)
        if name not in seen:
            seen.add(name)
            yield name


def paths(seed: int, count: int) -> Iterator[str]:
    """So many paths at which nothing may be mounted: bent ones, relative ones, closed ones."""
    rng = random.Random(seed)
    seen: set[str] = set()
    while len(seen) < count:
        plain = [rng.choice(_PLAIN) + str(rng.randrange(100)) for _ in range(rng.randrange(1, 5))]
        match rng.randrange(4):
            case 0:  # one part bent
                plain.insert(rng.randrange(len(plain) + 1), rng.choice(["..", ".", ""]))
                path = "/" + "/".join(plain)
            case 1:  # a character that means something to somebody
                at = rng.randrange(len(plain))
                plain[at] += rng.choice(
                    [
                        bad
                        for bad in _BAD
                        if (bad.strip(".") and not bad.isascii()) or not bad.isprintable() or bad in _MEANT
                    ]
                )
                path = "/" + "/".join(plain)
            case 2:
                path = "/".join(plain)  # relative
            case _:
                path = rng.choice(_CLOSED) + "/" + "/".join(plain)
        if path not in seen:
            seen.add(path)
            yield path
