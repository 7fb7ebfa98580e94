"""Commands, commits and reports decode strictly; what does not is set aside or stops the reader, never guessed."""

from collections.abc import Callable

import msgspec
import pytest

from fairlead_schemas.wire.commands import (
    CancelJob,
    CordonNode,
    MoveJob,
    Undecodable,
    decode_commands,
    digest_of,
    encode_commands,
)
from fairlead_schemas.wire.commit import CommitUndecodable, commit_hash, decode_commit, decode_envelope, encode_commit
from fairlead_schemas.wire.desired import decode_desired
from fairlead_schemas.wire.reports import decode_ack, decode_heartbeat, decode_reports
from fairlead_schemas.wire.samples import decode_samples
from tests.schemas import examples

CANCEL = b'{"id":"c1","job":"812","type":"CancelJob"}'


def test_commands_travel_in_order() -> None:
    """A message comes back as it was."""
    sent = [CancelJob(id="c1", job="1"), MoveJob(id="c2", job="1", queue="a"), CancelJob(id="c3", job="2")]
    assert decode_commands("queue", encode_commands(sent)) == sent


@pytest.mark.parametrize(
    "bad",
    [
        b'{"type":"CancelJob","id":"c2","job":"1","force":true}',
        b'{"type":"CancelJob","id":"c2","job":1}',
        b'{"type":"CancelJob","id":"c2"}',
        b'{"type":"DestroyJob","id":"c2"}',
        b'{"type":"CordonNode","id":"c2","node":"n1"}',  # the placer's, not the queue's
        b'{"id":"c2"}',
    ],
)
def test_a_bad_command_spoils_only_itself(bad: bytes) -> None:
    """Its neighbours are carried out; it keeps its place, its id and the digest of its bytes."""
    decoded = decode_commands("queue", b"[" + CANCEL + b"," + bad + b"," + CANCEL + b"]")
    good = CancelJob(id="c1", job="812")
    assert (decoded[0], decoded[2]) == (good, good)
    assert isinstance(decoded[1], Undecodable)
    assert (decoded[1].id, decoded[1].digest) == ("c2", digest_of(bad))
    assert decoded[1].message


@pytest.mark.parametrize("payload", [b"", b"x", b"{}", b'"c1"', b"[1,", b"\xff\xfe", b"[" * 100_000])
def test_a_message_that_is_no_list_is_one_undecodable(payload: bytes) -> None:
    """The whole message is set aside under its digest; nothing raises."""
    (decoded,) = decode_commands("queue", payload)
    assert isinstance(decoded, Undecodable)
    assert decoded.digest == digest_of(payload)


def test_an_undecodable_commands_id_is_bounded() -> None:
    """Unknown clients cannot write ids of any length into the log."""
    (decoded,) = decode_commands("placer", b'[{"id":"' + b"x" * 5000 + b'"}]')
    assert isinstance(decoded, Undecodable)
    assert len(decoded.id) <= 80
    assert len(decoded.message) <= 500


def test_each_service_reads_its_own_commands_only() -> None:
    """A command on another's subject is undecodable there."""
    payload = encode_commands([CordonNode(id="c1", node="n1")])
    assert decode_commands("placer", payload) == [CordonNode(id="c1", node="n1")]
    assert isinstance(decode_commands("queue", payload)[0], Undecodable)


def changed(**fields: object) -> bytes:
    """The example commit with fields replaced or, by None, removed."""
    document = msgspec.json.decode(encode_commit(examples.COMMIT))
    for name, value in fields.items():
        if value is None:
            del document[name]
        else:
            document[name] = value
    return msgspec.json.encode(document)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{}",
        b"\xff",
        changed(v=1),
        changed(v=None),
        changed(prev=None),
        changed(extra=1),
        changed(n="1"),
        changed(at_ns=1.5),
        changed(events=[{"type": "JobVanished", "cause": "clock"}]),
        changed(events=[{"type": "NodeDrained", "cause": "clock", "node": "n1", "mood": "good"}]),
        changed(events=[{"type": "NodeDrained", "node": "n1"}]),
    ],
    ids=lambda payload: repr(payload[:60]),
)
def test_a_commit_out_of_contract_stops_the_reader(payload: bytes) -> None:
    """An unknown type, version or field is never skipped."""
    with pytest.raises(CommitUndecodable):
        decode_commit(payload)


def test_an_envelope_passes_what_it_does_not_look_into() -> None:
    """Those who only check the chain read a commit whose events they do not know."""
    envelope = decode_envelope(changed(events=[{"type": "JobVanished"}]))
    assert (envelope.writer, envelope.n, len(envelope.events)) == ("placer", 1, 1)
    with pytest.raises(CommitUndecodable):
        decode_envelope(changed(v=1))


def test_one_changed_bit_changes_the_hash() -> None:
    """The chain is over bytes."""
    payload = encode_commit(examples.COMMIT)
    flipped = payload[:-3] + bytes([payload[-3] ^ 1]) + payload[-2:]
    assert commit_hash(flipped) != commit_hash(payload) == commit_hash(encode_commit(decode_commit(payload)))


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        (
            b'{"node":"n1","incarnation":"i1","reports":[{"type":"CleanSeen","n":1,"job":"1","attempt":1}]}',
            "reports[0]",
        ),
        (b'{"node":"n1","incarnation":"i1","reports":[{"type":"Gossip","n":1}]}', "reports[0]"),
        (b'{"node":"n1","incarnation":"i1","reports":{}}', "reports"),
        (b'{"node":"n1","reports":[]}', "incarnation"),
    ],
)
def test_a_bad_report_is_refused_by_path(payload: bytes, path: str) -> None:
    """The message says where."""
    with pytest.raises(msgspec.ValidationError, match=path.replace("[", r"\[")):
        decode_reports(payload)


@pytest.mark.parametrize("decode", [decode_reports, decode_heartbeat, decode_ack, decode_desired, decode_samples])
@pytest.mark.parametrize(
    "payload", [b"", b"\xff", b'{"node":"\xff"}', b"[" * 100_000, b'{"x":' * 100_000], ids=lambda p: repr(p[:20])
)
def test_bytes_of_unknown_clients_raise_one_kind_of_error(decode: Callable[[bytes], object], payload: bytes) -> None:
    """Deep nesting and broken text are decoding errors like any other: no message can stop a service."""
    with pytest.raises(msgspec.MsgspecError):
        decode(payload)
