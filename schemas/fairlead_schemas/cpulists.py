"""CPU lists as Linux writes them ("0-19,40-59"), and back."""

import re

#: CPUs are numbered below this (Linux is built for at most 8192 on x86).
CPUS_MAX = 8192
_PIECE = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?\Z", re.ASCII)


def parse_cpus(text: str) -> tuple[int, ...]:
    """The CPUs in the order in which the list names them; "" is none.

    Raises ValueError when the text is no list, or names a CPU twice or one beyond `CPUS_MAX`.
    """
    found: dict[int, None] = {}
    for piece in text.split(",") if text else ():
        match = _PIECE.match(piece.strip())
        if match is None:
            raise ValueError(f'expected CPUs such as "0-19,40-59", found "{text[:100]}"')
        first = int(match[1])
        last = int(match[2] or match[1])
        if not first <= last < CPUS_MAX:
            raise ValueError(f'expected rising CPU numbers below {CPUS_MAX}, found "{match[0]}"')
        for cpu in range(first, last + 1):
            if cpu in found:
                raise ValueError(f'CPU {cpu} is named twice in "{text[:100]}"')
            found[cpu] = None
    return tuple(found)


def format_cpus(cpus: tuple[int, ...]) -> str:
    """The shortest list of these CPUs in rising order: (1, 0, 2, 9) is "0-2,9"."""
    return list_cpus(tuple(sorted(cpus)))


def list_cpus(cpus: tuple[int, ...]) -> str:
    """The list of these CPUs in this order: (0, 40, 1, 41, 42) is "0,40,1,41-42"."""
    pieces: list[str] = []
    start = 0
    for end, cpu in enumerate(cpus):
        if end + 1 == len(cpus) or cpus[end + 1] != cpu + 1:
            pieces.append(str(cpu) if start == end else f"{cpus[start]}-{cpu}")
            start = end + 1
    return ",".join(pieces)
