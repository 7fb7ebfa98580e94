"""Rules of people and the deliveries of each, in the bucket NOTIFY. Outside the log, so erasable with the person.

"rule.<id>" is written by the gateway and never changed; "delivery.<id>" by the notifier, at every step: the place in the log up to which
the destination has everything, and the reason why it has no more. All rules are kept in memory, which their numbers bound. Both
processes follow the bucket, and read it again after a lost connection. Start at `RuleStore.follow`.
"""

import asyncio
from collections.abc import Callable
from typing import Literal

import msgspec
import structlog

from fairlead_bus.bus_faults import retry_until_available
from fairlead_bus.port import Bus
from fairlead_gateway.notify.rules import Rule
from fairlead_schemas.wire import subjects

log = structlog.get_logger()

#: Rules of one owner, and of all.
RULES_OF_OWNER_MAX, RULES_MAX = 20, 2000
#: Rows that are read at once.
READS_MAX = 50

type DeliveryState = Literal["ok", "failing", "paused"]


class Delivery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of one rule's destination. Times are Unix ns; 0: never."""

    #: Everything up to this place of the log is delivered, or concerns the rule not.
    place: int
    #: failing: the last attempt failed, and another one follows; paused: none follows until a test succeeds.
    state: DeliveryState = "ok"
    failures: int = 0
    failing_since_ns: int = 0
    #: Why the last attempt failed.
    error: str = ""
    #: Messages delivered, and when the last one was.
    sent: int = 0
    sent_ns: int = 0


_encode = msgspec.json.Encoder(order="deterministic").encode
_rules = msgspec.json.Decoder(Rule)
_deliveries = msgspec.json.Decoder(Delivery)


class RuleStore:
    """Store over NOTIFY. `load` first. `sweeps`: erases deliveries without a rule, which the notifier, who may not, has written last."""

    def __init__(self, bus: Bus, *, sweeps: bool = False) -> None:
        self._bus = bus
        self._sweeps = sweeps
        #: {id: rule}, of everybody.
        self.rules: dict[str, Rule] = {}
        self.loaded = False
        #: Called after rules have come or gone.
        self.on_change: Callable[[], None] = lambda: None
        self._following = False
        self._reload = asyncio.Event()

    async def load(self) -> None:
        """Read all rules, and follow the changes of other processes from here on. Raises Unavailable."""
        if not self._following:
            await self._bus.on_put(subjects.NOTIFY, "rule.*", self._changed)
            self._bus.on_reconnect(self._reload.set)
            self._following = True
        await self._read_all()

    async def follow(self) -> None:
        """Load the rules, and read them again after each lost connection, without end."""
        await retry_until_available(self.load)
        while True:
            await self._reload.wait()
            self._reload.clear()
            await retry_until_available(self._read_all)

    async def _read_all(self) -> None:
        found: dict[str, Rule] = {}
        keys = await self._bus.keys(subjects.NOTIFY, "rule")
        for start in range(0, len(keys), READS_MAX):
            step = keys[start : start + READS_MAX]
            for entry in await asyncio.gather(*(self._bus.get(subjects.NOTIFY, key) for key in step)):
                if entry is not None and (rule := _read_rule(entry.value)) is not None:
                    found[rule.id] = rule
        self.loaded = True
        if self._sweeps:
            for key in await self._bus.keys(subjects.NOTIFY, "delivery"):
                if key.partition(".")[2] not in found:
                    await self._bus.delete(subjects.NOTIFY, key)
        if found != self.rules:
            self.rules = found
            self.on_change()

    def _changed(self, key: str, value: bytes) -> None:
        rule = _read_rule(value)
        if rule is None:
            self.rules.pop(key.partition(".")[2], None)
        else:
            self.rules[rule.id] = rule
        self.on_change()

    def of(self, owner: str) -> list[Rule]:
        """Return the rules of one owner, in the order in which they were made."""
        return sorted((rule for rule in self.rules.values() if rule.owner == owner), key=lambda rule: rule.made_ns)

    async def add(self, rule: Rule) -> None:
        """Store a new rule. Raises Unavailable."""
        await self._bus.put(subjects.NOTIFY, f"rule.{rule.id}", _encode(rule), expected=0)
        self._changed(f"rule.{rule.id}", _encode(rule))

    async def remove(self, rule_id: str) -> None:
        """Erase a rule with its address and secret; none is fine. Raises Unavailable.

        The key is written once more after it is shredded, which drops it from the memory of other processes.
        """
        key = f"rule.{rule_id}"
        await self._bus.shred(subjects.NOTIFY, key)
        await self._bus.put(subjects.NOTIFY, key, b"{}")
        await self._bus.delete(subjects.NOTIFY, key)
        await self._bus.delete(subjects.NOTIFY, f"delivery.{rule_id}")
        self._changed(key, b"{}")

    async def forget(self, owner: str) -> None:
        """Erase all rules of an owner. Can be repeated after a crash. Raises Unavailable."""
        await self._read_all()
        for rule in self.of(owner):
            await self.remove(rule.id)

    async def delivery(self, rule_id: str) -> Delivery | None:
        """Return the state of a rule's destination; None before the first step. Raises Unavailable."""
        entry = await self._bus.get(subjects.NOTIFY, f"delivery.{rule_id}")
        try:
            return None if entry is None else _deliveries.decode(entry.value)
        except msgspec.MsgspecError as error:
            log.warning("delivery not understood", rule=rule_id, reason=str(error))
            return None

    async def note(self, rule_id: str, delivery: Delivery) -> None:
        """Store the state of a rule's destination. Raises Unavailable."""
        await self._bus.put(subjects.NOTIFY, f"delivery.{rule_id}", _encode(delivery))


def _read_rule(value: bytes) -> Rule | None:
    """Return a stored rule; None for one that is erased or not understood."""
    if value in (b"{}", b""):
        return None
    try:
        return _rules.decode(value)
    except msgspec.MsgspecError as error:
        log.warning("rule not understood", reason=str(error))
        return None
