"""Starts of runs: accepted once, started, and found again after a restart of the agent. Pure."""

from fairlead_agent.core.checkpoint_reports import CheckpointReports
from fairlead_agent.core.ledger import Accepted, RunEntry
from fairlead_agent.core.run_stop import RunStop, outcome_of
from fairlead_agent.core.runs import Exit, Found, RunKey, key_of
from fairlead_agent.core.steps import Draft, StartRun
from fairlead_schemas.wire.desired import RunOrder
from fairlead_schemas.wire.reports import IMAGE_CHARS_MAX, StartSeen


class RunStart:
    """Orders of one node's runs from acceptance to start."""

    def __init__(self, draft: Draft, run_stop: RunStop, checkpoint_reports: CheckpointReports, start_ns: int) -> None:
        """`start_ns`: how long an order may take to begin."""
        self._draft, self._run_stop, self._checkpoint_reports = draft, run_stop, checkpoint_reports
        self._start_ns = start_ns
        #: {run: when its order came}, oldest first; those that have begun are dropped when they are come upon.
        self._ordered: dict[RunKey, int] = {}

    def take_up(self, order: RunOrder, *, may_begin: bool, now: int, at_ns: int) -> None:
        """An order for a run that the ledger does not hold. Where nothing may be started now it is looked at again when the
        lease is back, or a newer desired state is here."""
        if not may_begin and not order.stop:
            return
        self._draft.record(
            Accepted(
                job=order.job,
                attempt=order.attempt,
                rank=order.rank,
                epoch=order.epoch,
                gpus=order.gpus,
                grace_ns=order.grace_ns,
                instances=order.instances,
                stop_after_ns=order.stop_after_ns,
                checkpoint=order.checkpoint,
            )
        )
        if order.stop:
            self._run_stop.never_began(key_of(order), "stopped", "was asked to stop before it was started", at_ns)
        else:
            self._ordered[key_of(order)] = now
            self._draft.ask(StartRun(order))

    def late(self, now: int) -> list[RunEntry]:
        """Runs whose order is older than `start_ns` and that have not begun; each is returned once."""
        found: list[RunEntry] = []
        while (due := self.due_at) is not None and due <= now:
            key = next(iter(self._ordered))
            del self._ordered[key]
            run = self._draft.ledger.runs[key]
            found.append(run)
        return found

    @property
    def due_at(self) -> int | None:
        """Time at which the oldest order that has not begun is late; None without such an order."""
        runs = self._draft.ledger.runs
        while self._ordered:
            key, at = next(iter(self._ordered.items()))
            run = runs.get(key)
            if run is not None and run.phase == "accepted":
                return at + self._start_ns
            del self._ordered[key]
        return None

    def started(self, key: RunKey, image: str, at_ns: int, now: int = 0) -> None:
        """Report once that a run has started, at `now` (0: the time was not observed)."""
        run = self._draft.ledger.runs.get(key)
        if run is not None and run.phase == "accepted":
            self._draft.report(
                StartSeen(
                    n=self._draft.n,
                    job=key.job,
                    attempt=key.attempt,
                    rank=key.rank,
                    image=image[:IMAGE_CHARS_MAX],
                    at_ns=at_ns,
                    boot_ns=now,
                )
            )

    def resume(self, run: RunEntry, found: Found, at_ns: int) -> None:
        """Report what became of an open run while no agent was running."""
        key = run.key
        if found.state in ("running", "ended"):
            self.started(key, found.image, at_ns)
        if found.mark is not None and found.state != "running":
            self._checkpoint_reports.last(run, found.mark)
        match found.state:
            case "running":
                pass
            case "ended":
                self._run_stop.end(key, outcome_of(found.exit), found.exit, found.clean, at_ns)
            case "never":
                message = found.exit.message or "the agent ended before it could start the run"
                self._run_stop.end(key, "start_failed", Exit(message=message), True, at_ns)
            case "lost":
                lost = Exit(message=found.exit.message or "it ended while the agent was away", fenced=found.exit.fenced)
                self._run_stop.end(key, outcome_of(lost), lost, found.clean, at_ns)

    def booted(self, run: RunEntry, at_ns: int) -> None:
        """Report that the machine has rebooted: no run is left on it."""
        if run.open:
            self._run_stop.end(run.key, "node_rebooted", Exit(message="the node rebooted during the run"), True, at_ns)
        elif run.phase == "ended":
            self._run_stop.clean(run.key)
