"""Saved work of runs, judged by the events alone: permitted reporters, times, and the statements of the runs'
ends.
"""

from fairlead_schemas.policies.checkpoints import Checkpoint
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import Commit

#: Words that answer no notice come no faster.
APART_NS = 5 * 1_000_000_000


class SavingBooks:
    """Checkpoint settings by job and, for each attempt that has a place, its save reports and whether it was notified."""

    def __init__(self) -> None:
        self.asked: dict[str, Checkpoint | None] = {}
        #: {(job, attempt): commit times of its words}
        self.words: dict[tuple[str, int], list[int]] = {}
        #: Attempts whose end the queue has not answered, and that were asked to yield or leave.
        self.yielded: set[str] = set()

    def take(self, commit: Commit) -> str:
        """Book a commit; returns what is wrong with it, "" if nothing is."""
        for event in commit.events:
            wrong = self._take(event, commit.at_ns)
            if wrong:
                return wrong
        return ""

    def _take(self, event: ev.Event, at_ns: int) -> str:
        match event:
            case ev.JobSubmitted():
                self.asked[event.job] = event.checkpoint
            case ev.JobPlaced():
                self.words[event.job, event.attempt] = []
            case ev.CheckpointSaved():
                return self._word(event, at_ns)
            case ev.RunEnded():
                return self._end(event)
            case ev.JobRequeued() | ev.JobSucceeded() | ev.JobFailed() | ev.JobCancelled():
                if isinstance(event, ev.JobSucceeded) and event.job in self.yielded:
                    return f"{event.job} has succeeded though its run was ended for others"
                self.yielded.discard(event.job)
            case _:
                pass
        return ""

    def _how(self, job: str) -> Checkpoint | None:
        return self.asked.get(array_of(job) or job)

    def _word(self, event: ev.CheckpointSaved, at_ns: int) -> str:
        words = self.words.get((event.job, event.attempt))
        if self._how(event.job) is None or words is None:
            return f"{event.job}.{event.attempt} says that it has saved, and is no run that could"
        if words and not event.noticed and at_ns - words[-1] < APART_NS:
            return f"{event.job}.{event.attempt} says twice within {at_ns - words[-1]} ns that it has saved"
        words.append(at_ns)
        return ""

    def _end(self, event: ev.RunEnded) -> str:
        words, how = self.words.pop((event.job, event.attempt), []), self._how(event.job)
        if event.saved_ns != (words[-1] if words else 0):
            return f"the end of {event.job}.{event.attempt} says it saved at {event.saved_ns}, its words were {words}"
        if event.noticed_ns and (how is None or not how.is_told):
            return f"{event.job}.{event.attempt} was told of its end, and did not ask for it"
        if event.preempted or event.drained or event.gpu_fault:
            self.yielded.add(event.job)
        return ""
