"""Documents as one caller may see them: names of others' jobs, queues, nodes and people are left out of reasons and lists.

A reason is built from all that is known, because a job may wait for a job that its owner may not see. Its words are cleaned here,
by the names that the views have. Numbers stay, and jobs that are hidden are counted: how many jobs are ahead is a fact about
the job itself. Everything is left as it is for callers who see the whole cluster. Pure.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from fairlead_gateway.access.caller import Caller
from fairlead_gateway.access.targets import Sight
from fairlead_gateway.errors import HttpError
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import OutcomeRow
from fairlead_schemas.http import api
from fairlead_schemas.queries.cluster_map import ClusterMap, GpuHolder, MapNode
from fairlead_schemas.queries.explainer import Defrag, DefragPlan
from fairlead_schemas.units.validation import FieldError

#: Replaces a name that the caller may not see.
HIDDEN = "(hidden)"
#: Stands behind a number of jobs that the caller may not see.
_HIDDEN_MARK = " hidden"
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_/.-]*")
_TOKEN = re.compile(r"[a-z0-9_-]+")
_ID = r"[0-9]+(?:_[0-9]+)?"
_IDS = re.compile(rf"\b{_ID}\b")
#: Ids of jobs in a sentence: plain numbers are amounts.
_JOBS = re.compile(
    rf"\b(jobs?|why|logs|cancel|release|array|-f) ({_ID}(?:(?:, | and ){_ID}(?! more))*)(?: and ([0-9]+) more)?"
)
_ONLY_IDS = re.compile(rf"({_ID}(?:, {_ID})*)(?: and ([0-9]+) more)?")
#: Parts of an explanation that may name others.
_SPEAKING = frozenset({"reason", "changes", "note", "message", "displaces", "estimate"})


def scrub(sight: Sight, value: Any, own: frozenset[str] = frozenset()) -> Any:
    """Return a JSON value with the names that the caller may not see replaced. `own`: nodes of the job that it is about."""
    if isinstance(value, str):
        return _text(sight, value, own)
    if isinstance(value, list):
        return [scrub(sight, each, own) for each in value]
    if isinstance(value, dict):
        return {key: scrub(sight, each, own) for key, each in value.items()}
    return value


def _text(sight: Sight, text: str, own: frozenset[str]) -> str:
    if found := _ONLY_IDS.fullmatch(text):
        return _counted(sight, found[1], int(found[2] or 0)) or text
    text = _JOBS.sub(lambda found: _jobs(sight, found), text)
    if not _may_name(sight, _WORD.findall(text)):
        return text
    return _WORD.sub(lambda found: _word(sight, found[0], own), text)


def _may_name(sight: Sight, words: list[str]) -> bool:
    """Return True if a word may be the name of a thing. Most reasons are of amounts alone, and this is asked for each commit."""
    views = sight.views
    queues, nodes, people = views.queues.rows, views.nodes.rows, views.access.kinds
    return any(word in queues or word in nodes or word in people or not word[-1].isalnum() for word in words)


def _word(sight: Sight, word: str, own: frozenset[str]) -> str:
    """Return a word without a name that the caller may not see: a name may end in "-" or "_", and marks of a sentence may follow it."""
    name = word
    while name:
        if not _may_say(sight, name, own):
            return HIDDEN + word[len(name) :]
        if name[-1].isalnum():
            break
        name = name[:-1]
    return word


def _jobs(sight: Sight, found: re.Match[str]) -> str:
    """Return the mention of some jobs, with a number in the place of those that the caller may not see."""
    before, ids, more = found[1], found[2], int(found[3] or 0)
    if before not in ("job", "jobs"):  # the argument of a command
        shown = _IDS.sub(lambda each: each[0] if sight.job_id(each[0]) else HIDDEN, ids)
        return f"{before} {shown}{found[0][len(before) + 1 + len(ids) :]}"
    counted = _counted(sight, ids, more)
    if not counted:
        return found[0]
    if counted == HIDDEN:
        return "1 hidden job"
    return f"{counted} jobs" if counted.endswith(_HIDDEN_MARK) else f"jobs {counted}"


def _counted(sight: Sight, ids: str, more: int) -> str:
    """Return a list of jobs with those that are hidden as a number: "7, 9 and 3 more", "4 hidden", "(hidden)" for a single one; "" where none
    is hidden.
    """
    every = _IDS.findall(ids)
    seen = [each for each in every if sight.job_id(each)]
    hidden = len(every) - len(seen) + more
    if len(seen) == len(every):
        return ""
    if seen:
        return f"{', '.join(seen)} and {hidden} more"
    return HIDDEN if hidden == 1 else f"{hidden}{_HIDDEN_MARK}"


def _may_say(sight: Sight, word: str, own: frozenset[str]) -> bool:
    views, then, caller = sight.views, sight.then, sight.caller
    if word in views.queues.rows or word in then.queues.rows:
        return sight.queue(word)
    if word in views.nodes.rows or word in then.nodes.rows:
        return word in own or sight.node_id(word)
    if word in views.access.kinds or word in then.access.kinds:
        return sight.all_jobs or word in (caller.principal, caller.user)
    return True


def shown_reason(sight: Sight, reason: api.Reason, nodes: list[str] | None = None) -> api.Reason:
    """Return a reason in the caller's words."""
    if sight.is_whole:
        return reason
    own = frozenset(nodes or ())
    return api.Reason(
        code=reason.code, message=scrub(sight, reason.message, own), detail=scrub(sight, reason.detail, own)
    )


