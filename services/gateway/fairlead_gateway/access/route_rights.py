"""Rights of routes as data: the verb that a route needs, and where in the request its target is. `guard.py` checks them.

Every route declares one; tests/gateway/access/ tries all of them with all roles.
"""

from typing import Literal, NamedTuple

from fairlead_schemas.policies.rights import Verb

type RightKind = Literal[
    "public", "signed-in", "cluster", "either", "job", "queue", "node", "pool", "volume", "service", "listed", "body"
]


class Right(NamedTuple):
    """Right that a route needs."""

    kind: RightKind
    #: All of them are needed; of the kind "either" one.
    verbs: tuple[Verb, ...] = ()
    #: Parameter of the path that names the target.
    parameter: str = ""

    @property
    def words(self) -> str:
        """The right in words, as the OpenAPI document states it."""
        verbs = " and ".join(self.verbs)
        match self.kind:
            case "public":
                return "everybody, signed in or not"
            case "signed-in":
                return "everybody who is signed in"
            case "listed":
                return f"{verbs} anywhere; rows that the caller may not see are left out"
            case "cluster":
                return f"{verbs} on the cluster"
            case "either":
                return f"{' or '.join(self.verbs)} on the cluster"
            case "body":
                return f"{verbs} on everything that the request names"
            case _:
                return f"{verbs} on the {self.kind}"


#: Routes that say nothing about jobs, queues, nodes or people.
PUBLIC = Right("public")
#: Routes that show callers what concerns them.
SIGNED_IN = Right("signed-in")


def on_cluster(*verbs: Verb) -> Right:
    """Return the right to use verbs on the whole cluster."""
    return Right("cluster", verbs)


def on_cluster_either(*verbs: Verb) -> Right:
    """Return the right to use one of some verbs on the whole cluster."""
    return Right("either", verbs)


def on_job(verb: Verb, parameter: str = "job") -> Right:
    """Return the right to use a verb on the job that the path names."""
    return Right("job", (verb,), parameter)


def on_queue(verb: Verb, parameter: str = "path") -> Right:
    """Return the right to use a verb on the queue that the path names."""
    return Right("queue", (verb,), parameter)


def on_node(verb: Verb, parameter: str = "node") -> Right:
    """Return the right to use a verb on the node that the path names, which is one on its pool."""
    return Right("node", (verb,), parameter)


def on_pool(verb: Verb, parameter: str = "pool") -> Right:
    """Return the right to use a verb on the pool that the path names."""
    return Right("pool", (verb,), parameter)


def on_volume(verb: Verb, parameter: str = "volume") -> Right:
    """Return the right to use a verb on the volume that the path names, or on the dataset of which it names a version."""
    return Right("volume", (verb,), parameter)


def on_service(verb: Verb, parameter: str = "service") -> Right:
    """Return the right to use a verb on the service that the path names, which is one on the jobs that are its replicas."""
    return Right("service", (verb,), parameter)


def listed(verb: Verb) -> Right:
    """Return the right to a list: the verb somewhere. The handler leaves out rows that the caller may not see."""
    return Right("listed", (verb,))


def in_body(verb: Verb) -> Right:
    """Return the right to use a verb on everything that the body names. The handler checks each by `Caller.require`."""
    return Right("body", (verb,))
