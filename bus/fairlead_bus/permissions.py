"""Permissions on the bus: one table of allow-lists for nodes and for services.

One account of the server has the streams and the services. Each node has an account of its own, and reaches of the
services' account only what `crossings` lists. The reason is that a server does not check a request's reply subject. A
node within the services' account could have an acknowledgement sent into the log. A node in one account with other
nodes could have one sent to them, whatever it may publish itself (docs/reference/facts.md). Between accounts a reply
leads back to the origin of the request.

Pure: subjects in, subjects out. `bus_users.py` turns them into the server's settings.
"""

from typing import Literal, NamedTuple

from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.conditions import ALIVE

#: A program that plays many nodes is one user under this name.
EVERY_NODE = "*"


#: Streams whose copies the gateway reports.
COPIED = (
    subjects.LOG,
    subjects.CMD,
    subjects.SAMPLE,
    subjects.OUTPUT,
    subjects.AUDIT,
    *(f"KV_{bucket}" for bucket in (subjects.DESIRED, subjects.SPEC, subjects.LEASE, subjects.PEOPLE, subjects.PIECE)),
    f"OBJ_{subjects.SNAPSHOT}",
)


class Crossing(NamedTuple):
    """Part of the services' account that a node reaches. service: the node may publish and request; stream: it may subscribe."""

    kind: Literal["service", "stream"]
    subject: str


def crossings(node: str) -> tuple[Crossing, ...]:
    """All that leads from a node to the services and back."""
    desired, specs = f"$KV.{subjects.DESIRED}.{node}", f"$KV.{subjects.SPEC}.{node}.*"
    return (
        Crossing("service", subjects.report(node)),
        Crossing("service", subjects.beat(node)),
        Crossing("service", subjects.sample(node)),
        Crossing("service", subjects.outputs_of_node(node)),
        # By subject, without a wildcard for the node: a question with a body, or for another key, is one of another subject.
        Crossing("service", f"$JS.API.DIRECT.GET.KV_{subjects.DESIRED}.{desired}"),
        Crossing("service", f"$JS.API.DIRECT.GET.KV_{subjects.SPEC}.{specs}"),
        # By wildcard a node gets pieces that it does not know: they are sealed, and who knows no digest cannot read them (ADR 0024).
        Crossing("service", f"$JS.API.DIRECT.GET.KV_{subjects.PIECE}.$KV.{subjects.PIECE}.{subjects.piece_key('*')}"),
        # The placer's process passes it on, as this speaker's: a rank of a gang asks another's node.
        Crossing("service", subjects.gang(node, "*")),
        Crossing("service", subjects.volumes(node)),
        Crossing("stream", subjects.confirm(node)),
        Crossing("stream", desired),
    )


def request_subject(node: str) -> str:
    """Return the subject on which services send requests to a node."""
    return subjects.rpc_node(node, "*")


class Permissions(NamedTuple):
    """Subjects that one user may publish and subscribe to, in addition to the inbox of its own key."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...] = ()
    #: May answer what it was asked (each request once).
    answers: bool = False


def of_node(node: str) -> Permissions:
    """An agent's: what crosses for its own node, and answers to what it is asked."""
    publish = tuple(each.subject for each in crossings(node) if each.kind == "service")
    streams = tuple(each.subject for each in crossings(node) if each.kind == "stream")
    return Permissions(publish, (*streams, request_subject(node)), answers=True)


def _info(*streams: str) -> tuple[str, ...]:
    return tuple(f"$JS.API.STREAM.INFO.{stream}" for stream in streams)


def _read(stream: str) -> tuple[str, ...]:
    """Read a stream in order, from consumers of one's own (tail-…)."""
    return (
        *_info(stream),
        f"$JS.API.STREAM.MSG.GET.{stream}",
        f"$JS.API.CONSUMER.CREATE.{stream}.*",
        f"$JS.API.CONSUMER.MSG.NEXT.{stream}.*",
        f"$JS.API.CONSUMER.DELETE.{stream}.*",
    )


def _lease(service: str) -> tuple[str, ...]:
    """Hold a lease and give it back. (Purging takes a filter in its body, so that it is not bound to one key; a lease is
    never the fence.)"""
    bucket = f"KV_{subjects.LEASE}"
    return (f"$KV.{subjects.LEASE}.{service}", f"$JS.API.STREAM.MSG.GET.{bucket}", f"$JS.API.STREAM.PURGE.{bucket}")


