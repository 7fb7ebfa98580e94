"""Small builders of commits."""

from fairlead_schemas.wire.commit import GENESIS, commit_hash, encode_commit
from fairlead_schemas.wire.events import CommandRejected
from tests.kit.commits import commit_of


def commit(n: int, prev: bytes | None, *, writer: str = "queue", text: str = "", at_ns: int = 0) -> bytes:
    """Bytes of a writer's n-th commit behind its commit `prev` (None: the first); `at_ns`: n unless given."""
    event = CommandRejected(cause="clock", command=f"c{n}", code="x", message=text)
    return encode_commit(
        commit_of(
            [event], writer=writer, n=n, basis=0, at_ns=at_ns or n, prev=GENESIS if prev is None else commit_hash(prev)
        )
    )


def chain(length: int, *, writer: str = "queue") -> list[bytes]:
    """The first `length` commits of a writer."""
    made: list[bytes] = []
    for n in range(1, length + 1):
        made.append(commit(n, made[-1] if made else None, writer=writer))
    return made
