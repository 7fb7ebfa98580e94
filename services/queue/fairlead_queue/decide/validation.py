"""Validation of a change of queues and pools: the whole configuration is checked in its state after the change. Pure.

The refusal names the first problem with its path, the expected value and the remedy, and gives the number of further
problems. A queue that names no guarantee of a resource has the sum of the guarantees of the queues below it.
"""

from collections.abc import Iterator, Mapping

from fairlead_bus.core import CommandRefusal
from fairlead_queue.decide.configuration import ProposedConfiguration, affected_queues, changed_entries
from fairlead_queue.fairness.quota import children_of, guarantee, pool_name, queue_limits
from fairlead_queue.sequencers.registry import known_sequencers, sequencer_problem
from fairlead_queue.state import QueueState
from fairlead_schemas.queuefile.amounts import amount_word, gpu_hours_word, resource_word
from fairlead_schemas.queuefile.settings import (
    ANY_USER,
    CHANGES_MAX,
    GPU_CLASS_PREFIX,
    QUEUE_PRIORITY_MAX,
    WEIGHT_MAX,
    PoolSettings,
    QueueSettings,
    is_resource,
)
from fairlead_schemas.units.ids import is_queue_path, is_token
from fairlead_schemas.units.suggestions import did_you_mean
from fairlead_schemas.wire import commands as cmd

#: Larger than any cluster; a bound so that sums stay ordinary integers.
AMOUNT_MAX = 1 << 45
TIME_MAX_NS = 1 << 62
PRICE_MAX = 1_000_000
#: Four hundred refusals must fit a commit.
MESSAGE_CHARS_MAX = 250


class TemporaryProblem(str):
    """A problem that is none of the change itself: it will do when jobs have ended."""

    __slots__ = ()


def change_refusal(
    state: QueueState, command: cmd.ApplyQueues, before: ProposedConfiguration, after: ProposedConfiguration
) -> CommandRefusal | None:
    """Refuse a change with problems: as a "conflict" where the change will do later, else as "invalid"."""
    found = list(_problems(state, command, before, after))
    if not found:
        return None
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    code = "conflict" if all(isinstance(each, TemporaryProblem) for each in found) else "invalid"
    return CommandRefusal(code, found[0][: MESSAGE_CHARS_MAX - len(more)] + more)


def _problems(
    state: QueueState, command: cmd.ApplyQueues, before: ProposedConfiguration, after: ProposedConfiguration
) -> Iterator[str]:
    named = max(len(command.pools) + len(command.queues), len(changed_entries(before, after)))
    count = named + len(after.removed) + len(after.dropped_pools)
    if count > CHANGES_MAX:
        yield f"expected at most {CHANGES_MAX} queues and pools in one change, found {count}; apply a part of the tree"
        return
    yield from _contradictions(command)
    for entry in command.pools:
        yield from _pool_problems(entry.pool, entry.settings)
    for entry in command.queues:
        yield from _own_problems(entry.path, entry.settings)
    paths = affected_queues(before, after)
    yield from _job_problems(state, before, after, paths)
    yield from _tree_problems(after, paths)


def _contradictions(command: cmd.ApplyQueues) -> Iterator[str]:
    """Yield a problem for each queue or pool that the command names twice."""
    queues, pools = [entry.path for entry in command.queues], [entry.pool for entry in command.pools]
    removed = [each.path for each in command.remove]
    for kind, names in (("queues", queues), ("pools", pools), ("queues", removed)):
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield f"{kind}.{name[:100]}: it is named twice; keep one of them"
    for name in sorted(set(queues) & set(removed)):
        yield f"queues.{name[:100]}: it is configured and removed at once; do one of them"


# ---------------------------------------------------------------------------------------- each by itself


