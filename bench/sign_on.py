"""Rows about sign-on: CPU for finding and judging the caller of a request, and memory of many tokens.

A request has the headers of a submit. Its token is one of 20,000, each of another person (of 100,000 tokens five are of one), and is in memory; what is measured is what
the gateway does more than without sign-on: read the token, find and check its caller, judge the right, and make the authority
of the command. `python -m bench.sign_on` measures the memory in a process of its own.
"""

import asyncio
import gc
import hashlib
import itertools
import subprocess
import sys
import time
import tracemalloc

from bench.table import Row
from fairlead_gateway.access.callers import Callers, CredentialRow
from fairlead_gateway.access.targets import submit_target
from fairlead_gateway.views.fold import Views
from fairlead_rights.access_list import Grant
from fairlead_rights.state import Token
from fairlead_schemas.policies.rights import parse_scope

TOKENS, REQUESTS, ROUNDS = 20_000, 200_000, 5
#: Tokens and people of the row about memory.
MANY, PEOPLE = 100_000, 20_000
QUEUES = 100


class _Table:
    """Credentials by their digests, as a bucket has them."""

    def __init__(self) -> None:
        self.rows: dict[str, CredentialRow] = {}

    async def find(self, digest: str) -> CredentialRow | None:
        return self.rows.get(digest)


def _secret(number: int) -> bytes:
    return b"flp_%030d%06d" % (number, number)


_HEAD = (
    (b"host", b"gateway.example.org"),
    (b"accept", b"*/*"),
    (b"accept-encoding", b"identity"),
    (b"content-type", b"application/json"),
    (b"content-length", b"64"),
)


def _headers(number: int) -> list[tuple[bytes, bytes]]:
    return [*_HEAD, (b"authorization", b"Bearer " + _secret(number))]


async def _known(count: int) -> tuple[Views, Callers]:
    """Views and callers with so many tokens, all of them in memory."""
    views, table = Views(), _Table()
    callers = Callers(views, table)
    expires_ns = time.time_ns() + 10**15
    principals = [f"p{number:012d}" for number in range(min(count, PEOPLE))]
    for number, principal in enumerate(principals):
        views.access.kinds[principal] = "person"
        views.access.access.admit(principal)
        scope = parse_scope(f"queue:research/q{number % QUEUES}")
        views.access.access.grant(Grant(principal, "member", scope), "person")
    for number in range(count):
        principal, token = principals[number % PEOPLE], f"t{number:012d}"
        views.access.add_token(Token(token, principal, "person", expires_ns, (), ()))
        digest = hashlib.sha256(_secret(number)).hexdigest()
        table.rows[digest] = CredentialRow("token", token, principal)
    for number in range(count):
        scope = {"headers": _headers(number), "method": "POST", "client": ("127.0.0.1", 1)}
        caller = await callers.of(scope)
        caller.may("job:submit", submit_target(views, f"research/q{number % QUEUES}", "", caller.user))
    table.rows.clear()
    return views, callers


def _cpu_us(views: Views, callers: Callers) -> float:
    """CPU of one request, over requests with all tokens in turn. A head is new memory, as a parser leaves it; making it does not count."""
    queues = [f"research/q{number % QUEUES}" for number in range(QUEUES)]
    began = time.process_time()
    for number in itertools.islice(itertools.cycle(range(TOKENS)), REQUESTS):
        head, queue = _headers(number), queues[number % QUEUES]
        caller = callers.cached(head)
        assert caller is not None
        assert caller.may("job:submit", submit_target(views, queue, "", caller.user))
        caller.authority()
    spent = time.process_time() - began
    began = time.process_time()
    for number in itertools.islice(itertools.cycle(range(TOKENS)), REQUESTS):
        _ = _headers(number), queues[number % QUEUES]
    return (spent - (time.process_time() - began)) / REQUESTS * 1e6


def _again_us(views: Views, callers: Callers) -> float:
    """CPU of one more request on a connection whose requests have one head: its caller is known, and is judged again."""
    caller = callers.cached(_headers(0))
    assert caller is not None
    began = time.process_time()
    for _ in range(REQUESTS):
        assert callers.renew(caller) and caller.may("job:submit", submit_target(views, "research/q0", "", caller.user))
        caller.authority()
    return (time.process_time() - began) / REQUESTS * 1e6


async def rows() -> list[Row]:
    """The two rows."""
    views, callers = await _known(TOKENS)
    gc.freeze()
    us = min(_cpu_us(views, callers) for _ in range(ROUNDS))
    again_us = min(_again_us(views, callers) for _ in range(ROUNDS))
    command = [sys.executable, "-m", __spec__.name]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=True, text=True)
    mib = float(done.stdout)
    return [
        Row(
            "sign-on per request, 20,000 tokens in memory",
            f"{us:.1f} µs of CPU; {again_us:.1f} µs on a connection that goes on",
            "≤ 3 µs",
            us <= 3,
            "without sign-on: no step of this",
        ),
        Row(
            "memory of 100,000 tokens of 20,000 people",
            f"{mib:.0f} MiB",
            "≤ 100 MB",
            mib * 2**20 <= 100e6,
            "state of access and remembered callers, without the rows of the bucket",
        ),
    ]


if __name__ == "__main__":
    tracemalloc.start()
    kept = asyncio.run(_known(MANY))
    gc.collect()
    sys.stdout.write(f"{tracemalloc.get_traced_memory()[0] / 2**20:.1f}")
