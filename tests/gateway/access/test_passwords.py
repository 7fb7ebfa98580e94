"""Passwords of local users: hashes, and bounds before anything is hashed."""

import asyncio
import os
import threading

import pytest

from fairlead_bus.memory import MemoryHub
from fairlead_gateway.access.passwords import (
    ATTEMPTS_PER_MINUTE,
    KEYS_MAX,
    NICENESS,
    WAITING_MAX,
    Attempts,
    Passwords,
    hashed,
    matches,
)
from fairlead_gateway.errors import HttpError
from fairlead_gateway.signon.short_lived import ShortLived
from fairlead_schemas.wire import subjects


class Counting:
    """Hashes that are counted, and how many ran at once."""

    def __init__(self) -> None:
        self.checked: list[str] = []
        self.running = self.most = 0
        self.gate = threading.Event()
        self.gate.set()
        self.now_s = 0.0

    def passwords(self) -> Passwords:
        """With this clock and these hashes."""
        return Passwords(lambda: self.now_s, lambda password: f"${password}", self.verify)

    def verify(self, password: str, phc: str) -> bool:
        self.running += 1
        self.most = max(self.most, self.running)
        self.gate.wait(60)
        self.checked.append(phc)
        self.running -= 1
        return phc == f"${password}"


def test_a_hash_has_the_profile_of_rfc_9106_and_matches_its_password_alone() -> None:
    """Argon2id, version 19, 64 MiB, 3 passes, 4 lanes; salted, so that equal passwords have unlike hashes."""
    phc = hashed("correct horse")
    assert phc.startswith("$argon2id$v=19$m=65536,t=3,p=4$")
    assert matches("correct horse", phc)
    assert not matches("correct horsf", phc)
    assert not matches("correct horse", "") and not matches("correct horse", "$argon2id$nonsense")
    assert hashed("correct horse") != phc


async def test_an_unknown_name_is_hashed_like_a_known_one() -> None:
    """One hash is checked for either, so the time of an answer says nothing; and nothing matches an unknown name."""
    counting = Counting()
    passwords = counting.passwords()
    assert await passwords.check("right", "$right")
    assert not await passwords.check("right", "")
    assert [bool(phc) for phc in counting.checked] == [True, True]


async def test_one_hash_runs_at_a_time_and_few_wait() -> None:
    """Of a flood WAITING_MAX are checked one by one, and the others are refused at once with 429."""
    counting = Counting()
    passwords = counting.passwords()
    counting.gate.clear()
    waiting = [asyncio.create_task(passwords.check("x", "$x")) for _ in range(WAITING_MAX + 40)]
    refused, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.sleep(0)
    counting.gate.set()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert refused and counting.most == 1
    assert len(counting.checked) == WAITING_MAX
    assert sum(isinstance(answer, HttpError) and answer.status == 429 for answer in answers) == 40


async def test_attempts_are_bounded_by_name_and_by_address() -> None:
    """Five a minute of one name from any addresses, and of one address with any names; they come back evenly."""
    counting = Counting()
    passwords = counting.passwords()

    async def tries(name: str, address: str) -> bool:
        try:
            await passwords.require_room(name, address)
        except HttpError as refused:
            return not (refused.status == 429 and refused.retry_after_s > 0)
        return True

    assert [await tries("ann", f"192.0.2.{n}") for n in range(7)] == [True] * ATTEMPTS_PER_MINUTE + [False] * 2
    assert [await tries(f"bob{n}", "198.51.100.1") for n in range(7)] == [True] * ATTEMPTS_PER_MINUTE + [False] * 2
    assert not await tries("ann", "192.0.2.99")
    counting.now_s += 13
    assert await tries("ann", "192.0.2.99")
    assert not await tries("ann", "192.0.2.98")


async def test_gateways_count_attempts_together() -> None:
    """Of three gateways that are tried in turn, or at once, all let through as many as one does. A flood at one of them is refused without
    the bus, and counts that have drained are erased."""
    hub, counting = MemoryHub(), Counting()
    shared = [ShortLived(hub.connect(), lambda: counting.now_s) for _ in range(3)]
    gateways = [Passwords(lambda: counting.now_s, shared=each) for each in shared]

    async def tries(at: int, name: str, address: str) -> bool:
        try:
            await gateways[at % 3].require_room(name, address)
        except HttpError as refused:
            return not (refused.status == 429 and refused.retry_after_s > 0)
        return True

    in_turn = [await tries(n, "ann", f"192.0.2.{n}") for n in range(9)]
    assert in_turn == [True] * ATTEMPTS_PER_MINUTE + [False] * (9 - ATTEMPTS_PER_MINUTE)
    at_once = await asyncio.gather(*(tries(n, f"bob{n}", "198.51.100.1") for n in range(9)))
    assert sum(at_once) == ATTEMPTS_PER_MINUTE
    counting.now_s += 13
    assert [await tries(n, "ann", "203.0.113.1") for n in range(2)] == [True, False]
    revision = hub.revision
    assert not any([await tries(1, f"bob{n}", "198.51.100.9") for n in range(50)][ATTEMPTS_PER_MINUTE:])
    assert hub.revision == revision + 2 * ATTEMPTS_PER_MINUTE
    counting.now_s += 61
    await shared[0].erase_old()
    assert not await hub.connect().keys(subjects.CREDENTIAL, "attempts")


def test_a_flood_of_names_is_remembered_in_bounded_number() -> None:
    """The names that were quiet for longest are forgotten first."""
    attempts = Attempts(5)
    for number in range(KEYS_MAX + 100):
        assert attempts.take(0.0, f"name {number}") == 0
    assert len(attempts._levels) == KEYS_MAX


async def test_a_new_password_has_bounds() -> None:
    """Too short or too long: refused before it is hashed."""
    for password in ("short", "x" * 1025, "é" * 600):
        with pytest.raises(HttpError) as refused:
            await Passwords().hash(password)
        assert refused.value.status == 422


async def test_a_hash_gives_way_to_requests_alone() -> None:
    """The thread that hashes has a lower priority than the others of the process, and one hash waits for the other."""
    own, running, seen = os.getpriority(os.PRIO_PROCESS, 0), list[int](), list[tuple[int, int]]()

    def hash_password(_: str) -> str:
        running.append(1)
        seen.append((len(running), os.getpriority(os.PRIO_PROCESS, threading.get_native_id())))
        running.pop()
        return "$phc"

    passwords = Passwords(hash_password=hash_password)
    await asyncio.gather(*(passwords.hash("correct horse battery") for _ in range(3)))
    assert seen == [(1, min(own + NICENESS, 19))] * 3
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == own
