"""A job file's meaning: its words turned into a `SubmitJob` command, with integers only; and the words of a job file about
saving, turned into integers: `checkpoint: {signal: SIGUSR1, notice: 2m, every: 30m}`.

A signal may be written as Slurm's users do ("USR1"). An empty `checkpoint: {}` says that the job tells when it has saved.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from fairlead_schemas.jobfile import agent_fields, job_spec
from fairlead_schemas.jobfile.agent_fields import output_of
from fairlead_schemas.jobfile.job_spec import CheckpointWords, DependsOn, JobSpec
from fairlead_schemas.jobfile.outputs import output_faults
from fairlead_schemas.jobfile.request import request_of
from fairlead_schemas.jobfile.update import name_faults
from fairlead_schemas.policies import launchers, partitions
from fairlead_schemas.policies.apps import with_command
from fairlead_schemas.policies.checkpoints import Checkpoint, fault_of
from fairlead_schemas.policies.partitions import NEVER_NS, STOP_AFTER_NS, OnPartition, least_replace_ns
from fairlead_schemas.units import quantities, type_errors
from fairlead_schemas.units.ids import PRIORITY_MAX, PROJECT_CHARS_MAX, is_job_id, is_queue_path
from fairlead_schemas.units.image_names import ImageNameError, Registries, parse_image
from fairlead_schemas.units.timestamps import midnight, parse_rfc3339
from fairlead_schemas.units.validation import ErrorCollector, FieldError, InvalidJob, decode_object, shown, shown_name
from fairlead_schemas.wire import resource_requests
from fairlead_schemas.wire.commands import SubmitJob, digest_of
from fairlead_schemas.wire.events import Dependency
from fairlead_schemas.wire.resources import Request

#: What clouds give before they take a machine back.
DEFAULT_NOTICE = "2m"


def checkpoint_of(words: CheckpointWords | None, total_ns: int, reading: ErrorCollector) -> Checkpoint | None:
    """Return the checkpoint settings of a job file's words, None for a job without them. Mistakes are noted in
    `reading`.
    """
    if words is None:
        return None
    signal = words.signal.strip().upper()
    if signal and not signal.startswith("SIG"):
        signal = "SIG" + signal
    wanted = words.notice if words.notice != "" else DEFAULT_NOTICE if signal or words.command else 0
    found = Checkpoint(
        signal=signal,
        command=tuple(words.command),
        notice_ns=reading.amount(quantities.parse_duration, wanted, "checkpoint.notice"),
        every_ns=reading.amount(quantities.parse_duration, words.every, "checkpoint.every"),
    )
    if fault := fault_of(found, total_ns):
        reading.add(fault)
    return found


#: In nanoseconds, times from 2262 on do not fit 64 bits.
START_NS_MIN, START_NS_MAX = midnight("1971-01-01"), midnight("2201-01-01")

#: As Kubernetes has it: a C identifier, or one with dashes and dots.
_VARIABLE = re.compile(r"[-._A-Za-z][-._A-Za-z0-9]{0,255}\Z", re.ASCII)
_PROJECT = re.compile(r"[A-Za-z0-9_][-._A-Za-z0-9]*\Z", re.ASCII)
_ARRAY = re.compile(r"(?:(\d{1,7})-(\d{1,7})|(\d{1,7}))(?:%(\d{1,6}))?\Z", re.ASCII)


def resolve(
    spec: JobSpec, *, command_id: str, user: str, key: str = "", registries: Registries | None = None
) -> SubmitJob:
    """The command that submits this job, its words turned into integers.

    `command_id` and `key` come from the caller; nothing is invented here. `registries`: those that images may come
    from; None where they are not known (each agent checks its own). Raises InvalidJob with every field that is out of
    range.
    """
    spec = with_app(spec)
    reading = ErrorCollector()
    request = request_of(spec, reading)
    _check_request(request, reading)
    array, array_limit = _array(spec.array, reading)
    total_ns = reading.amount(quantities.parse_duration, spec.time.total, "time.total")
    if not total_ns and isinstance(spec.time.total, str) and not reading.has("time.total"):
        reading.wrong("time.total", f'expected more than 0, found "{spec.time.total}"; leave it out for no limit')
    grace_ns = reading.amount(quantities.parse_duration, spec.time.grace, "time.grace")
    slice_ns = reading.amount(quantities.parse_duration, spec.time.slice, "time.slice")
    checkpoint = checkpoint_of(spec.checkpoint, total_ns, reading)
    start_at_ns = _moment("startAt", spec.startAt, reading)
    deadline_ns = _moment("deadline", spec.deadline, reading)
    after = _after(spec.dependsOn, reading)
    on_partition = _on_partition(spec, reading)
    output_of(spec.output, reading)  # the agent reads it from the job file
    _check_fields(spec, reading)
    if spec.image:
        _check_image(spec.image, registries, reading)
    reading.refuse(InvalidJob)  # before encoding, which cannot write integers beyond 64 bits
    body = job_spec.canonical(spec)
    if len(body) > job_spec.SPEC_BYTES_MAX:
        raise InvalidJob([job_spec.too_large(len(body))])
    return SubmitJob(
        id=command_id,
        user=user,
        name=name_of(spec),
        queue=spec.queue,
        request=request,
        spec=msgspec.Raw(body),
        project=spec.project,
        kind=spec.kind,
        priority=spec.priority,
        array=array,
        retries=spec.retries.max,
        total_ns=total_ns,
        grace_ns=grace_ns,
        start_at_ns=start_at_ns,
        deadline_ns=deadline_ns,
        slice_ns=slice_ns,
        after=after,
        array_limit=array_limit,
        on_partition=on_partition,
        checkpoint=checkpoint,
        key=key,
        digest=digest_of(body)[:16] if key else "",
        held=spec.held,
        gang=launchers.gang_rule(launchers.launcher_of(spec.launcher, spec.command), spec.onFailure),
    )


def with_app(spec: JobSpec) -> JobSpec:
    """Return a job file with the command of its app where it has none of its own: the log has what runs."""
    if spec.app == "" or spec.command:
        return spec
    profile = spec.app if isinstance(spec.app, str) else spec.app.profile
    return msgspec.structs.replace(spec, command=with_command(profile, spec.command), name=spec.name or profile)


def name_of(spec: JobSpec) -> str:
    """Return the job's name; without one, that of its program."""
    return spec.name or spec.command[0].rpartition("/")[2][: job_spec.NAME_CHARS_MAX]


