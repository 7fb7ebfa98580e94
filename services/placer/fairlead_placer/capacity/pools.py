"""The pools that nodes belong to, each with its index; and when what could be placed last grew.

Derived from the nodes, and from how pools are to be packed. A pool is there while it has a node.
"""

from collections.abc import Mapping

from fairlead_placer.capacity.asks import asks_of
from fairlead_placer.capacity.builds import Builds
from fairlead_placer.capacity.index import Index
from fairlead_placer.entities import Node, pool_of
from fairlead_placer.packing.policies import DEFAULT
from fairlead_placer.packing.typical import Arrivals
from fairlead_schemas.queuefile.settings import Packing
from fairlead_schemas.wire.resources import Request


class Pools:
    """The index of every pool, under one version for all."""

    def __init__(self, packings: Mapping[str, Packing]) -> None:
        """Build the pools. `packings`: {pool: its policy} of pools that do not use the default one; code that changes it must
        call `repacked`.
        """
        self._packings = packings
        self._indices: dict[str, Index] = {}
        self.builds = Builds()
        #: Rises with everything that could make a placement possible that was not.
        self.version = 0
        #: The version at which a pool last lost its last node.
        self._vanished = 0
        self._nowhere = Index()

    def of(self, request: Request) -> Index:
        """The index of the request's pool (an empty one where there is no such pool)."""
        index = self._indices.get(pool_of(request), self._nowhere)
        return index.settled() if index.unsettled else index

    def each(self) -> dict[str, Index]:
        """{pool: its index}."""
        return {pool: index.settled() for pool, index in self._indices.items()}

    def enter(self, node: Node) -> None:
        """Add a node that is in no pool yet: every class of its pool looks again."""
        index = self._indices.get(node.pool)
        if index is None:
            index = self._indices[node.pool] = Index(self._packings.get(node.pool, DEFAULT))
        index.add(node)
        self._stir(index)

    def leave(self, node: Node) -> None:
        """The node is no longer of its pool (a refusal's reasons are others, too)."""
        index = self._indices[node.pool]
        index.discard(node)
        self._stir(index)
        if not index.members:
            del self._indices[node.pool]
            self._vanished = self.version

    def changed(self, node: Node) -> None:
        """Update a node that starts or stops taking work, or that was seen again."""
        index = self._indices[node.pool]
        index.put(node)
        self._stir(index)

    def repacked(self, pool: str) -> None:
        """Change the pool to another policy. The possible placements stay the same, so no job needs to look again."""
        index = self._indices.get(pool)
        if index is not None:
            index.choose_by(self._packings.get(pool, DEFAULT))

    def _stir(self, index: Index) -> None:
        self.version += 1
        index.stirred = self.version

    def put(self, node: Node) -> None:
        """Bring the node to where it belongs now."""
        self._indices[node.pool].unsettled[node.name] = node  # as Index.put: this is done for every unit

    def gained(self, node: Node) -> None:
        """The node has more than before: bring it to where it belongs now."""
        index = self._indices[node.pool]
        index.unsettled[node.name] = node
        self.version += 1
        if node.keeper:
            index.lent = self.version
        elif node.open:
            index.gained(node, self.version)

    def stir_offers(self) -> None:
        """There is something more to decide; capacity is what it was."""
        self.version += 1

    def gained_since(self, request: Request, work: Arrivals[Request], version: int) -> bool:
        """True when a node that the request could use has gained since `version`, or its pool is another."""
        return self._vanished > version or self.of(request).gained_since(asks_of(request), work, version)

    def tidy(self) -> None:
        """Forget what no node needs any more; not while a decision is tried."""
        for index in self._indices.values():
            index.tidy(self.version)
