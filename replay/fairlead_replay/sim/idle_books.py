"""Check of telemetry's events on runs, by the events alone: permitted order and times. Shares no code with the idle core."""

from collections.abc import Callable, Mapping

from fairlead_schemas.policies.idle import IdlePolicy
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import Commit

#: (job, attempt, since, after): what is wrong with calling it idle, by who knows the truth.
type Misjudged = Callable[[str, int, int, int], str]
#: {scope: all of its policies}
type Policies = Mapping[str, tuple[IdlePolicy, ...]]
type Key = tuple[str, int]


class Open:
    """A rule by which a run counts as idle."""

    def __init__(self, event: ev.JobIdle, policy: IdlePolicy, at_ns: int) -> None:
        self.event, self.policy, self.at_ns = event, policy, at_ns
        self.steps: list[str] = []
        self.until_ns = 0


class IdleBooks:
    """Books of runs, idle policies and the telemetry service's events."""

    def __init__(self, misjudged: Misjudged | None = None, wanted: Mapping[str, Policies] | None = None) -> None:
        """`wanted`: {cause of its events: what a command sets}, of every command that sets policies."""
        self.misjudged = misjudged
        self.wanted = wanted
        self.policies: dict[str, dict[str, IdlePolicy]] = {}
        #: Log sequences of each run's start and end.
        self.started: dict[Key, int] = {}
        self.ended: dict[Key, int] = {}
        self.open: dict[tuple[Key, str], Open] = {}
        #: {run: (until, count)}
        self.extended: dict[Key, tuple[int, int]] = {}
        #: {type: how many}
        self.counts: dict[str, int] = {}

    def take(self, sequence: int, commit: Commit) -> str:
        """Book a commit; returns what is wrong with it, "" if nothing is."""
        for event in commit.events:
            wrong = self._take(event, sequence, commit)
            if wrong:
                return f"{type(event).__name__}: {wrong}"
            if commit.writer == "telemetry":
                name = type(event).__name__
                self.counts[name] = self.counts.get(name, 0) + 1
        return self._in_part(commit) if self.wanted is not None else ""

    def _in_part(self, commit: Commit) -> str:
        """Return an error if the commit carries out a policy command only in part, "" otherwise."""
        applied: dict[str, dict[str, tuple[IdlePolicy, ...]]] = {}
        for event in commit.events:
            if isinstance(event, ev.IdlePoliciesSet):
                applied.setdefault(event.cause, {})[event.scope] = event.policies
        for cause, policies in applied.items():
            wanted = (self.wanted or {}).get(cause, {})
            if policies != wanted:
                return f"IdlePoliciesSet: {cause} sets {sorted(wanted)}, and was carried out for {sorted(policies)}"
        return ""

    def _take(self, event: ev.Event, sequence: int, commit: Commit) -> str:
        match event:
            case ev.RunStarted():
                self.started[event.job, event.attempt] = sequence
            case ev.RunEnded():
                self.ended[event.job, event.attempt] = sequence
            case ev.IdlePoliciesSet():
                self.policies[event.scope] = {policy.rule: policy for policy in event.policies}
            case ev.JobIdle():
                return self._lives(event, commit) or self._idle(event, commit)
            case ev.JobActive():
                return self._lives(event, commit) or self._active(event)
            case ev.JobExtended():
                return self._lives(event, commit) or self._extended(event, commit.at_ns)
            case ev.ReclaimSimulated() | ev.LeaseShrunk() | ev.ReclaimRequested():
                return self._lives(event, commit) or self._step(event, commit.at_ns)
            case _:
                pass
        return ""

    def _lives(self, event: ev.TelemetryEvent, commit: Commit) -> str:
        """Return an error if the run was not active in the log up to the commit's basis, "" otherwise.

        The writer cannot know of an end that was committed after the basis.
        """
        key = getattr(event, "job"), getattr(event, "attempt")  # noqa: B009 -- every event that is given here has both
        if self.started.get(key, commit.basis + 1) > commit.basis:
            return f"{key} had not started"
        return f"{key} had ended" if self.ended.get(key, commit.basis + 1) <= commit.basis else ""

    def _idle(self, event: ev.JobIdle, commit: Commit) -> str:
        key = event.job, event.attempt
        policy = self.policies.get(event.scope, {}).get(event.rule)
        if policy is None or (policy.action, policy.mode) != (event.action, event.mode):
            return f"{key}: no such policy at {event.scope}"
        if (key, event.rule) in self.open:
            return f"{key}: {event.rule} was reported already"
        if commit.at_ns < self.extended.get(key, (0, 0))[0]:
            return f"{key} is extended"
        if commit.at_ns - event.since_ns < policy.after_ns:
            return f"{key} is idle for {commit.at_ns - event.since_ns} ns, the policy requires {policy.after_ns}"
        acts = policy.mode != "dry_run" and policy.action not in ("note", "warn")
        if event.reclaim_at_ns != (commit.at_ns + policy.notice_ns if acts else 0):
            return f"{key}: its time is {event.reclaim_at_ns}"
        self.open[key, event.rule] = Open(event, policy, commit.at_ns)
        if event.rule == "lifetime" or self.misjudged is None:
            return ""
        return self.misjudged(*key, event.since_ns, policy.after_ns)

    def _active(self, event: ev.JobActive) -> str:
        found = self.open.pop(((event.job, event.attempt), event.rule), None)
        if found is None:
            return f"{event.job}.{event.attempt} did not count as idle"
        on_demand = "ReclaimRequested" in found.steps and found.policy.mode == "on_demand"  # in force while idle
        if "LeaseShrunk" in found.steps and not on_demand and event.reason in ("active", "unseen"):
            return f"{event.job}.{event.attempt} has a cut lease, whatever it does"
        return ""

    def _extended(self, event: ev.JobExtended, at_ns: int) -> str:
        key = event.job, event.attempt
        until_ns, count = self.extended.get(key, (0, 0))
        if event.count != count + 1 or event.until_ns < max(until_ns, at_ns):
            return f"{key}: the {event.count}. until {event.until_ns} after the {count}. until {until_ns}"
        most = max((policy.extensions_max for of in self.policies.values() for policy in of.values()), default=0)
        self.extended[key] = event.until_ns, event.count
        return f"{key}: {event.count} extensions, at most {most} are allowed by anybody" if event.count > most else ""

    def _step(self, event: ev.ReclaimSimulated | ev.LeaseShrunk | ev.ReclaimRequested, at_ns: int) -> str:
        key, name = (event.job, event.attempt), type(event).__name__
        found = self.open.get((key, event.rule))
        if found is None or found.event.scope != event.scope:
            return f"{key} does not count as idle by {event.rule} of {event.scope}"
        policy, due_ns = found.policy, found.at_ns + found.policy.notice_ns
        cut = policy.action == "shrink" and not isinstance(event, ev.ReclaimSimulated)
        wanted = (
            ["ReclaimSimulated"]
            if policy.mode == "dry_run"
            else [*(["LeaseShrunk"] if cut else []), "ReclaimRequested"]
        )
        if [*found.steps, name] != wanted[: len(found.steps) + 1]:
            return f"{key}: {name} after {found.steps}, expected {wanted}"
        if at_ns < self.extended.get(key, (0, 0))[0]:
            return f"{key} is extended"
        if at_ns < max(due_ns, found.until_ns):
            return f"{key}: at {at_ns}, the notice is over at {due_ns}, the lease at {found.until_ns}"
        if isinstance(event, ev.ReclaimRequested) and event.on_demand != (policy.mode == "on_demand"):
            return f"{key}: on demand {event.on_demand} by a policy of mode {policy.mode}"
        if isinstance(event, ev.LeaseShrunk):
            found.until_ns = event.until_ns
        found.steps.append(name)
        return ""