def decode_and_check(payload: bytes, registries: Registries | None = None) -> JobSpec:
    """Decode one job from JSON. Raises InvalidJob naming every mistake: of types and, of the rest, those that `resolve` finds."""
    try:
        return job_spec.decode_job(payload)
    except InvalidJob as error:
        try:
            value = decode_object(payload) if len(payload) <= job_spec.SPEC_BYTES_MAX else None
        except msgspec.MsgspecError:
            raise error from None
        raise InvalidJob(_all_mistakes(error.errors, value, registries)) from error


def convert_and_check(value: Any) -> JobSpec:
    """Return a job from decoded YAML or JSON values. Raises InvalidJob as `decode_and_check` does."""
    try:
        return job_spec.job_from(value)
    except InvalidJob as error:
        raise InvalidJob(_all_mistakes(error.errors, value, None)) from error


def _all_mistakes(known: list[FieldError], value: Any, registries: Registries | None) -> list[FieldError]:
    found = type_errors.read(value, JobSpec)
    if not found.errors or found.rest is None:
        return known
    try:
        resolve(msgspec.convert(found.rest, JobSpec), command_id="", user="", registries=registries)
    except InvalidJob as error:
        more = [FieldError(field=found.path(each.field), message=each.message) for each in error.errors]
        if (
            isinstance(value, dict) and "command" not in value
        ):  # not empty but missing, unless a remedy names it already
            more = [each for each in more if each.field != "command"]
            if not any("command" in each.message for each in known):
                more.append(FieldError(field="command", message=job_spec.COMMAND_MISSING))
        return [*known, *(each for each in more if each.field and not found.is_wrong(each.field))]
    except msgspec.ValidationError:
        return known
    return known


def _check_request(request: Request, reading: ErrorCollector) -> None:
    """Note violations of the rules of requests, one per field."""
    reading.add(*resource_requests.faults(request))


