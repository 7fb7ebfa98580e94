"""Passwords of local users: Argon2id with the low-memory profile of RFC 9106, one hash at a time in a thread of low priority.

A hash takes a core for 0.2 s and 64 MiB, so attempts are bounded by name and by address before anything is hashed, and few wait for
their turn. An unknown name is checked against a hash of nothing, so its answer takes as long as that of a wrong password.
The library is imported with the first password: it takes as much memory as the gateway's own modules.

All gateways of a cluster count attempts together, in the bucket CREDENTIAL. Each also counts its own, and looks there only for an attempt
that it has room for itself: a flood costs the bus no more than the attempts that are let through.
"""

import asyncio
import contextlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Protocol

from fairlead_gateway.errors import HttpError, bad_field

#: RFC 9106 section 4, the second recommended option: 3 passes over 64 MiB in 4 lanes.
ITERATIONS, LANES, MEMORY_KIB = 3, 4, 64 * 1024
SALT_BYTES, HASH_BYTES = 16, 32
PASSWORD_CHARS_MIN, PASSWORD_BYTES_MAX = 10, 1024
#: Attempts a minute, per name and per address.
ATTEMPTS_PER_MINUTE = 5
#: Added to the niceness of the thread that hashes: requests go first, and a full machine still lets a person sign in within seconds.
NICENESS = 10
#: Hashes that wait for their turn, which is up to 2 s.
WAITING_MAX = 8
#: Keys that are remembered; of more the ones that were quiet for longest are forgotten.
KEYS_MAX = 10_000


#: Bits of a network of IPv6 that belongs to one client: providers give each customer that many or more addresses.
NETWORK_BITS = 64
_NETWORKS_MAX = 4096


@lru_cache(_NETWORKS_MAX)
def client_network(address: str) -> str:
    """Return the network of an address under which attempts are counted: an IPv4 address itself, the network of an IPv6 address. One
    client has 2**64 addresses of the latter, and a bound of each would bound nothing. Other texts are returned as they are.
    """
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ip_network((int(found), NETWORK_BITS), strict=False))


class Attempts:
    """Bound on attempts by key: so many at once, and as many a minute. Counts that drain evenly. Times are seconds of any one clock."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        #: {key: (attempts, as of a time)}, the quietest first.
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, now_s: float, *keys: str) -> int:
        """Count an attempt under each key and return 0; if one key has no room, count nothing and return the seconds until it has."""
        levels = {key: self._level(key, now_s) for key in keys}
        fullest = max(levels.values())
        if fullest > self._per_minute - 1:
            return int((fullest - self._per_minute + 1) * 60 / self._per_minute) + 1
        for key, level in levels.items():
            self._levels.pop(key, None)
            self._levels[key] = level + 1, now_s
        while len(self._levels) > KEYS_MAX:
            self._levels.popitem(last=False)
        return 0

    def _level(self, key: str, now_s: float) -> float:
        count, then_s = self._levels.get(key, (0.0, now_s))
        return max(0.0, count - (now_s - then_s) * self._per_minute / 60)


def hashed(password: str) -> str:
    """Return the PHC text of a password's hash. Takes 0.2 s of CPU."""
    from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

    kdf = Argon2id(
        salt=os.urandom(SALT_BYTES), length=HASH_BYTES, iterations=ITERATIONS, lanes=LANES, memory_cost=MEMORY_KIB
    )
    return kdf.derive_phc_encoded(password.encode())


def matches(password: str, phc: str) -> bool:
    """Return True if a password has this hash. Takes 0.2 s of CPU."""
    from cryptography.exceptions import InvalidKey
    from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

    try:
        Argon2id.verify_phc_encoded(password.encode(), phc)
    except (InvalidKey, ValueError):
        return False
    return True


def _give_way() -> None:
    """Lower the priority of this thread alone; Linux has one for each."""
    thread = threading.get_native_id()
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICENESS)


class SharedAttempts(Protocol):
    """Counts of attempts of all gateways."""

    async def attempt(self, name: str, per_minute: int) -> int:
        """Count an attempt and return 0; if there is no room, count nothing and return the seconds until there is. Raises Unavailable."""
        ...


class Passwords:
    """The one place where passwords are hashed."""

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        hash_password: Callable[[str], str] = hashed,
        verify: Callable[[str, str], bool] = matches,
        shared: SharedAttempts | None = None,
    ) -> None:
        """`shared`: counts of all gateways; None: this one is alone."""
        self._monotonic = monotonic
        self._hash = hash_password
        self._verify = verify
        self._attempts = Attempts(ATTEMPTS_PER_MINUTE)
        self._shared = shared
        #: Its one thread starts with the first password.
        self._hashing = ThreadPoolExecutor(1, "passwords", _give_way)
        self._waiting = 0
        self._nothing = ""

    async def require_room(self, name: str, address: str) -> None:
        """Count an attempt. Raise HttpError (429) where the name or the address has made too many, or where too many wait for a hash;
        Unavailable.
        """
        self._require_turn()
        # The address first: one that has no room left does not use up that of a name, which would keep its owner out.
        keys = f"address {client_network(address)}", f"name {name}"
        wait_s = self._attempts.take(self._monotonic(), *keys)
        if not wait_s and self._shared is not None:
            for key in keys:
                if wait_s := await self._shared.attempt(key, ATTEMPTS_PER_MINUTE):
                    break
        if wait_s:
            detail = f"over {ATTEMPTS_PER_MINUTE} sign-ins within a minute, of this name or from this address"
            raise HttpError(429, "too_many_sign_ins", detail, retry_after_s=wait_s)

    async def check(self, password: str, phc: str) -> bool:
        """Return True if the password has the hash; `phc` "": of an unknown name, which takes as long. Raise HttpError (429) where
        too many wait.
        """
        if not phc and not self._nothing:
            self._nothing = await self._run(self._hash, os.urandom(SALT_BYTES).hex())
        return await self._run(self._verify, password, phc or self._nothing) and bool(phc)

    async def hash(self, password: str) -> str:
        """Return the PHC text of a new password. Raise HttpError: 422 for one that is too short or long, 429 as `check`."""
        if len(password) < PASSWORD_CHARS_MIN or len(password.encode()) > PASSWORD_BYTES_MAX:
            message = f"expected {PASSWORD_CHARS_MIN} characters or more, and at most {PASSWORD_BYTES_MAX} bytes"
            raise bad_field("password", message)
        return await self._run(self._hash, password)

    async def _run[*A, T](self, work: Callable[[*A], T], *arguments: *A) -> T:
        self._require_turn()
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._hashing, work, *arguments)
        finally:
            self._waiting -= 1

    def _require_turn(self) -> None:
        if self._waiting >= WAITING_MAX:
            raise HttpError(429, "busy", "too many sign-ins wait for their turn", retry_after_s=2)
