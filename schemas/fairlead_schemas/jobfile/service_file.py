"""A job file of a service: the job that each of its replicas is, and the rules of their number. Pure.

The words about replicas are no part of the replica's job, so that another number of them replaces none. Start at `resolve_service`.
"""

import re
from typing import NamedTuple

import msgspec

from fairlead_schemas.jobfile.agent_fields import app_of
from fairlead_schemas.jobfile.job_spec import JobSpec, ServiceWords
from fairlead_schemas.jobfile.resolve import resolve
from fairlead_schemas.policies import services as policy
from fairlead_schemas.policies.services import ServiceRules, faults_of, is_service_name
from fairlead_schemas.units import quantities
from fairlead_schemas.units.image_names import Registries
from fairlead_schemas.units.validation import ErrorCollector, FieldError, InvalidJob
from fairlead_schemas.wire.events import ReplicaJob

_RANGE = re.compile(r"(\d{1,4})-(\d{1,4})\Z", re.ASCII)
#: Fields of a job that begins or ends at a time, waits, or runs many times: a service does none of it.
_NOT_FOR_SERVICES = ("array", "startAt", "deadline", "dependsOn", "held", "retries")
#: Of POST /v1/jobs for a file with the words of a service.
SUBMITTED_AS_JOB = FieldError(
    field="service", message="expected no service in a job: fairlead service apply FILE (POST /v1/services) sends it"
)


class ServiceFile(NamedTuple):
    """Meaning of a job file of a service."""

    name: str
    queue: str
    template: ReplicaJob
    rules: ServiceRules


def resolve_service(spec: JobSpec, registries: Registries | None = None) -> ServiceFile:
    """Return the meaning of a job file of a service; one without `service` has one replica. Raises InvalidJob with every mistake."""
    reading = ErrorCollector()
    rules = rules_of(spec.service or ServiceWords(), reading)
    if spec.kind != "service":
        reading.wrong("kind", f"expected kind: service, found kind: {spec.kind}")
    app = app_of(spec.app)
    if spec.app == "" or (app is not None and not app.profile.is_http):
        reading.wrong("app", "expected an application that speaks HTTP, such as {port: 8000, ready: /health}")
    defaults = JobSpec()
    for field in _NOT_FOR_SERVICES:
        if getattr(spec, field) != getattr(defaults, field):
            reading.wrong(field, "expected none: a service runs until it is stopped, and its replicas are replaced")
    if not is_service_name(spec.name):
        reading.wrong("name", f'expected {policy.NAME_WORDS}, found "{spec.name[:40]}"')
    try:
        command = resolve(msgspec.structs.replace(spec, service=None), command_id="", user="", registries=registries)
    except InvalidJob as error:
        raise InvalidJob([*reading.errors, *error.errors]) from None
    reading.refuse(InvalidJob)
    template = ReplicaJob(
        request=command.request,
        spec=command.spec,
        project=command.project,
        priority=command.priority,
        total_ns=command.total_ns,
        grace_ns=command.grace_ns,
        slice_ns=command.slice_ns,
        on_partition=command.on_partition,
        checkpoint=command.checkpoint,
        gang=command.gang,
    )
    return ServiceFile(spec.name, command.queue, template, rules)


def rules_of(words: ServiceWords, reading: ErrorCollector) -> ServiceRules:
    """Return the rules of a service's words. Mistakes are noted in `reading`."""
    low, high = replicas_of(words.replicas, reading)
    rules = ServiceRules(
        replicas_min=low,
        replicas_max=high,
        requests=words.requests,
        surge=words.surge,
        unavailable=words.unavailable,
        drain_ns=reading.amount(quantities.parse_duration, words.drain, "service.drain"),
        calm_ns=reading.amount(quantities.parse_duration, words.calm, "service.calm"),
    )
    if not reading.errors:
        reading.errors.extend(faults_of(rules))
    return rules


def replicas_of(words: int | str, reading: ErrorCollector, field: str = "service.replicas") -> tuple[int, int]:
    """Return the least and the largest number of replicas. Mistakes are noted in `reading`."""
    if isinstance(words, int):
        return words, words
    if words.isdecimal() and len(words) < 5:
        return int(words), int(words)
    found = _RANGE.match(words)
    if found is None:
        reading.wrong(field, f'expected a number such as 2, or a range such as "0-4", found "{words[:40]}"')
        return 1, 1
    return int(found[1]), int(found[2])
