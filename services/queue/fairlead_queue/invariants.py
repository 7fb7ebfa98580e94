"""Invariants of the queue's state after every commit; for tests, the simulator and replay."""

from collections.abc import Callable

from fairlead_queue.state import QueueState
from fairlead_queue.waiting.pending import Array, LiveJob, PoolState
from fairlead_schemas.wire.lifecycle import CHARGED_STATES, END_STATES


def check(state: QueueState) -> None:
    """Raises AssertionError naming the job or queue whose bookkeeping is not true."""
    for job in state.jobs.values():
        problem = _problem(state, job)
        if problem:
            raise AssertionError(f"job {job.id} is {job.state}, waits in {job.wait!r}: {problem}")
    _check_counts(state)
    _check_times(state)
    _check_accounts(state)
    for pool in state.pools.values():
        _check_charges(state, pool)
        _check_claims(state, pool)


def _check_charges(state: QueueState, pool: PoolState) -> None:
    """Every node of the tree is charged what its jobs hold, and no more than its limits allow where they held."""
    expected = {node: [0] * pool.tree.width for node in pool.tree.nodes.values()}
    for job in state.jobs.values():
        if charged(job) and job.lane.request_class.pool is pool:
            for node in job.lane.leaf.node.up():
                expected[node] = [have + more for have, more in zip(expected[node], pool.holds(job), strict=True)]
    for node, amounts in expected.items():
        if node.usage != amounts:
            raise AssertionError(f"queue {node.path!r} is charged {node.usage}, its jobs hold {amounts}")
        if node.closed or (node.leaf is None and node.wants):
            raise AssertionError(f"queue {node.path!r} is left as a decision tried it")


def _check_claims(state: QueueState, pool: PoolState) -> None:
    """Check that kept resources are kept for a job that waits for them, and that job and claim refer to each other."""
    holders = {node.claim.holder for node in pool.tree.nodes.values() if node.claim is not None}
    for holder in holders:
        job = state.jobs.get(holder)
        if job is None or job.wait != "line" or job.lane.claim != holder:
            raise AssertionError(f"quota is kept for job {holder}, which does not wait for it")
    lanes = [
        lane
        for queue in state.queues.values()
        for leaf in queue.leaves.values()
        for lane in leaf.lanes.values()
        if queue.pool is pool and lane.claim
    ]
    if {lane.claim for lane in lanes} != holders:
        raise AssertionError(f"lanes claim for {[lane.claim for lane in lanes]}, quota is kept for {holders}")
    if pool.claimant and not (pool.claimant in state.jobs and state.jobs[pool.claimant].open):
        raise AssertionError(f"places are kept for job {pool.claimant}, which has no open offer")


def _check_times(state: QueueState) -> None:
    """Check that every time that a job waits for is in its list, and that the list has no other."""
    lists: tuple[tuple[str, list[tuple[int, str]], Callable[[LiveJob], int]], ...] = (
        ("timers", state.due.timers, lambda job: job.timer_ns),
        ("deadlines", state.due.deadlines, lambda job: job.alarm_ns),
        ("ages", state.due.ages, lambda job: job.ages_ns),
    )
    for name, found, time in lists:
        expected = sorted((time(job), job.id) for job in state.jobs.values() if time(job))
        if expected != found:
            raise AssertionError(f"{name} should be {expected[:5]}…, are {found[:5]}…")


