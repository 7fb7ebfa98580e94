"""Before-images for the undo log: the parts of the state that a decision changes while it tries offers.

An image holds absolute values and is noted before the first change, so it restores a state in which a change was made in
part. It is taken once for a decision, not once for a change: a thousand charges of one leaf cost one image.

    uses        usage of single nodes, and the resources that their jobs need
    charges     usage and held amounts from a leaf's node up to the root
    turn        a leaf's place in the order: `front`, `closed`
    leaf        its place, the first jobs of its lanes, and the resources that its jobs need
    line        a lane's first job, and the counts of its lane, class and pool
"""

from collections.abc import Iterable

from fairlead_bus.undo_log import UndoLog
from fairlead_queue.fairness.tree import QueueNode
from fairlead_queue.waiting.pending import Lane, Leaf, LiveJob, PoolState


def image_charges(log: UndoLog, lane: Lane, imaged: set[QueueNode]) -> None:
    """Note what is charged to a lane's leaf and to every queue above it, up to the first one in `imaged`: those of this
    decision that have an image. Added there."""
    leaf = lane.leaf.node
    images: list[tuple[QueueNode, list[int], list[int] | None]] = []
    node: QueueNode | None = leaf
    while node is not None and node not in imaged:
        images.append((node, node.usage.copy(), None if node.held is node.usage else node.held.copy()))
        node = node.parent
    log.note(_restore_charges, lane.request_class.pool, leaf, images)
    imaged.update([image[0] for image in images])


def _restore_charges(
    pool: PoolState, leaf: QueueNode, images: list[tuple[QueueNode, list[int], list[int] | None]]
) -> None:
    for node, usage, held in images:
        node.usage[:] = usage
        if held is not None:
            node.held[:] = held
    pool.forget_refusals(leaf)  # noted at higher charges
    pool.ranking.touch(leaf)


def image_uses(log: UndoLog, nodes: Iterable[QueueNode]) -> None:
    """Note what is charged to each of these nodes alone, and what its jobs need. The order of queues must not be asked before
    they are restored.
    """
    log.note(_restore_uses, [(node, node.usage.copy(), node.wants.copy()) for node in nodes])


def _restore_uses(images: list[tuple[QueueNode, list[int], dict[int, int]]]) -> None:
    for node, usage, wants in images:
        node.usage[:], node.wants = usage, wants


def image_turn(log: UndoLog, pool: PoolState, node: QueueNode) -> None:
    """Note a leaf's place in the order."""
    log.note(_restore_turn, pool, node, node.front, node.closed)


def _restore_turn(pool: PoolState, node: QueueNode, front: int, closed: bool) -> None:
    if (node.front, node.closed) != (front, closed):
        node.front, node.closed = front, closed
        pool.ranking.touch(node)


def image_leaf(log: UndoLog, pool: PoolState, leaf: Leaf) -> None:
    """Note the first jobs of a leaf's lanes, what its jobs need, and its place in the order."""
    node = leaf.node
    image_turn(log, pool, node)
    log.note(_restore_leaf, pool, leaf, leaf.fronts.copy(), node.wants.copy())


def _restore_leaf(pool: PoolState, leaf: Leaf, fronts: list[tuple[int, LiveJob]], wants: dict[int, int]) -> None:
    leaf.fronts, leaf.node.wants = fronts, wants
    pool.ranking.touch(leaf.node)


def image_line(log: UndoLog, lane: Lane) -> None:
    """Note a lane's first job, and the counts of its lane, class and pool."""
    request_class = lane.request_class
    pool = request_class.pool
    log.note(_restore_line, lane, lane.front, lane.jobs, request_class.jobs, request_class.waiting, pool.waiting)


def _restore_line(lane: Lane, front: int, jobs: int, class_jobs: int, class_waiting: int, pool_waiting: int) -> None:
    request_class = lane.request_class
    lane.front, lane.jobs = front, jobs
    request_class.jobs, request_class.waiting, request_class.pool.waiting = class_jobs, class_waiting, pool_waiting
