"""The streams, buckets and stores that there are, as data. Both adapters build and check these.

The log is never async and never trimmed; what may lose a tail (samples, output, and the derived desired
state) is not fsynced per message. With several copies of each stream there is no such mode: there, derived and
short-lived contents are held in memory, everything else in files (docs/adr/0019-replicated-stream-storage.md).
What the server makes of these settings: docs/reference/facts.md.
"""

import os
from collections.abc import Mapping
from typing import NamedTuple

from fairlead_bus.environment_settings import whole
from fairlead_schemas.wire import samples, subjects

MIB = 2**20
#: Commits are at most 256 KiB; the rest is headroom for a single large event.
MESSAGE_BYTES_MAX = MIB
LOG_BYTES_DEFAULT = 8 * 1024 * MIB
LOG_BYTES_LEAST, LOG_BYTES_MOST = 2**16, 2**50
#: Most copies of a stream that the server makes.
COPIES_MAX = 5
DUPLICATE_WINDOW_S = 120
WEEK_S = 7 * 86400
#: The size limit of SAMPLE where it is held in the memory of several servers: minutes of thousands of nodes.
SAMPLE_MEMORY_BYTES = 256 * MIB
#: Largest sample, and how many of one node are kept: 128 MiB of each node at most, half an hour at one per second.
SAMPLE_BYTES_MAX, SAMPLES_OF_NODE_MAX = samples.PAYLOAD_BYTES_MAX, 2048
#: How long the record of access is kept, and most records of one person.
AUDIT_DAYS_DEFAULT, AUDIT_RECORDS_OF_PERSON_MAX = 90, 20_000
#: How long a piece of a directory is kept after it was last sent, and how many bytes the bus keeps of all pieces.
PIECE_DAYS_DEFAULT, PIECE_BYTES_DEFAULT = 30, 4 * 1024 * MIB
PIECE_BYTES_LEAST, PIECE_BYTES_MOST = 64 * MIB, 2**50
#: Largest piece of output as a message, and how many are kept of each of a node's subjects: 384 MiB of each node at most.
OUTPUT_MESSAGE_BYTES_MAX, OUTPUTS_OF_SUBJECT_MAX = 24 * 1024, 512


class StreamSpec(NamedTuple):
    """Required settings of one stream."""

    name: str
    subjects: tuple[str, ...]
    bytes_max: int
    #: True: refuse when full; False: drop the oldest.
    refuse_when_full: bool
    age_max_s: int = 0
    #: False: a crash of the server may lose the newest messages (and reuse their sequences).
    durable: bool = True
    #: True: no client can delete or purge messages.
    sealed: bool = False
    #: False: `bytes_max` applies only when the stream is created; an existing stream keeps its configured limit.
    resize: bool = True
    #: Above 0: several copies are held in memory, and this is their size limit.
    memory_bytes_max: int = 0
    message_bytes_max: int = MESSAGE_BYTES_MAX
    #: Above 0: beyond this, the oldest message of the same subject goes, so that no writer pushes others' out.
    messages_of_subject_max: int = 0


class BucketSpec(NamedTuple):
    """Bucket of last values."""

    name: str
    durable: bool
    #: True: several copies are held in memory.
    in_memory: bool = False
    ttl: bool = False
    #: May be read by subject alone, from any copy (`Bus.peek`): the only question that a node's permissions can bind
    #: to one key, since a subject can be allowed and a request's body cannot.
    peekable: bool = False
    #: 0: values stay until they are replaced.
    age_max_s: int = 0
    #: Above 0: beyond it, puts are refused.
    bytes_max: int = 0


def log_cap(env: Mapping[str, str]) -> int:
    """FAIRLEAD_LOG_MAX_BYTES. Raises BadSetting."""
    return whole(
        env, "FAIRLEAD_LOG_MAX_BYTES", LOG_BYTES_DEFAULT, unit="bytes", least=LOG_BYTES_LEAST, most=LOG_BYTES_MOST
    )


def audit_days(env: Mapping[str, str]) -> int:
    """FAIRLEAD_AUDIT_DAYS: how long the record of access is kept. Raises BadSetting."""
    return whole(env, "FAIRLEAD_AUDIT_DAYS", AUDIT_DAYS_DEFAULT, unit="days", least=1, most=3650)


def piece_days(env: Mapping[str, str]) -> int:
    """FAIRLEAD_PIECE_DAYS: how long pieces of directories are kept. Raises BadSetting."""
    return whole(env, "FAIRLEAD_PIECE_DAYS", PIECE_DAYS_DEFAULT, unit="days", least=2, most=3650)