def _check_accounts(state: QueueState) -> None:
    """Check that a budget counts the jobs below it, and that each waiting job's count of yielders equals the runs that yield."""
    if sorted((each.due_ns, each.path) for each in state.accounts.values() if each.due_ns) != state.due.marks:
        raise AssertionError(f"budgets are not due as they record: {state.due.marks[:5]}")
    for path, account in state.accounts.items():
        under = [job for job in state.jobs.values() if f"{job.lane.leaf.queue.path}/".startswith(f"{path}/")]
        rate = sum(job.price for job in under)
        if account.rate != rate:
            raise AssertionError(f"the budget of {path} counts {account.rate}, its jobs come to {rate}")
    yielding: dict[str, int] = {}
    for job in state.jobs.values():
        if job.yields_to in state.jobs:
            yielding[job.yields_to] = yielding.get(job.yields_to, 0) + 1
    for job in state.jobs.values():
        if job.yielders != yielding.get(job.id, 0):
            raise AssertionError(f"{yielding.get(job.id, 0)} runs yield to job {job.id}, it counts {job.yielders}")
        if job.asked and not (job.open or job.wait in ("line", "returned")):
            raise AssertionError(f"job {job.id} has {job.asked!r} and does not wait")


def charged(job: LiveJob) -> bool:
    """Return True if a job counts against its queue's quota: from its offer until its run has ended."""
    return job.state in CHARGED_STATES and job.end is None and not isinstance(job, Array)


def _problem(state: QueueState, job: LiveJob) -> str:
    if job.missing and (not charged(job) or job.open or not 0 < job.missing < job.lane.request_class.request.nodes):
        return f"{job.missing} of its units are missing"
    if job.id in state.finished or job.state in END_STATES:
        return "live and finished at once"
    if job.open != (job.id in job.lane.offers) or (job.open and job.state not in ("offered", "stopping")):
        return f"open is {job.open}"
    if (job.wait == "owed") != (job.id in state.owed) or (job.wait == "owed") != (job.end is not None):
        return f"owed with end {job.end}"
    if bool(job.timer_ns) != ((job.timer_ns, job.id) in state.due.timers):
        return f"timer {job.timer_ns} is not among the timers"
    if job.state == "queued" and not job.wait and not (isinstance(job, Array) and not job.unborn):
        return "nothing will ever move it"
    if job.idle and not (job.state in ("placed", "running", "stopping") and not job.open):
        return f"it is idle by {job.idle} and does not run"
    if bool(job.idle) != (job.id in state.idle):
        return f"it is asked back by {job.idle}, and is not in the list of those"
    if job.state == "scheduled" and job.wait not in ("timer", "jobs", "owed"):
        return "nothing will ever queue it"
    return ""


def _check_counts(state: QueueState) -> None:
    leaves = [leaf for queue in state.queues.values() for leaf in queue.leaves.values()]
    lanes = [lane for leaf in leaves for lane in leaf.lanes.values()]
    lines = [line for lane in lanes for line in lane.lines.values()]
    expected = {
        "in_line": sum(job.wait == "line" for job in state.jobs.values()),
        "lines": sum(len(line) for line in lines),
        "open": sum(job.open for job in state.jobs.values()),
        "parked_open": sum(request_class.open for request_class in state.classes.values() if request_class.parked),
        "parked_classes": sum(request_class.parked for request_class in state.classes.values()),
        "lane jobs": len(state.jobs),
        "fronts": sorted(first.order for lane in lanes if (first := lane.first()) is not None),
        "waiting": sum(1 for lane in lanes if lane.first() is not None),
        "running": sum(1 for job in state.jobs.values() if charged(job) and not job.open),
    }
    found = {
        "in_line": state.in_line,
        "lines": state.in_line,
        "open": state.open,
        "parked_open": state.parked_open,
        "parked_classes": sum(pool.parked_classes for pool in state.pools.values()),
        "lane jobs": sum(lane.jobs for lane in lanes),
        "fronts": sorted(order for leaf in leaves for order, _ in leaf.fronts),
        "waiting": sum(pool.waiting for pool in state.pools.values()),
        "running": sum(len(lane.running) for lane in lanes),
    }
    if expected != found:
        raise AssertionError(f"counts should be {expected}, are {found}")
    for line in lines:
        orders = [job.order for job in line]
        if orders != sorted(orders) or not orders:
            raise AssertionError(f"a line is empty or out of order: {orders[:20]}")