def _bucket(name: str) -> tuple[str, ...]:
    """Read, write, list and erase the values of a bucket whose keys are "<kind>.<id>"."""
    stream = f"KV_{name}"
    verbs = ("MSG.GET", "MSG.DELETE", "PURGE")
    return (f"$KV.{name}.*.*", *_info(stream), *(f"$JS.API.STREAM.{verb}.{stream}" for verb in verbs))


def _pieces() -> tuple[str, ...]:
    """Read and write pieces of directories. Nobody removes them: the server does, by their age."""
    bucket = f"KV_{subjects.PIECE}"
    data = f"$KV.{subjects.PIECE}.{subjects.piece_key('*')}"
    return (f"$KV.{subjects.PIECE}.*.*", f"$JS.API.STREAM.MSG.GET.{bucket}", f"$JS.API.DIRECT.GET.{bucket}.{data}")


def _load() -> tuple[str, ...]:
    return (f"$JS.API.STREAM.MSG.GET.OBJ_{subjects.SNAPSHOT}",)


def _save() -> tuple[str, ...]:
    store = f"OBJ_{subjects.SNAPSHOT}"
    return (
        *_load(),
        *_info(store),
        f"$O.{subjects.SNAPSHOT}.C.*",
        f"$O.{subjects.SNAPSHOT}.M.*",
        f"$JS.API.STREAM.PURGE.{store}",
        f"$JS.API.DIRECT.GET.{store}.$O.{subjects.SNAPSHOT}.M.*",
    )


def _writes(service: str) -> tuple[str, ...]:
    """Return the subjects that a leading service publishes to: its part of the log, its commands, its lease, its snapshots."""
    return (subjects.log(service), *_read(subjects.LOG), *_read(subjects.CMD), *_lease(service), *_save())


def _states(service: str) -> tuple[str, ...]:
    """Questions that a service which leads answers."""
    return (subjects.rpc(service, "state"), subjects.rpc(service, ALIVE))


def _streams() -> Permissions:
    """Makes the streams, and nothing else: the only one who may. Those of derived or short-lived contents it may also
    delete, to make them again with another storage."""
    names = (
        subjects.LOG,
        subjects.CMD,
        subjects.SAMPLE,
        subjects.OUTPUT,
        subjects.AUDIT,
        *(
            f"KV_{bucket}"
            for bucket in (
                subjects.DESIRED,
                subjects.SPEC,
                subjects.LEASE,
                subjects.PEOPLE,
                subjects.CREDENTIAL,
                subjects.NOTIFY,
                subjects.PIECE,
            )
        ),
        f"OBJ_{subjects.SNAPSHOT}",
    )
    expendable = (subjects.SAMPLE, subjects.OUTPUT, f"KV_{subjects.DESIRED}", f"KV_{subjects.LEASE}")
    return Permissions(
        (
            *(f"$JS.API.STREAM.{verb}.{name}" for name in names for verb in ("INFO", "CREATE", "UPDATE")),
            *(f"$JS.API.STREAM.DELETE.{name}" for name in expendable),
        )
    )


#: Users that are no process of a service: a person's commands.
_COMMANDS = ("streams", "auditor", "recovery")