def _check_fields(spec: JobSpec, reading: ErrorCollector) -> None:
    def expect(ok: bool, field: str, message: str) -> None:
        if not ok:
            reading.wrong(field, message)

    _check_text(spec, expect)
    reading.errors.extend(agent_fields.mount_faults(spec.volumes, spec.secrets, spec.project))
    _check_launch(spec, expect)
    reading.errors.extend(agent_fields.work_faults(spec.sync, bool(spec.outputs), spec.workdir, spec.image))
    reading.errors.extend(output_faults(spec.outputs))
    reading.errors.extend(agent_fields.app_faults(spec.app, spec.kind))
    reading.errors.extend(own_faults(spec))
    most = PRIORITY_MAX
    expect(0 <= spec.priority <= most, "priority", f"expected 0 to {most}, found {spec.priority}")
    most = job_spec.RETRIES_MAX
    expect(0 <= spec.retries.max <= most, "retries.max", f"expected 0 to {most}, found {spec.retries.max}")


def own_faults(spec: JobSpec) -> Iterator[FieldError]:
    """Yield the faults of the fields in which jobs that are otherwise alike differ (alike.py)."""
    if any("\0" in word for words in (spec.command, spec.args) for word in words):
        yield FieldError(field="command", message="expected words without NUL characters")
    yield from name_faults(spec.name, spec.labels)
    if not is_queue_path(spec.queue):
        message = f'expected names of a-z 0-9 _ - joined by "/", found "{spec.queue[:80]}"'
        yield FieldError(field="queue", message=message)
    for name, value in spec.env.items():
        if name.startswith(job_spec.RESERVED_ENV_PREFIXES):
            message = "expected another name, found one that Fairlead sets; leave it out"
            yield FieldError(field=f"env.{name}", message=message)
        if not _VARIABLE.match(name):
            message = "expected a name of letters, digits, _ - and ., not beginning with a digit"
            yield FieldError(field=f"env.{shown_name(name)}", message=message)
        if "\0" in value:
            yield FieldError(field=f"env.{shown_name(name)}", message="expected a value without NUL characters")


def _check_image(name: str, registries: Registries | None, reading: ErrorCollector) -> None:
    try:
        image = parse_image(name)
    except ImageNameError as error:
        reading.wrong("image", str(error))
        return
    if registries is not None and (fault := registries.fault(image.registry)):
        reading.wrong("image", fault)


def _check_launch(spec: JobSpec, expect: Callable[[bool, str, str], None]) -> None:
    """Words about the ranks of a job."""
    words = ", ".join(launchers.LAUNCHERS)
    known = spec.launcher in ("", *launchers.LAUNCHERS)
    expect(known, "launcher", f'expected one of {words}, found "{spec.launcher[:40]}"')
    words = " or ".join(launchers.ON_FAILURE)
    expect(spec.onFailure in launchers.ON_FAILURE, "onFailure", f'expected {words}, found "{spec.onFailure[:40]}"')
    launcher = launchers.launcher_of(spec.launcher, spec.command)
    expect(
        launcher not in launchers.LED or spec.onFailure != "continue",
        "onFailure",
        f"the first node's command decides how it ends; leave it out with the launcher {launcher}",
    )
    if spec.processesPerNode is None:
        return
    most = launchers.PROCESSES_MAX
    expect(
        1 <= spec.processesPerNode <= most, "processesPerNode", f"expected 1 to {most}, found {spec.processesPerNode}"
    )
    expect(
        spec.tasks is None, "processesPerNode", "leave it out where tasks are asked for: each of them is one process"
    )
    expect(
        launcher != "none",
        "processesPerNode",
        f"expected a launcher (env, torchrun, mpi or slurm) with it, found {spec.processesPerNode} for a command that is run once"
        " on each node; name a launcher, or leave it out",
    )


