"""Who stands where in a queue's lines."""

from tests.kit.queue_world import QueueWorld


def order(world: QueueWorld, path: str) -> list[str]:
    """Jobs in a queue's lines, first to last."""
    jobs = [
        job
        for leaf in world.state.queues[path].leaves.values()
        for lane in leaf.lanes.values()
        for job in lane.waiting()
    ]
    return [job.id for job in sorted(jobs, key=lambda job: job.order)]


def closed(world: QueueWorld, path: str = "closed") -> str:
    """A queue in which everybody waits."""
    world.quota(path, 0)
    return path
