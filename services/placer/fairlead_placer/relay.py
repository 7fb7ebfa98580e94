"""Relay for messages between agents about a run that both share: nodes reach the services, but not each other.

The subject names the sender, because the server lets each node publish as itself only. The receiver gets the name from
a service, and so can trust it. The relay decides and keeps no state: any placer process serves it, leading or not.
"""

import msgspec

from fairlead_bus.port import Bus, Message, Unavailable
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.rank_rpc import GangAnswer, GangReply, encode_gang

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