def shown_job(sight: Sight, job: api.Job) -> api.Job:
    """Return a job's document as the caller sees it. It is changed in place."""
    if sight.is_whole:
        return job
    if job.reason is not None:
        job.reason = shown_reason(sight, job.reason, job.nodes)
    if job.preempted_for is not None and not sight.job_id(job.preempted_for["job"]):
        job.preempted_for = {**job.preempted_for, "job": HIDDEN}
    if job.user != sight.caller.principal:  # the job's owner has named them
        job.after = [each if sight.job_id(each["job"]) else {**each, "job": HIDDEN} for each in job.after]
    job.attempts = [
        msgspec.structs.replace(each, message=scrub(sight, each.message, frozenset(each.nodes)))
        for each in job.attempts
    ]
    return job


def shown_retired_job(sight: Sight, document: bytes) -> Any:
    """Return the document of a job that has left the views, as telemetry has made it, as the caller sees it."""
    if sight.is_whole:
        return msgspec.Raw(document)
    job: dict[str, Any] = msgspec.json.decode(document)
    own = frozenset(job.get("nodes") or ())
    job["reason"] = scrub(sight, job.get("reason"), own)
    if (beneficiary := job.get("preempted_for")) and not sight.job_id(beneficiary["job"]):
        job["preempted_for"] = {**beneficiary, "job": HIDDEN}
    if job.get("user") != sight.caller.principal:
        job["after"] = [each if sight.job_id(each["job"]) else {**each, "job": HIDDEN} for each in job.get("after", ())]
    job["attempts"] = _attempts(sight, job.get("attempts") or ())
    return job


def _attempts(sight: Sight, attempts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        each
        if not each.get("message")
        else {**each, "message": scrub(sight, each["message"], frozenset(each.get("nodes") or ()))}
        for each in attempts
    ]


def shown_explanation(sight: Sight, document: Any, nodes: tuple[str, ...] = ()) -> Any:
    """Return an explanation (`Why`) as the caller sees it. `nodes`: of the job."""
    if sight.is_whole:
        return document
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document))  # a part of it may be raw JSON
    own = frozenset(nodes)
    shown = {key: scrub(sight, value, own) if key in _SPEAKING else value for key, value in found.items()}
    if shown.get("attempts"):
        shown["attempts"] = _attempts(sight, shown["attempts"])
    return shown