def piece_cap(env: Mapping[str, str]) -> int:
    """FAIRLEAD_PIECE_MAX_BYTES: how much the bus keeps of pieces of directories. Raises BadSetting."""
    return whole(
        env,
        "FAIRLEAD_PIECE_MAX_BYTES",
        PIECE_BYTES_DEFAULT,
        unit="bytes",
        least=PIECE_BYTES_LEAST,
        most=PIECE_BYTES_MOST,
    )


def requested_copies(env: Mapping[str, str]) -> int | None:
    """FAIRLEAD_NATS_REPLICAS; None where it is not set: such a process leaves the copies as they are. Raises BadSetting."""
    if not env.get("FAIRLEAD_NATS_REPLICAS"):
        return None
    return whole(env, "FAIRLEAD_NATS_REPLICAS", 1, unit="servers", least=1, most=COPIES_MAX)


def stream_specs(log_bytes_max: int | None = None) -> tuple[StreamSpec, ...]:
    """Return all streams. The log's hard cap is FAIRLEAD_LOG_MAX_BYTES (default 8 GiB) unless given. Raises BadSetting.

    Only a process with an explicit cap changes the cap of an existing log. Every process ensures the streams, an agent
    without the variable too, and the default would undo the operator's choice.
    """
    cap = log_bytes_max or log_cap(os.environ)
    is_explicit = bool(log_bytes_max or os.environ.get("FAIRLEAD_LOG_MAX_BYTES"))
    return (
        StreamSpec(subjects.LOG, (subjects.LOG_ALL,), cap, refuse_when_full=True, sealed=True, resize=is_explicit),
        StreamSpec(subjects.CMD, (subjects.CMD_ALL,), 1024 * MIB, refuse_when_full=True, age_max_s=WEEK_S),
        # Passes through on its way to the warehouse.
        StreamSpec(
            subjects.SAMPLE,
            (subjects.SAMPLE_ALL,),
            512 * MIB,
            refuse_when_full=False,
            durable=False,
            memory_bytes_max=SAMPLE_MEMORY_BYTES,
            message_bytes_max=SAMPLE_BYTES_MAX,
            messages_of_subject_max=SAMPLES_OF_NODE_MAX,
        ),
        # Read for a week: with several copies in files, since a gigabyte of each server's memory costs more than the
        # fsyncs do.
        StreamSpec(
            subjects.OUTPUT,
            subjects.output_shards(),
            1024 * MIB,
            refuse_when_full=False,
            age_max_s=WEEK_S,
            durable=False,
            message_bytes_max=OUTPUT_MESSAGE_BYTES_MAX,
            messages_of_subject_max=OUTPUTS_OF_SUBJECT_MAX,
        ),
        # A person who floods it pushes out their own records only, until all of it is full.
        StreamSpec(
            subjects.AUDIT,
            (subjects.AUDIT_ALL,),
            1024 * MIB,
            refuse_when_full=False,
            age_max_s=audit_days(os.environ) * 86400,
            messages_of_subject_max=AUDIT_RECORDS_OF_PERSON_MAX,
        ),
    )


def bucket_specs() -> tuple[BucketSpec, ...]:
    """Return all buckets, with the bounds that the environment sets. Raises BadSetting."""
    pieces = BucketSpec(
        subjects.PIECE,
        durable=True,
        peekable=True,
        age_max_s=piece_days(os.environ) * 86400,
        bytes_max=piece_cap(os.environ),
    )
    return (*BUCKETS, pieces)


#: Buckets without settings of their own.
BUCKETS = (
    # Derived from the log and written again whenever in doubt: no fsync per put (docs/adr).
    BucketSpec(subjects.DESIRED, durable=False, in_memory=True, peekable=True),
    # Job files that are too large for desired state, by node and hash. Stored once, wanted when a run starts.
    BucketSpec(subjects.SPEC, durable=True, peekable=True, age_max_s=WEEK_S),
    # Not the fence: after the loss of all servers at once, the lease is taken again.
    BucketSpec(subjects.LEASE, durable=True, in_memory=True, ttl=True),
    # What must be erasable, so no part of the log (docs/adr/0022-rights-in-the-log.md).
    BucketSpec(subjects.PEOPLE, durable=True),
    BucketSpec(subjects.CREDENTIAL, durable=True),
    BucketSpec(subjects.NOTIFY, durable=True),
)
STORES = (subjects.SNAPSHOT,)
