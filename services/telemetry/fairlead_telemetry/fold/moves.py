"""Jobs that change their queue, by a person's word or because their queue is removed: applied one by one, in order."""

from fairlead_telemetry.fold.fresh import FRESH

_MOVED = f"WITH {FRESH} SELECT job, arg_max(queue, place) AS queue, max(place) AS place FROM fresh WHERE type = 'JobMoved' GROUP BY job"

#: What moves a run of JobMoved events. Elements go with their array unless they have ended.
BY_WORD = (
    f"INSERT INTO fold.moves WITH {FRESH} SELECT job, queue, place FROM fresh WHERE type = 'JobMoved'",
    f"UPDATE fold.jobs SET queue = m.queue FROM ({_MOVED}) AS m WHERE born_as = m.job AND ended_place IS NULL",
    f"UPDATE fold.open_jobs SET queue = m.queue FROM ({_MOVED}) AS m WHERE fold.open_jobs.job = m.job",
)
_REMOVED = f"""WITH {FRESH} SELECT body->>'path' AS path, body->>'move_to' AS queue, place FROM fresh
  WHERE type = 'QueueRemoved' AND coalesce(body->>'move_to', '') <> ''"""

#: What moves one QueueRemoved event.
BY_REMOVAL = (
    f"INSERT INTO fold.moves SELECT o.job, r.queue, r.place FROM fold.open_jobs o JOIN ({_REMOVED}) AS r ON r.path = o.queue",
    f"UPDATE fold.jobs SET queue = r.queue FROM ({_REMOVED}) AS r WHERE fold.jobs.queue = r.path AND ended_place IS NULL",
    f"UPDATE fold.open_jobs SET queue = r.queue FROM ({_REMOVED}) AS r WHERE fold.open_jobs.queue = r.path",
)
