"""What agents say to each other about a run of both goes through here: nodes reach the services, and each other not at all.

Whoever speaks is named by the subject, where the server lets each node speak as itself only; the one spoken to is told by a
service, and so can believe the name. Nothing is decided or kept: any placer's process does it, leading or not.
"""

import msgspec

from fairlead_bus.port import Bus, Message, Unavailable
from fairlead_schemas import subjects
from fairlead_schemas.gangs import GangAnswer, GangReply, encode_gang

#: Longer than an agent holds an answer back, shorter than the other waits for it.
ANSWER_S = 4.0
GROUP = "placer"


class Relay:
    """Asks in a node's name."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def open(self) -> None:
        """Take part."""
        await self._bus.serve(subjects.GANGS, self._on_call, group=GROUP)

    async def _on_call(self, message: Message) -> bytes:
        speaker, node = subjects.parse_gang(message.subject)
        try:
            heard = encode_gang(GangReply(speaker=speaker, call=msgspec.Raw(message.payload)))
            return await self._bus.request(subjects.rpc_node(node, "gang"), heard, timeout_s=ANSWER_S)
        except Unavailable:
            return encode_gang(GangAnswer())  # it is asked again