def _pool_problems(name: str, settings: PoolSettings) -> Iterator[str]:
    at = f"pools.{name[:63]}"
    if not is_token(name):
        yield f"{at}: expected a name of a-z 0-9 _ -"
    if settings.sequencer not in known_sequencers():
        known = ", ".join(sorted(known_sequencers()))
        yield f'{at}.sequencer: expected one of {known}, found "{settings.sequencer[:40]}"'
    elif problem := sequencer_problem(settings.sequencer):
        yield f"{at}.sequencer: {problem}"
    if not 0 <= settings.past_percent <= 100:
        yield f"{at}.pastPercent: expected 0 to 100, found {settings.past_percent}"
    for word, amount in (("halfLife", settings.half_life_ns), ("patience", settings.patience_ns)):
        if not 0 <= amount <= TIME_MAX_NS:
            yield f"{at}.{word}: expected 0 to 146 years, found {amount} ns"
    if settings.ageing is not None and not (
        0 < settings.ageing.every_ns <= TIME_MAX_NS and 0 <= settings.ageing.most <= 1000
    ):
        yield f"{at}.ageing: expected a time above 0 and at most 1000 steps"
    for model, price in settings.prices.items():
        if not 0 <= price <= PRICE_MAX:
            yield f"{at}.prices.{model[:60]}: expected 0 to {PRICE_MAX // 1000}, found {price / 1000}"


def _own_problems(path: str, settings: QueueSettings) -> Iterator[str]:
    at = f"queues.{path[:100]}"
    if not is_queue_path(path):
        yield f'{at}: expected names of a-z 0-9 _ - joined by "/", at most eight deep'
        return
    if not 1 <= settings.weight <= WEIGHT_MAX:
        yield f"{at}.weight: expected 1 to {WEIGHT_MAX}, found {settings.weight}; to let others go first, give it a lower priority"
    if abs(settings.priority) > QUEUE_PRIORITY_MAX:
        yield f"{at}.priority: expected -{QUEUE_PRIORITY_MAX} to {QUEUE_PRIORITY_MAX}, found {settings.priority}"
    for word in ("guaranteed", "maximum", "borrowing", "lending"):
        yield from _amount_problems(f"{at}.{word}", getattr(settings, word))
    for user, amounts in settings.users.items():
        if not user or len(user) > 128:
            yield f"{at}.users: expected user names of 1 to 128 characters"
        yield from _amount_problems(f"{at}.users.{'default' if user == ANY_USER else user[:60]}", amounts)
    if settings.budget is not None and not 0 < settings.budget.gpu_milli_s <= AMOUNT_MAX * 1000:
        yield f"{at}.budget.gpuHours: expected more than 0, found {gpu_hours_word(settings.budget.gpu_milli_s)}"
    if not 0 <= settings.preemption.protect_ns <= TIME_MAX_NS:
        yield f"{at}.preemption.protect: expected 0 to 146 years, found {settings.preemption.protect_ns} ns"


def _amount_problems(at: str, amounts: Mapping[str, int]) -> Iterator[str]:
    for resource, amount in amounts.items():
        if not is_resource(resource):
            yield f'{at}: expected gpu, gpu:<model>, cpu or memory, found "{resource[:60]}"'
        elif not 0 <= amount <= AMOUNT_MAX:
            yield f"{at}.{resource_word(resource)}: expected 0 to {AMOUNT_MAX}, found {amount}"


# ---------------------------------------------------------------------------------------- the whole tree


def _tree_problems(after: ProposedConfiguration, paths: list[str]) -> Iterator[str]:
    below = children_of(after.queues)
    for path in paths:
        settings = after.queues[path]
        at, parent = f"queues.{path}", path.rpartition("/")[0]
        if parent and parent not in after.queues:
            if parent not in after.removed:  # else the error is reported for the parent
                yield f"{at}: there is no queue {parent}; name it too"
            continue
        pool = pool_name(after.queues, path)
        if parent and settings.pool and settings.pool != pool:
            yield f"{at}.pool: expected {pool}, which {path.partition('/')[0]} is in, found {settings.pool[:63]}; leave it out"
        if not parent and pool not in after.pools and pool not in after.dropped_pools:
            yield f"{at}.pool: no pool {pool[:63]}; expected one of: {', '.join(sorted(after.pools))}{did_you_mean(pool, sorted(after.pools))}"
        if settings.users and path in below:
            yield f"{at}.users: only a queue with none below it can limit users; move the limits to those below"
        yield from _limit_problems(after.queues, below, path)


