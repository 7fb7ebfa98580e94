"""The judgement behind `/readyz`, from what services and the server answered and when. Pure: times are arguments.

`Evidence` keeps the newest answers; `conditions` lists what is wrong, worst first. `probes.py` collects the answers.
"""

from typing import NamedTuple

from fairlead_schemas.wire.conditions import PRESENCE_LOST_S, Alive, Condition, ConditionCode, Scrubbed

#: Without an answer, or without a lease, for so long a service counts as silent. A restart takes less.
SILENT_S = 10.0
#: Time after which a service with a fold that is stuck behind the log's end counts as stalled.
STALLED_S = 30.0
#: Writers of the log without which no job is accepted or run.
WRITERS = ("queue", "placer")
#: Services without which the rest works.
OTHERS = ("access", "storage", "telemetry", "explainer")
#: Services that stamp commits. A clock that is this far from log time is worth a word.
CLOCKED = ("queue", "placer", "access", "storage", "telemetry")
CLOCK_LAG_MS = 5_000
_SILENT: dict[str, ConditionCode] = {
    "queue": "queue_silent",
    "placer": "placer_silent",
    "access": "access_silent",
    "storage": "storage_silent",
    "telemetry": "telemetry_silent",
    "explainer": "explainer_silent",
}
_STALLED: dict[str, ConditionCode] = {"queue": "queue_stalled", "placer": "placer_stalled"}


class LogStatus(NamedTuple):
    """The gateway's own view of the log."""

    bus: bool
    near_end: bool
    has_room: bool
    sequence: int
    log_end: int


class _Service:
    """Newest signs of one service. Times are None until the first one."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.answered: float | None = None
        self.leased: float | None = None
        self.alive = Alive(sequence=0)
        #: When its fold moved last, or was at the log's end.
        self.moved = since


class ReadinessEvidence:
    """Answers since `now`, the gateway's start: nothing counts as well before it has answered once."""

    def __init__(self, now: float) -> None:
        self._services = {name: _Service(now) for name in (*WRITERS, *OTHERS)}
        self._stored: float | None = None
        self._refusal = ""
        self._is_full = False

    # -- answers

    def answered(self, service: str, alive: Alive, now: float, log_end: int) -> None:
        """A service has answered, while the log ended at `log_end`."""
        seen = self._services[service]
        if alive.sequence != seen.alive.sequence or alive.sequence >= log_end:
            seen.moved = now
        seen.answered, seen.alive = now, alive

    def leased(self, service: str, now: float) -> None:
        """Record that the service's lease is held."""
        self._services[service].leased = now

    def stored(self, now: float) -> None:
        """The server has stored a command."""
        self._stored, self._refusal, self._is_full = now, "", False

    def not_stored(self, reason: str, *, is_full: bool = False) -> None:
        """The server has refused a command, or has not answered."""
        self._refusal, self._is_full = reason, is_full

    def stored_since(self, moment: float) -> bool:
        """True when a command was stored at this time or later."""
        return self._stored is not None and self._stored >= moment

    # -- judgement

    def conditions(self, facts: LogStatus, now: float) -> list[Condition]:
        """All that is wrong, worst first. With the server away nothing else can be known."""
        if not facts.bus:
            return [Condition(code="bus_away", message="nats-server does not answer")]
        found = [self._damage(), self._commands(), *(self._writer(name, now) for name in WRITERS)]
        if not facts.near_end:
            behind = f"the views are at sequence {facts.sequence} of {facts.log_end}"
            found.append(Condition(code="views_behind", message=behind))
        if not facts.has_room:
            found.append(
                Condition(code="log_full", message="the log is within its last twentieth; no new jobs are accepted")
            )
        found += [self._silence(name, now) for name in OTHERS]
        found += [self._clock(name, now) for name in CLOCKED]
        return [each for each in found if each is not None]

    def leaders(self, now: float) -> dict[str, Alive]:
        """Return {service: its newest sign of life} of those that have answered lately."""
        return {
            name: seen.alive
            for name, seen in self._services.items()
            if seen.answered is not None and now - seen.answered < PRESENCE_LOST_S
        }

    @property
    def scrub(self) -> Scrubbed | None:
        """The newest state of the scrub; None where none was received."""
        return self._services["explainer"].alive.scrub

    def _damage(self) -> Condition | None:
        scrub = self.scrub
        return Condition(code="log_damaged", message=scrub.reason) if scrub is not None and scrub.damaged else None

    def _commands(self) -> Condition | None:
        if self._refusal:
            return Condition(code="commands_full" if self._is_full else "commands_refused", message=self._refusal)
        if self._stored is None:
            return Condition(code="commands_refused", message="no command has been stored since the gateway's start")
        return None

    def _writer(self, name: str, now: float) -> Condition | None:
        silence = self._silence(name, now)
        if silence is not None:
            return silence
        seen = self._services[name]
        if _is_over(seen.leased, now):
            return Condition(code=_SILENT[name], message=f"{name} holds no lease{_for(seen.leased, now)}")
        if seen.alive.refused:
            return Condition(
                code=_STALLED[name], message=f"the server does not store {name}'s commit: {seen.alive.refused}"
            )
        if now - seen.moved > STALLED_S:
            stands = (
                f"{name} has been at sequence {seen.alive.sequence} for {now - seen.moved:.0f} s, while the log grows"
            )
            return Condition(code=_STALLED[name], message=stands)
        return None

    def _clock(self, name: str, now: float) -> Condition | None:
        seen = self._services[name]
        if _is_over(seen.answered, now):
            return None
        if seen.alive.clock:
            message = f"{name}: {seen.alive.clock} (compared with its machine's clock)"
            return Condition(code="clock_differs", message=message)
        lag_ms = seen.alive.clock_lag_ms
        if abs(lag_ms) <= CLOCK_LAG_MS:
            return None
        way = "ahead of" if lag_ms > 0 else "behind"
        message = f"{name}: its machine's clock is {abs(lag_ms) / 1000:.0f} s {way} log time, which creeps to it"
        return Condition(code="clock_stepped", message=message)

    def _silence(self, name: str, now: float) -> Condition | None:
        seen = self._services[name]
        if not _is_over(seen.answered, now):
            return None
        return Condition(code=_SILENT[name], message=f"{name} has not answered{_for(seen.answered, now)}")


def _is_over(last: float | None, now: float) -> bool:
    return last is None or now - last > SILENT_S


def _for(last: float | None, now: float) -> str:
    return " since the gateway's start" if last is None else f" for {now - last:.0f} s"
