"""Check of the services' snapshots against the log: each state from which a service would start must equal the fold.

An attacker with control of the bus's server can put an older or another state into the store, and a service would
continue from it. A fold of the log from its beginning detects that.
"""

from fairlead_bus import snapshots
from fairlead_bus.log import identity
from fairlead_bus.port import Bus
from fairlead_bus.snapshots import Snapshot
from fairlead_replay.archive.agreement import Disagreement
from fairlead_replay.fold import CORES, Cluster, state_hash
from fairlead_schemas.wire.commit import decode_commit


class KeptStates:
    """Comparison of kept states with the log: takes commits in order, and compares each state when the fold reaches its
    sequence.
    """

    def __init__(self, kept: list[tuple[str, Snapshot]]) -> None:
        self._kept = kept
        self._cluster = Cluster()
        self._found: list[Disagreement] = []
        self._broken = False
        self.checked = 0

    @classmethod
    async def of(cls, bus: Bus) -> "KeptStates":
        """All that belong to this log. Raises Unavailable."""
        log_id = await identity(bus)
        return cls(
            [
                (writer, kept)
                for writer, core in CORES.items()
                for kept in await snapshots.load_all(bus, writer, log_id=log_id, schema=core.schema)
            ]
        )

    def take(self, sequence: int, payload: bytes) -> None:
        """The next commit of the log."""
        if self._broken or sequence > max((kept.sequence for _, kept in self._kept), default=0):
            return
        try:
            self._cluster.evolve(sequence, decode_commit(payload))
        except Exception:  # noqa: BLE001 -- a log that is not whole may break a fold in any way, and its own check says how
            self._broken = True
            return
        for writer, kept in self._kept:
            if kept.sequence == sequence:
                self._check(writer, kept)

    def end(self) -> list[Disagreement]:
        """Return the disagreements found, including states beyond the log's end."""
        for writer, kept in self._kept:
            if kept.sequence > self._cluster.sequence and not self._broken:
                what = f"{writer}'s state is of sequence {kept.sequence}, beyond the log's end: the log was cut or set back"
                self._found.append(Disagreement("snapshot", kept.sequence, what))
        return self._found

    def _check(self, writer: str, kept: Snapshot) -> None:
        self.checked += 1
        try:
            found = state_hash(CORES[writer].restore(kept.state).snapshot())
        except Exception:  # noqa: BLE001 -- bytes that somebody else wrote; whatever they break, they are no state
            found = ""
        if found != self._cluster.state_hashes()[writer]:
            what = f"{writer}'s state that is kept for sequence {kept.sequence} is not what the log amounts to there"
            self._found.append(Disagreement("snapshot", kept.sequence, what))
