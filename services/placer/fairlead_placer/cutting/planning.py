"""Plans to repartition GPUs for jobs that found no place. The module emits on a draft.

Planning runs after all placements of a decision, so that existing room is given first. A plan names the jobs that it is
for. Jobs that precede them in the order when the plan is done still get the instances first.
"""

import msgspec

from fairlead_placer.cutting.choosing import Recut, choose
from fairlead_placer.cutting.plans import LATE_NS
from fairlead_placer.cutting.waiting import Want, may_gain, of_pool, wants
from fairlead_placer.draft import EVENT_BYTES, Draft
from fairlead_placer.entities import OfferClass
from fairlead_placer.nodes.ahead import barred
from fairlead_placer.state import State
from fairlead_schemas.wire import events as ev

#: Plans of one decision; the others follow in the next.
PLANS_MAX = 32


def plan(draft: Draft) -> bool:
    """Plan for those who wait. False when there is more to plan."""
    state = draft.state
    if not any(may_gain(state, group.request) for group in state.classes.values()):
        return True
    found, planned, given = wants(state), 0, set[str]()
    #: Classes, and the nodes that the job avoids, for which nothing was found.
    hopeless: list[tuple[OfferClass, frozenset[str]]] = []
    for want in found:
        beyond = want.group, barred(state, want.job, draft.now_ns)
        if want.job in given or beyond in hopeless or not _may_help(draft, want.group):
            continue
        if draft.full or planned >= PLANS_MAX:
            return False
        beside = [each for each in of_pool(found, want) if each.job not in given]
        recuts = choose(state, want, beside, draft.now_ns)
        if not recuts:
            hopeless.append(beyond)
            continue
        for recut in recuts:
            if not _emit(draft, want, recut):
                return False
            given.update(recut.jobs)
            planned += 1
    for group, beside in hopeless:  # a memory of work done, as `OfferClass.failed_at`
        if not beside:
            group.uncut_at = state.pools.version, draft.now_ns
    return True


def _may_help(draft: Draft, group: OfferClass) -> bool:
    """False where nothing has come free, and no GPU may be tried again, since nothing was found for the class."""
    state = draft.state
    version, looked_ns = group.uncut_at
    if version < 0 or any(looked_ns < each.until_ns <= draft.now_ns for each in state.spoilt.values()):
        return True
    return state.pools.of(group.request).anything_gained_since(version)


def _emit(draft: Draft, want: Want, recut: Recut) -> bool:
    event = ev.MigLayoutPlanned(
        cause=want.cause, node=recut.node.name, gpu=recut.gpu, jobs=recut.jobs, mode=recut.mode, destroy=recut.destroy,
        create=recut.create, score=recut.score,
    )  # fmt: skip
    size = EVENT_BYTES + len(msgspec.json.encode(event))
    if not draft.has_room(size):
        return False
    draft.emit(event, size)
    return True


def deadlines(state: State, looked_ns: int) -> list[int]:
    """Return the times at which plans are late and, if a waiting job could gain, at which failed GPUs may be tried again."""
    late = [plan.at_ns + LATE_NS for plan in state.layouts.values()]
    if state.spoilt and any(may_gain(state, group.request) for group in state.classes.values()):
        late += [each.until_ns for each in state.spoilt.values() if each.until_ns > looked_ns]
    return late