def shown_dry_run(sight: Sight, document: api.DryRun) -> Any:
    """Return a prediction as the caller sees it, without the quotas of queues that it may not see. Jobs ahead and jobs that might yield are
    counted where they are hidden.
    """
    if sight.is_whole:
        return document
    seen = [each for each in document.displaces if sight.job_id(each.job)]
    hidden = len(document.displaces) - len(seen)
    ahead = [each for each in document.first_ahead if sight.job_id(each)]
    found = shown_explanation(
        sight, msgspec.structs.replace(document, displaces=seen, displaces_hidden=hidden, first_ahead=ahead)
    )
    found["quota"] = [each for each in found["quota"] if sight.queue(each["queue"])]
    found["errors"] = [{**each, "message": scrub(sight, each["message"])} for each in found["errors"]]
    return found


def shown_defrag(sight: Sight, found: Defrag) -> Defrag:
    """Return the planned moves of a pool without jobs that the caller may not see; these are counted, with what their moves cost."""
    if sight.all_jobs:
        return found
    replace = msgspec.structs.replace
    plans: list[DefragPlan] = []
    for plan in found.plans:
        if not sight.job_id(plan.job):
            continue
        moves = tuple(move for move in plan.moves if sight.job_id(move.job))
        plans.append(
            replace(
                plan,
                moves=moves,
                moves_hidden=len(plan.moves) - len(moves),
                nodes=tuple(node for node in plan.nodes if sight.node_id(node)),
                message=scrub(sight, plan.message),
            )
        )
    return replace(found, plans=tuple(plans), plans_hidden=len(found.plans) - len(plans))


def shown_to(
    views: Views, caller: Caller, refusal: Callable[[OutcomeRow], HttpError]
) -> Callable[[OutcomeRow], HttpError]:
    """Return what makes the answer to a refused command, in the caller's words."""
    return refusal if caller.is_open else lambda outcome: shown_refusal(Sight(views, caller), refusal(outcome))


def shown_refusal(sight: Sight, refused: HttpError) -> HttpError:
    """Return the refusal of a service as the caller sees it: services name what stands in the way, and people by their ids."""

    def shown(text: str) -> str:
        return _with_logins(sight, text if sight.is_whole else scrub(sight, text))

    refused.detail, refused.hint = shown(refused.detail), shown(refused.hint)
    refused.errors = [
        FieldError(field=_with_logins(sight, each.field), message=shown(each.message)) for each in refused.errors
    ]
    return refused


def _with_logins(sight: Sight, text: str) -> str:
    """Return a text with login names in the place of principals' ids."""
    views = sight.views
    return _TOKEN.sub(lambda found: views.name_of(found[0]) if found[0] in views.access.kinds else found[0], text)


def shown_node(sight: Sight, node: api.Node) -> api.Node:
    """Return a node's document as the caller sees it. It is changed in place."""
    if sight.is_whole:
        return node
    node.jobs = [job for job in node.jobs if sight.job_id(job)]
    node.blamed_by = [job for job in node.blamed_by if sight.job_id(job)]
    node.reason = scrub(sight, node.reason)
    return node


def shown_map(sight: Sight, found: ClusterMap) -> ClusterMap:
    """Return a map without the names of jobs that the caller may not see; what they hold still counts as held."""
    if sight.all_jobs:
        return found
    seen = {job.id for job in found.jobs if sight.job_id(job.id)}
    replace = msgspec.structs.replace

    def holder(one: GpuHolder) -> GpuHolder:
        return one if one.job in seen else GpuHolder(job="", attempt=0, rank=0, milli=one.milli, instance=one.instance)

    def node(one: MapNode) -> MapNode:
        gpus = [replace(gpu, holders=[holder(each) for each in gpu.holders]) for gpu in one.gpus]
        kept = not one.reserved_for or sight.job_id(one.reserved_for)
        return replace(
            one,
            gpus=gpus,
            reason=scrub(sight, one.reason),
            reserved_for=one.reserved_for if kept else HIDDEN,
            reserved_from=one.reserved_from if kept else None,
        )

    jobs = [job for job in found.jobs if job.id in seen]
    return replace(found, jobs=jobs, nodes=[node(each) for each in found.nodes])
