"""Bus as an AsyncAPI 3.1 document: channels, messages, their senders, and their storage.

AsyncAPI's NATS binding knows queues only, so the facts of JetStream are under `x-jetstream`. Addresses come
from `subjects` and schemas from the types, so that each fact has one source. A channel without an address is
the inbox that a request names for its answer.
"""

from typing import Any, NamedTuple

from fairlead_schemas.http.json_schema import Desired, components
from fairlead_schemas.queries import explainer
from fairlead_schemas.wire import access_records, commands, commit, rank_rpc, reports, samples, subjects

_SCHEMAS = "#/components/schemas/{name}"

_LOG = {
    "stream": subjects.LOG,
    "discard": "new",
    "durable": True,
    "deleteAndPurge": "denied",
    "fence": "Nats-Expected-Last-Subject-Sequence, one writer per subject",
}
_CMD = {"stream": subjects.CMD, "discard": "new", "durable": True, "retention": "age"}
_LOSSY = {"discard": "old", "durable": False, "cursor": "numbers and offsets inside the messages"}


class Channel(NamedTuple):
    """Channel for one subject, or for a family of subjects."""

    name: str
    address: str | None
    message: str
    payload: Any
    sender: str
    summary: str
    #: None: core NATS, never stored.
    jetstream: dict[str, Any] | None = None
    #: Name of the channel on which an answer comes.
    answer: str = ""
    content: str = "application/json"


def channels() -> list[Channel]:
    """Everything that crosses the bus."""
    log = [
        Channel(f"log.{writer}", subjects.log(writer), "Commit", commit.Commit, writer,
                "The truth: the events of one decision per message, chained and fenced.", _LOG)
        for writer in subjects.WRITERS
    ]  # fmt: skip
    queue, placer = list[commands.QueueCommand], list[commands.PlacerCommand]
    telemetry, access = list[commands.TelemetryCommand], list[commands.AccessCommand]
    storage = list[commands.StorageCommand]
    return [
        *log,
        Channel("cmd.queue", subjects.cmd("queue"), "QueueCommands", queue, "gateway",
                "What people ask of the queue, a list per message.", _CMD),
        Channel("cmd.placer", subjects.cmd("placer"), "PlacerCommands", placer, "gateway",
                "What people ask of the placer, a list per message.", _CMD),
        Channel("cmd.telemetry", subjects.cmd("telemetry"), "TelemetryCommands", telemetry, "gateway",
                "What people ask of the telemetry service, a list per message.", _CMD),
        Channel("cmd.access", subjects.cmd("access"), "AccessCommands", access, "gateway",
                "Sign-ins, and what people ask of the access service, a list per message.", _CMD),
        Channel("cmd.storage", subjects.cmd("storage"), "StorageCommands", storage, "gateway",
                "What people ask of the storage service, a list per message.", _CMD),
        Channel("report", subjects.report("{node}"), "ReportBatch", reports.ReportBatch, "agent",
                "What an agent saw; numbered, kept in its journal and sent again until confirmed."),
        Channel("beat", subjects.beat("{node}"), "Heartbeat", reports.Heartbeat, "agent",
                "The agent is alive."),
        Channel("confirm", subjects.confirm("{node}"), "ReportAck", reports.ReportAck, "placer",
                "Reports up to a number are committed; the node's lease is renewed."),
        Channel("sample", subjects.sample("{node}"), "SampleColumns", samples.SampleColumns, "agent",
                "Measurements, as columns; a loss is counted by the batch number.", {"stream": subjects.SAMPLE, **_LOSSY},
                content="application/msgpack"),
        Channel("output", subjects.outputs_of_node("{node}").replace("*", "{shard}"),
                "OutputPiece", reports.OutputPiece, "agent",
                f"Standard output and error of a rank. The shard is CRC-32 of the job's id modulo {subjects.OUTPUT_SHARDS}.", {"stream": subjects.OUTPUT, **_LOSSY}),
        Channel("audit", subjects.audit("{principal}"), "AccessRecord", access_records.AccessRecord, "gateway",
                "Sign-ins, denials and reads of others' things; a chain for each person, erased as a whole.",
                {"stream": subjects.AUDIT, "discard": "old", "durable": True}),
        Channel("desired", f"$KV.{subjects.DESIRED}.{{node}}", "Desired", Desired, "placer",
                "Everything that should be on the node now.", {"bucket": subjects.DESIRED, "durable": False}),
        Channel("gang", subjects.gang("{speaker}", "{node}"), "GangCall", rank_rpc.GangCall, "agent",
                "Ranks of one run on several nodes meet before they start, and start each other's daemons.", answer="gang.answer"),
        Channel("gang.heard", subjects.rpc_node("{node}", "gang"), "GangReply", rank_rpc.GangReply, "placer",
                "The same, passed on with the name of who spoke.", answer="gang.answer"),
        Channel("gang.answer", None, "GangAnswer", rank_rpc.GangAnswer, "agent",
                "Whether it may begin, or was taken up."),
        Channel("ask", subjects.ASK, "Ask", explainer.Ask, "gateway",
                "A question to the folded state; of those who answer, one does.", answer="ask.answer"),
        Channel("ask.answer", None, "Answer", explainer.ExplainerAnswer, "explainer",
                "The answer to a question, true for the log sequence that it states."),
    ]  # fmt: skip


def document() -> dict[str, Any]:
    """The AsyncAPI document."""
    found = channels()
    references, schemas = components([channel.payload for channel in found], _SCHEMAS)
    return {
        "asyncapi": "3.1.0",
        "info": {
            "title": "Fairlead's bus",
            "version": "1",
            "description": "NATS subjects and what they carry. JSON in UTF-8 unless a message specifies otherwise, integers only.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": {channel.name: _channel(channel) for channel in found},
        "operations": {f"send.{channel.name}": _operation(channel) for channel in found},
        "components": {
            "messages": {
                channel.message: {"name": channel.message, "contentType": channel.content, "payload": reference}
                for channel, reference in zip(found, references, strict=True)
            },
            "schemas": schemas,
        },
    }


def _channel(channel: Channel) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "address": channel.address,
        "summary": channel.summary,
        "messages": {channel.message: {"$ref": f"#/components/messages/{channel.message}"}},
        "x-jetstream": channel.jetstream or {"stored": False},
    }
    names = [part[1:-1] for part in (channel.address or "").split(".") if part.startswith("{")]
    if names:
        shown["parameters"] = {name: {"description": f"the {name}"} for name in names}
    return shown


def _operation(channel: Channel) -> dict[str, Any]:
    reply = {"reply": {"channel": {"$ref": f"#/channels/{channel.answer}"}}} if channel.answer else {}
    return {
        "action": "send",
        "channel": {"$ref": f"#/channels/{channel.name}"},
        "summary": f"sent by {channel.sender}",
    } | reply