#: {service: what it may beyond stating that it runs}. Each writes its own part of the log and nothing else of it.
_OF_SERVICES: dict[str, Permissions] = {
    "streams": _streams(),
    "queue": Permissions(_writes("queue"), (*_states("queue"), subjects.BEATS), answers=True),
    "placer": Permissions(
        (
            *_writes("placer"),
            subjects.confirm("*"),
            f"$KV.{subjects.DESIRED}.*",
            f"$JS.API.STREAM.PURGE.KV_{subjects.DESIRED}",  # the key of a node that was removed
            f"$KV.{subjects.SPEC}.*.*",
            subjects.rpc_node("*", "gang"),
        ),
        (*_states("placer"), subjects.REPORTS, subjects.BEATS, subjects.GANGS),
        answers=True,
    ),
    "telemetry": Permissions(
        (*_writes("telemetry"), *_read(subjects.SAMPLE)), (subjects.rpc("telemetry", "*"), subjects.BEATS), answers=True
    ),
    "access": Permissions(_writes("access"), (*_states("access"), subjects.BEATS), answers=True),
    "storage": Permissions(_writes("storage"), (*_states("storage"), subjects.BEATS), answers=True),
    "explainer": Permissions(
        (*_read(subjects.LOG), *_load()), (subjects.ASK, subjects.rpc("explainer", "*")), answers=True
    ),
    # Answers about the past: reads the log and people's names, asks what the gateway asks of them; writes nothing.
    "past": Permissions(
        (
            *_read(subjects.LOG),
            *_info(f"KV_{subjects.PEOPLE}"),
            f"$JS.API.STREAM.MSG.GET.KV_{subjects.PEOPLE}",
            subjects.rpc("telemetry", "job"),
            subjects.ASK,
        ),
        (subjects.PAST, subjects.ESTIMATES, subjects.rpc("past", "*"), f"$KV.{subjects.PEOPLE}.*.*"),
        answers=True,
    ),
    "gateway": Permissions(
        (
            *_read(subjects.LOG),
            *_read(subjects.OUTPUT),
            *_read(subjects.CMD),  # is every command still there?
            *_info(*COPIED),  # are all copies current?
            *_save(),  # its views
            subjects.cmd("*"),
            subjects.ASK,
            subjects.PAST,
            subjects.rpc("past", "*"),
            subjects.ESTIMATES,
            subjects.rpc("*", ALIVE),
            f"$JS.API.STREAM.MSG.GET.KV_{subjects.LEASE}",
            subjects.rpc("telemetry", "*"),
            request_subject(EVERY_NODE),
            # People and their credentials: nobody else reaches them.
            *_bucket(subjects.PEOPLE),
            *_read(subjects.AUDIT),
            subjects.AUDIT_ALL,
            f"$JS.API.STREAM.PURGE.{subjects.AUDIT}",
            *_bucket(subjects.CREDENTIAL),
            *_bucket(subjects.NOTIFY),
            *_pieces(),
            subjects.rpc("notifier", "test"),
            subjects.rpc("appproxy", "expect"),
            subjects.rpc("appproxy", "address"),
        ),
        # To show which nodes are silent, and which processes run; and what another gateway has changed of a person.
        (
            subjects.BEATS,
            subjects.PRESENCES,
            f"$KV.{subjects.PEOPLE}.*.*",
            f"$KV.{subjects.CREDENTIAL}.*.*",
            f"$KV.{subjects.NOTIFY}.*.*",
            subjects.rpc("gateway", "tunnels"),
            subjects.rpc("gateway", "apps"),
            subjects.VOLUMES,
        ),
        answers=True,
    ),
    # Carries people's connections into runs: reads nothing (every process looks at its start whether the log is there), and asks the
    # gateways which may stay open.
    "appproxy": Permissions(
        (*_info(subjects.LOG), subjects.rpc("gateway", "tunnels"), subjects.rpc("gateway", "apps")), (subjects.rpc("appproxy", "*"),), answers=True
    ),
    # Sends to people's destinations: reads the log, the views' snapshot, rules, and addresses of mail; writes how far each
    # destination is. It reaches no credential.
    "notifier": Permissions(
        (
            *_read(subjects.LOG),
            *_load(),
            *_lease("notifier"),
            *_info(f"KV_{subjects.NOTIFY}"),
            f"$JS.API.STREAM.MSG.GET.KV_{subjects.NOTIFY}",
            f"$KV.{subjects.NOTIFY}.delivery.*",
            f"$JS.API.STREAM.MSG.GET.KV_{subjects.PEOPLE}",
            subjects.rpc("telemetry", "job"),
        ),
        (subjects.rpc("notifier", "test"), f"$KV.{subjects.NOTIFY}.*.*"),
        answers=True,
    ),
    # Carries the log out of the server's reach (docs/how-to/archive.md): reads it, and says no more than that it runs.
    "archiver": Permissions(_read(subjects.LOG)),
    # For manual verification and replay: reads everything, publishes nothing.
    "auditor": Permissions((*_read(subjects.LOG), *_read(subjects.CMD), *_load(), subjects.rpc("*", "state"))),
    # For a person who runs `fairlead audit commands --accept-loss`: lets CMD continue after a part of it is lost
    # (docs/how-to/damage.md).
    "recovery": Permissions(
        (
            *_read(subjects.LOG),
            *_read(subjects.CMD),
            *_save(),
            f"$JS.API.STREAM.PURGE.{subjects.CMD}",
            subjects.cmd("*"),
        )
    ),
}  # fmt: skip

#: {service: what it may}.
SERVICES: dict[str, Permissions] = {
    name: each if name in _COMMANDS else each._replace(publish=(*each.publish, subjects.presence(name)))
    for name, each in _OF_SERVICES.items()
}


def inbox(public_key: str) -> str:
    """Return the subject on which the holder of a key receives answers; no other key may subscribe there."""
    return f"_INBOX_{public_key}"
