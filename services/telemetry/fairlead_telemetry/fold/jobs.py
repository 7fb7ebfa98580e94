"""Jobs: what newly came is added up per job, then laid over the row that is there.

Batches come in the order of the log, so whatever a batch says of a job is newer than its row. No event in a span says
that a job changes its queue, except at its very start.

Jobs that change their queue, by a person's word or because their queue is removed: applied one by one, in order.
"""

from fairlead_telemetry.fold.tables import FRESH, FoldStatement

_END_TYPES = ("JobSucceeded", "JobFailed", "JobCancelled")
_ENDS = str(_END_TYPES)
#: Not a type: some job was born behind others, or held.
DEPENDENT = "born behind others or held"
#: {event: the state that it sets}. Not covered: JobOffered, which may come too late, and JobSubmitted of a
#: job that has to wait for something.
_STATES = {
    "JobSubmitted": "queued",
    "JobQueued": "queued",
    "OfferReturned": "queued",
    "JobReleased": "queued",
    "JobRequeued": "queued",
    "JobHeld": "held",
    "JobPlaced": "placed",
    "RunStarted": "running",
    "JobSucceeded": "succeeded",
    "JobFailed": "failed",
    "JobCancelled": "cancelled",
}
#: Types as small numbers, those of _STATES first: the many conditions of `_DELTA` would take a third longer over their names.
_KINDS = {event: number for number, event in enumerate((*_STATES, "JobOffered", "JobStopRequested", "RunEnded"), 1)}
_KIND = f"CASE type {' '.join(f"WHEN '{event}' THEN {number}" for event, number in _KINDS.items())} END::UTINYINT"
_LIFE = f"kind <= {len(_STATES)}"
_IS = {event: f"kind = {number}" for event, number in _KINDS.items()}
_IS_END = f"kind IN {tuple(_KINDS[event] for event in _END_TYPES)}"

_BORN = f"""
INSERT INTO fold.open_jobs
WITH {FRESH}, born AS (
  SELECT job, queue, "user", at_ns, from_json(body, '{{"name": "VARCHAR", "project": "VARCHAR", "kind": "VARCHAR",
    "priority": "INTEGER", "array": "JSON", "start_at_ns": "BIGINT", "request": {{"nodes": "BIGINT", "gpu_milli": "BIGINT",
    "also": [{{"nodes": "BIGINT", "gpu_milli": "BIGINT"}}]}}}}') AS b
  FROM fresh WHERE type = 'JobSubmitted')
SELECT job, b.name, coalesce(b.kind, 'batch'), queue, "user", coalesce(b.project, ''), coalesce(b.priority, 50),
  b.array IS NOT NULL, coalesce(b.request.nodes, 1) * coalesce(b.request.gpu_milli, 0)
    + CASE WHEN b.request.also IS NULL THEN 0 ELSE coalesce(list_sum(list_transform(b.request.also,
        lambda kind: coalesce(kind.nodes, 1) * coalesce(kind.gpu_milli, 0))), 0)::BIGINT END,
  at_ns, coalesce(b.start_at_ns, 0) > at_ns
FROM born"""

_DELTA = f"""
kinds AS (SELECT *, {_KIND} AS kind FROM fresh WHERE job IS NOT NULL),
delta AS (
  SELECT job, split_part(job, '_', 1) AS born_as, min(sequence) AS first_sequence, max(sequence) AS sequence,
    max(attempt) AS attempt, max(place) FILTER ({_IS["JobSubmitted"]}) AS born_place,
    {list(_STATES.values())}[arg_max(kind, place) FILTER ({_LIFE})] AS said, max(place) FILTER ({_LIFE}) AS said_place,
    arg_max(attempt, place) FILTER ({_IS["JobOffered"]}) AS offered_attempt,
    max(place) FILTER ({_IS["JobOffered"]}) AS offered_place,
    max(place) FILTER ({_IS["JobStopRequested"]}) AS stop_place,
    max(place) FILTER ({_IS["JobRequeued"]}) AS requeue_place,
    {list(_STATES)}[arg_max(kind, place) FILTER ({_IS_END})] AS ended_as, max(time) FILTER ({_IS_END}) AS ended_at,
    max(place) FILTER ({_IS_END}) AS ended_place,
    arg_max(attempt, place) FILTER ({_IS["RunStarted"]}) AS started_attempt,
    arg_max(time, place) FILTER ({_IS["RunStarted"]}) AS started_at,
    min(at_ns) FILTER ({_IS["JobPlaced"]}) AS first_placed_ns,
    arg_max(attempt, place) FILTER ({_IS["JobPlaced"]}) AS placed_attempt,
    arg_max(body, place) FILTER ({_IS["JobPlaced"]}) AS placed,
    arg_max(attempt, place) FILTER ({_IS["RunEnded"]}) AS run_attempt,
    arg_max(body, place) FILTER ({_IS["RunEnded"]}) AS run,
    arg_max(body, place) FILTER ({_IS["JobFailed"]}) AS failed
  FROM kinds GROUP BY job)"""