def _check_text(spec: JobSpec, expect: Callable[[bool, str, str], None]) -> None:
    """Texts that a program, a file system or a page will be given."""
    expect(
        bool(spec.command) and bool(spec.command[0]),
        "command",
        "expected at least the program to run, found an empty list",
    )
    if spec.project and not (spec.volumes or spec.secrets):  # with those the rule is stricter, and mountrules has it
        most = PROJECT_CHARS_MAX
        message = f'expected at most {most} letters, digits, _ - and ., found "{shown_name(spec.project)}"'
        expect(len(spec.project) <= most and bool(_PROJECT.match(spec.project)), "project", message)
    if spec.workdir:
        ok = spec.workdir.startswith("/") and spec.workdir.isprintable()
        message = f"expected an absolute path of printable characters such as /work, found {shown(spec.workdir)}"
        expect(ok, "workdir", message)


def _array(value: int | str | None, reading: ErrorCollector) -> tuple[tuple[int, int] | None, int]:
    """(first and last index, how many at once: 0 for all)."""
    if value is None:
        return None, 0
    match = _ARRAY.match(str(value))
    first, last, limit = 1, 0, None
    if match:
        first, last = (0, int(match[3]) - 1) if match[3] else (int(match[1]), int(match[2]))
        limit = match[4]
    if not 0 <= last - first < job_spec.ARRAY_ELEMENTS_MAX or limit == "0":
        expected = (
            f'expected a count or a range such as "0-7" or "0-7%2" of at most {job_spec.ARRAY_ELEMENTS_MAX} elements'
        )
        reading.wrong("array", f'{expected}, found "{str(value)[:40]}"')
        return None, 0
    return (first, last), int(limit or 0)


def _after(wanted: list[str | int | DependsOn], reading: ErrorCollector) -> tuple[Dependency, ...]:
    found: dict[str, Dependency] = {}
    for at, each in enumerate(wanted):
        job, state = (each.job, each.state) if isinstance(each, DependsOn) else (each, "succeeded")
        if not is_job_id(str(job)):
            message = f'expected a job id such as "12" or "12_3", found "{str(job)[:40]}"'
            reading.wrong(f"dependsOn[{at}]", message)
        found[str(job)] = Dependency(job=str(job), state=state)
    if len(wanted) > job_spec.DEPENDENCIES_MAX:
        reading.wrong("dependsOn", f"expected at most {job_spec.DEPENDENCIES_MAX} jobs, found {len(wanted)}")
    return tuple(found.values())


def _on_partition(spec: JobSpec, reading: ErrorCollector) -> OnPartition:
    words, known = spec.onPartition, len(reading.errors)
    stop_ns = _silence(reading, partitions.STOP, words.stopAfter)
    replace_ns = _silence(reading, partitions.REPLACE, words.replaceAfter)
    if spec.strict and replace_ns not in (0, NEVER_NS):
        message = f'expected onPartition.replaceAfter "never" with it, found "{words.replaceAfter}"'
        reading.wrong(partitions.STRICT, message)
    if spec.strict:
        replace_ns = NEVER_NS
    elif stop_ns > STOP_AFTER_NS and not replace_ns:  # the usual time would be too short for it
        replace_ns = least_replace_ns(stop_ns)
    policy = OnPartition(stop_after_ns=stop_ns, replace_after_ns=replace_ns)
    if len(reading.errors) == known and (fault := partitions.fault_of(policy)):
        reading.add(fault)
    return partitions.AS_THE_CLUSTER if policy == partitions.AS_THE_CLUSTER else policy


def _silence(reading: ErrorCollector, field: str, value: str | int) -> int:
    """Return nanoseconds; 0 without a value, NEVER_NS for "never"."""
    if value in ("", partitions.NEVER):
        return 0 if value == "" else NEVER_NS
    found = reading.amount(quantities.parse_duration, value, field)
    if found == 0 and not reading.has(field):
        reading.wrong(field, f'expected a duration above 0, or "never", found "{value}"')
    return found


def _moment(field: str, text: str, reading: ErrorCollector) -> int:
    """Unix ns of an RFC 3339 time; 0 for none."""
    if not text:
        return 0
    try:
        moment_ns = parse_rfc3339(text)
    except ValueError:
        moment_ns = 0
    if not START_NS_MIN <= moment_ns < START_NS_MAX:
        expected = 'expected an RFC 3339 time with zone such as "2027-01-31T10:00:00+01:00"'
        reading.wrong(field, f'{expected}, found "{text[:40]}"')
        return 0
    return moment_ns
