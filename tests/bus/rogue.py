"""A client with somebody's bus key that keeps to no rules, and what a node's key must not let it say or hear."""

from nats.aio.msg import Msg

from fairlead_bus import nkey, permissions
from fairlead_bus.nats.link import DirectClient
from fairlead_schemas.wire import subjects

#: Everything a node might like to say. The server must refuse to take it.
NOT_TO_BE_SAID = (
    *(subject("n2") for subject in (subjects.report, subjects.beat, subjects.sample, subjects.confirm)),
    subjects.confirm("n1"), subjects.output("n2", "7"), subjects.report("*"), "fairlead.report.>", "fairlead.report",
    subjects.log("queue"), subjects.log("placer"), subjects.log("telemetry"), subjects.log("n1"),
    subjects.cmd("queue"), subjects.cmd("placer"), subjects.ASK, subjects.rpc("queue", "state"), subjects.rpc("telemetry", "sql"),
    subjects.rpc_node("n1", "output"), subjects.rpc_node("n2", "output"),
    "$KV.DESIRED.n1", "$KV.DESIRED.n2", "$KV.SPEC.n1.abc", "$KV.LEASE.queue", "$O.SNAPSHOT.M.cXVldWU=", "$O.SNAPSHOT.C.x",
    "$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST",
    *(f"$JS.API.STREAM.{verb}.{stream}" for stream in ("LOG", "CMD", "KV_DESIRED", "SAMPLE")
      for verb in ("INFO", "PURGE", "DELETE", "UPDATE", "CREATE", "RESTORE", "SNAPSHOT", "MSG.GET", "MSG.DELETE", "PEER.REMOVE")),
    "$JS.API.STREAM.CREATE.MINE", "$JS.API.STREAM.RESTORE.MINE", "$JS.API.STREAM.TEMPLATE.CREATE.MINE",
    "$JS.API.CONSUMER.CREATE.LOG", "$JS.API.CONSUMER.CREATE.LOG.mine", "$JS.API.CONSUMER.CREATE.LOG.mine.fairlead.log.queue",
    "$JS.API.CONSUMER.DURABLE.CREATE.LOG.mine", "$JS.API.CONSUMER.CREATE.KV_DESIRED.mine", "$JS.API.CONSUMER.CREATE.OUTPUT.mine",
    "$JS.API.CONSUMER.LIST.LOG", "$JS.API.CONSUMER.NAMES.LOG", "$JS.API.CONSUMER.INFO.LOG.mine", "$JS.API.CONSUMER.DELETE.LOG.mine",
    "$JS.API.CONSUMER.MSG.NEXT.LOG.mine", "$JS.API.CONSUMER.PAUSE.LOG.mine",
    "$JS.API.DIRECT.GET.LOG", "$JS.API.DIRECT.GET.LOG.fairlead.log.queue", "$JS.API.DIRECT.GET.KV_DESIRED", "$JS.API.DIRECT.GET.KV_SPEC",
    "$JS.API.DIRECT.GET.KV_DESIRED.$KV.DESIRED.n2", "$JS.API.DIRECT.GET.KV_DESIRED.$KV.DESIRED.*", "$JS.API.DIRECT.GET.KV_DESIRED.$KV.DESIRED.>",
    "$JS.API.DIRECT.GET.KV_DESIRED.>", "$JS.API.DIRECT.GET.KV_DESIRED.$KV.>", "$JS.API.DIRECT.GET.KV_LEASE.$KV.LEASE.queue",
    "$JS.API.DIRECT.GET.KV_SPEC.$KV.SPEC.n2.abc", "$JS.API.DIRECT.GET.KV_SPEC.$KV.SPEC.*.*", "$JS.API.DIRECT.GET.KV_SPEC.$KV.SPEC.>",
    "$JS.API.META.LEADER.STEPDOWN", "$JS.API.ACCOUNT.PURGE.FAIRLEAD", "$JS.ACK.LOG.mine.1.1.1.1.1",
    "$SYS.REQ.SERVER.PING", "$SYS.REQ.ACCOUNT.FAIRLEAD.CONNZ", "$SYS.REQ.USER.INFO", "_INBOX.x", "_R_.x.y", ">", "*",
)  # fmt: skip
#: Everything a node might like to hear. The server must refuse the subscription.
NOT_TO_BE_HEARD = (
    ">", "*", "fairlead.>", "*.>", "fairlead.*.*", subjects.confirm("n2"), subjects.confirm("*"), "fairlead.confirm.>",
    subjects.REPORTS, subjects.BEATS, subjects.report("n1"), subjects.report("n2"), subjects.LOG_ALL, subjects.CMD_ALL,
    subjects.OUTPUT_ALL, subjects.SAMPLE_ALL, "$KV.DESIRED.n2", "$KV.DESIRED.*", "$KV.DESIRED.>", "$KV.>", "$KV.SPEC.n1.*", "$KV.LEASE.*",
    subjects.rpc_node("n2", "output"), subjects.rpc_node("*", "output"), "fairlead.rpc.>", subjects.ASK,
    "_INBOX.>", "_INBOX*", "_R_.>", "$SYS.>", "$SYS.ACCOUNT.>", "$JS.>", "$JS.API.>", "$JS.EVENT.>", "$O.>",
)  # fmt: skip


class Rogue:
    """A client with a node's key that keeps to no rules, and hears what the server says of that."""

    def __init__(self, key: nkey.KeyPair) -> None:
        self.key = key
        self.client = DirectClient(key)
        self.refusals: list[str] = []
        self.heard: list[Msg] = []

    async def connect(self, url: str) -> "Rogue":
        async def refused(error: Exception) -> None:
            self.refusals.append(str(error))

        inbox = permissions.inbox(self.key.public)
        await self.client.connect(
            servers=[url],
            nkeys_seed_str=self.key.seed,
            inbox_prefix=inbox,
            error_cb=refused,
            allow_reconnect=False,
            skip_subject_validation=True,
        )
        return self

    async def says(self, subject: str, payload: bytes = b"x", reply: str = "", **headers: str) -> bool:
        """Whether the server took it."""
        before = len(self.refusals)
        await self.client.publish(
            subject, payload, reply, headers={name.replace("_", "-"): text for name, text in headers.items()} or None
        )
        await self.client.flush()
        return len(self.refusals) == before

    async def listens(self, subject: str, queue: str = "") -> bool:
        """Whether the server allowed the subscription; what comes is in `heard`."""

        async def hear(message: Msg) -> None:
            self.heard.append(message)

        before = len(self.refusals)
        await self.client.subscribe(subject, queue=queue, cb=hear)
        await self.client.flush()
        return len(self.refusals) == before