#: An element takes after its array; a row without a name is of a job that the log never took.
_LIVED = f"""
CREATE OR REPLACE TEMP TABLE lived AS
WITH {FRESH}, {_DELTA}
SELECT d.job, d.born_as, o.name, o.kind, o.queue, o."user", o.project, o.priority, o.is_array AND d.job = d.born_as,
  o.gpu_milli, o.submitted_ns, d.first_sequence, d.sequence, d.attempt,
  if(o.waits AND d.said_place = d.born_place, 'scheduled', d.said), d.said_place, d.offered_attempt,
  d.offered_place, d.stop_place, d.requeue_place, d.ended_as, d.ended_at, d.ended_place, d.started_attempt, d.started_at,
  d.placed_attempt, array_to_string(d.placed->>'$.parts[*].node', ','), d.run_attempt, d.run.exit_code, d.run.signal,
  d.failed->>'reason', d.first_placed_ns, CASE WHEN d.first_placed_ns IS NOT NULL THEN o.queue END,
  d.born_place IS NOT NULL AS is_born
FROM (SELECT * REPLACE (from_json(run, '{{"exit_code": "INTEGER", "signal": "INTEGER"}}') AS run) FROM delta) AS d
  LEFT JOIN fold.open_jobs o ON o.job = d.born_as"""

#: Nothing comes before a job's submission, so its row cannot be there: to look for it would take a quarter longer.
_NEW = "INSERT INTO fold.jobs SELECT * EXCLUDE is_born FROM lived WHERE is_born"
_LAID_OVER = """
INSERT INTO fold.jobs SELECT * EXCLUDE is_born FROM lived WHERE NOT is_born
ON CONFLICT (job) DO UPDATE SET
  sequence = excluded.sequence, attempt = greatest(attempt, excluded.attempt),
  said = coalesce(excluded.said, said), said_place = coalesce(excluded.said_place, said_place),
  offered_attempt = coalesce(excluded.offered_attempt, offered_attempt),
  offered_place = coalesce(excluded.offered_place, offered_place),
  stop_place = coalesce(excluded.stop_place, stop_place), requeue_place = coalesce(excluded.requeue_place, requeue_place),
  ended_as = coalesce(excluded.ended_as, ended_as), ended_at = greatest(ended_at, excluded.ended_at),
  ended_place = coalesce(excluded.ended_place, ended_place),
  started_attempt = coalesce(excluded.started_attempt, started_attempt),
  started_at = coalesce(excluded.started_at, started_at),
  placed_attempt = coalesce(excluded.placed_attempt, placed_attempt), nodes = coalesce(excluded.nodes, nodes),
  exit_code = CASE WHEN excluded.run_attempt IS NULL THEN exit_code ELSE excluded.exit_code END,
  signal = CASE WHEN excluded.run_attempt IS NULL THEN signal ELSE excluded.signal END,
  run_attempt = coalesce(excluded.run_attempt, run_attempt), reason = coalesce(excluded.reason, reason),
  first_placed_ns = coalesce(first_placed_ns, excluded.first_placed_ns),
  first_placed_queue = coalesce(first_placed_queue, excluded.first_placed_queue)"""

#: Jobs born behind others wait until a later event changes their state, unless each of those others had
#: already ended as required.
_BEHIND = f"""
UPDATE fold.jobs SET said = 'scheduled' FROM (
  WITH {FRESH}, wanted AS (
    SELECT job, place AS born, unnest(from_json(body->'after', '[{{"job": "VARCHAR", "state": "VARCHAR"}}]')) AS other
    FROM fresh WHERE type = 'JobSubmitted' AND contains(body::VARCHAR, '"after":['))
  SELECT DISTINCT wanted.job, born FROM wanted LEFT JOIN fold.jobs o
    ON o.job = other.job AND o.ended_place < born AND CASE coalesce(other.state, 'succeeded')
      WHEN 'ended' THEN true WHEN 'failed' THEN o.ended_as <> 'JobSucceeded' ELSE o.ended_as = 'JobSucceeded' END
  WHERE o.job IS NULL) AS behind
WHERE fold.jobs.job = behind.job AND said_place = born"""

_HELD = f"""
UPDATE fold.jobs SET said = 'held' FROM (
  WITH {FRESH} SELECT job, place AS born FROM fresh WHERE type = 'JobSubmitted' AND body->>'held' = 'true') AS new
WHERE fold.jobs.job = new.job AND said_place = born"""

_ENDED = f"""
DELETE FROM fold.open_jobs WHERE job IN (WITH {FRESH} SELECT job FROM fresh WHERE type IN {_ENDS})"""

STEPS = (
    FoldStatement(("JobSubmitted",), _BORN),
    FoldStatement(("",), _LIVED),
    FoldStatement(("JobSubmitted",), _NEW, reads_events=False),
    FoldStatement(("",), _LAID_OVER, reads_events=False),
    FoldStatement((DEPENDENT,), _BEHIND),
    FoldStatement((DEPENDENT,), _HELD),
)
#: After all else of a span: runs and elements that came in it have taken after these.
LAST_STEPS = (FoldStatement(_END_TYPES, _ENDED),)


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
