"""The families of types on the wire, one for each golden file, and how their objects are written and read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fairlead_schemas.queries import explainer
from fairlead_schemas.wire import commands, commit, desired, events, rank_rpc, reports, samples
from tests.schemas import examples

GOLDEN = Path(__file__).parent / "golden"
_canonical = msgspec.json.Encoder(order="deterministic").encode


class Family(NamedTuple):
    """One golden file: objects, and how each is written and read."""

    name: str
    objects: list[Any]
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


def reader(union: Any) -> Callable[[bytes], Any]:
    return msgspec.json.Decoder(union).decode


FAMILIES = [
    Family("events", examples.EVENTS, _canonical, reader(events.Event)),
    Family(
        "commands",
        examples.COMMANDS,
        _canonical,
        reader(
            commands.QueueCommand
            | commands.PlacerCommand
            | commands.TelemetryCommand
            | commands.AccessCommand
            | commands.StorageCommand
        ),
    ),
    Family("reports", examples.REPORTS, _canonical, reader(reports.Report)),
    Family("heartbeat", [examples.BEAT], reports.encode, reports.decode_heartbeat),
    Family("report_ack", [examples.CONFIRM], reports.encode, reports.decode_ack),
    Family("output", [examples.PIECE], reports.encode, reader(reports.OutputPiece)),
    Family("read_output", [examples.WANTED], reports.encode, reader(reports.ReadOutput)),
    Family("samples", [samples.columns_of(examples.SAMPLES)], _canonical, reader(samples.SampleColumns)),
    Family("desired", [examples.DESIRED], desired.encode_desired, desired.decode_desired),
    Family("gang_calls", examples.GANG_CALLS, rank_rpc.encode_gang, rank_rpc.decode_call),
    Family("gang_reply", [examples.GANG_HEARD], rank_rpc.encode_gang, reader(rank_rpc.GangReply)),
    Family("gang_answer", [examples.GANG_ANSWER], rank_rpc.encode_gang, rank_rpc.decode_answer),
    Family("ask", examples.ASKS, explainer.encode, explainer.decode_ask),
    Family("answer", [examples.ANSWER], explainer.encode, explainer.decode_answer),
    Family("commit", [examples.COMMIT], commit.encode_commit, commit.decode_commit),
]