def _limit_problems(queues: Mapping[str, QueueSettings], below: Mapping[str, list[str]], path: str) -> Iterator[str]:
    limits = queue_limits(queues, below, path)
    for resource, amount in limits.guaranteed.items():
        word = resource_word(resource)
        together = sum(guarantee(queues, below, child, resource) for child in below.get(path, ()))
        if together > amount:
            yield (
                f"queues.{path}.guaranteed.{word}: the queues below are guaranteed {amount_word(resource, together)} "
                f"together, it has {amount_word(resource, amount)}; raise it or lower theirs"
            )
        most = limits.maximum.get(resource)
        if most is not None and most < amount:
            least, found = amount_word(resource, amount), amount_word(resource, most)
            what = (
                "the guarantee"
                if resource in queues[path].guaranteed
                else "what the queues below are guaranteed together"
            )
            yield f"queues.{path}.maximum.{word}: expected at least {what} ({least}), found {found}; raise it or guarantee less"
    models = sum(amount for resource, amount in limits.guaranteed.items() if resource.startswith(GPU_CLASS_PREFIX))
    most = limits.maximum.get("gpu", models)
    if limits.guaranteed.get("gpu", 0) <= most < models:
        least, found = amount_word("gpu", models), amount_word("gpu", most)
        yield (
            f"queues.{path}.maximum.{resource_word('gpu')}: expected at least what is guaranteed of all models together "
            f"({least}), found {found}; raise it or guarantee less"
        )
    for resource, amount in limits.lending.items():
        own = limits.guaranteed.get(resource, 0)
        if amount > own:
            yield (
                f"queues.{path}.lending.{resource_word(resource)}: expected at most the guarantee "
                f"({amount_word(resource, own)}), found {amount_word(resource, amount)}; raise the guarantee or lend less"
            )


# ---------------------------------------------------------------------------------------- jobs that are there


def _job_problems(
    state: QueueState, before: ProposedConfiguration, after: ProposedConfiguration, paths: list[str]
) -> Iterator[str]:
    inner = {path.rpartition("/")[0] for path in after.queues}
    were_inner = {path.rpartition("/")[0] for path in state.queues}
    for path, move_to in after.removed.items():
        if path in before.queues:
            yield from _removal_problems(state, path, move_to, after, inner)
            for service in state.services.values():
                if service.queue == path:
                    yield TemporaryProblem(
                        f"queues.{path}: service {service.name} is in it; stop it first (fairlead service stop)"
                    )
        else:
            yield f"queues.{path[:100]}: there is no such queue to remove"
    for path in paths:
        queue = state.queues.get(path)
        if queue is None or not any(leaf.lanes for leaf in queue.leaves.values()):
            continue
        if pool_name(after.queues, path) != queue.pool.name:
            yield f"queues.{path}.pool: jobs of pool {queue.pool.name} are in it; it can be changed when they have ended"
        if path in inner and path not in were_inner:
            yield f"queues.{path}: jobs are in it, so no queue can be put below it; move them first (fairlead move)"
    for name in after.dropped_pools:
        users = [path for path in after.queues if pool_name(after.queues, path) == name]
        if users:
            yield f"pools.{name}: queue {users[0]} is in it; remove that too, or name the pool"


def _removal_problems(
    state: QueueState, path: str, move_to: str, after: ProposedConfiguration, inner: set[str]
) -> Iterator[str]:
    if path in inner:
        yield f"queues.{path}: there are queues below it; remove them too"
    queue = state.queues.get(path)
    lanes = [lane for leaf in queue.leaves.values() for lane in leaf.lanes.values()] if queue is not None else []
    jobs, busy = sum(lane.jobs for lane in lanes), sum(len(lane.offers) + len(lane.running) for lane in lanes)
    if busy:
        told = "1 job of it is offered or runs" if busy == 1 else f"{busy} jobs of it are offered or run"
        yield TemporaryProblem(f"queues.{path}: {told}; wait until all have ended, or cancel them")
    elif jobs and not move_to:
        told = "1 job waits in it" if jobs == 1 else f"{jobs} jobs wait in it"
        yield f"queues.{path}: {told}; name another queue for them (--move-to QUEUE), or cancel all of them"
    if queue is None or not move_to:
        return
    if move_to not in after.queues or move_to in inner:
        yield f"queues.{path}: jobs can be moved to a queue with none below it; {move_to[:100]} is none"
    elif jobs and pool_name(after.queues, move_to) != queue.pool.name:
        yield f"queues.{path}: its jobs are of pool {queue.pool.name}, {move_to} is of another"
