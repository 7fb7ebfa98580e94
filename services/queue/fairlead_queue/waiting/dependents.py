"""Jobs that wait for the end of another job. Derived from `Job.after`; called by `evolve` only."""

from fairlead_queue.waiting.jobs import Job


class Dependents:
    """{job: the jobs that wait for its end}."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, Job]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def of(self, ended: str) -> list[Job]:
        """Return the jobs that wait for this job's end."""
        return list(self._waiting.get(ended, {}).values())

    def add(self, job: Job) -> None:
        """Register that the job waits for the ends of the jobs in `after`."""
        for other in job.after or ():
            self._waiting.setdefault(other, {})[job.id] = job

    def drop(self, job: Job) -> None:
        """Register that the job waits for no other job's end any more."""
        for other in list(job.after or ()):
            self.drop_one(job, other)
        job.after = None

    def drop_one(self, job: Job, other: str) -> None:
        """Register that the job no longer waits for the end of `other`."""
        assert job.after is not None
        del job.after[other]
        waiting = self._waiting[other]
        del waiting[job.id]
        if not waiting:
            del self._waiting[other]
