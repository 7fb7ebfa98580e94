"""Meaning of each of sbatch's options in a job file, and the job's size from them. Pure.

`DIRECTIVES` lists the options that are followed. Options without effect on the command and its placement are notes
(`NOT_FOLLOWED`). All others are `unkept`, and the caller refuses the job unless the user ignores the option by name: a
job with a request to be held, or to stay off a node, must not start as if it had none. Start at `translate`.

The size: Slurm counts per node, per task or in all, and a job file per node or per task.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from fairlead.errors import InputRefused
from fairlead.jobfile.gpu_models import PRODUCT_LABEL
from fairlead_schemas.jobfile.request import GPU
from fairlead_schemas.units import hostlists, selectors
from fairlead_schemas.units.hardware import is_profile, resource_of
from fairlead_schemas.units.ids import is_job_id


class SbatchShape:
    """Sizes given by the directives, collected first because each depends on the others."""

    def __init__(self) -> None:
        self.nodes = 1
        #: "4" or "2-8", as it was asked for.
        self.nodes_requested = ""
        self.tasks = 0  # in all
        self.tasks_per_node = 0
        self.cpus_per_task = 0
        self.gpus = 0  # in all
        self.gpus_per_node = 0
        self.gpus_per_task = 0
        #: MIG profile of the GPUs, where their type is one.
        self.profile = ""
        #: `--export=ALL` was asked for.
        self.exports_all = False
        #: Value that `--export=NAME` sends, by name.
        self.environ: Mapping[str, str] = {}
        #: Nodes by name, where they are.
        self.nodelist: list[str] = []
        self.memory = ""
        self.memory_per_cpu_mib = 0
        self.memory_per_gpu_mib = 0

    @property
    def counts_nodes(self) -> bool:
        """True if an option other than tasks sets the amount per node."""
        return bool(self.nodes_requested or self.tasks_per_node or self.gpus or self.gpus_per_node or self.memory)


def size(shape: SbatchShape, job: dict[str, Any], notes: list[str]) -> None:
    """Write the sizes into the job. Slurm counts some amounts per task or in all; a job file counts per node, or per task
    where the number of nodes is not given.
    """
    if shape.nodelist and not shape.nodes_requested:
        shape.nodes, shape.nodes_requested = len(shape.nodelist), str(len(shape.nodelist))
    if shape.nodelist and shape.nodes > len(shape.nodelist):
        raise InputRefused(
            f"--nodelist: expected the names of --nodes={shape.nodes} nodes or more, found {len(shape.nodelist)}: {','.join(shape.nodelist)[:80]}"
        )
    if shape.tasks > 1 and not shape.counts_nodes:
        job["tasks"] = shape.tasks
        _amounts(shape, job, shape.gpus_per_task, max(1, shape.cpus_per_task))
        return
    tasks = shape.tasks_per_node or -(-max(shape.tasks, 1) // shape.nodes)
    cpus = tasks * max(1, shape.cpus_per_task)
    gpus = shape.gpus_per_node or shape.gpus_per_task * tasks
    if shape.gpus and not gpus:
        if "-" in shape.nodes_requested:
            raise InputRefused(
                f"--gpus: expected one number of --nodes with it, found {shape.nodes_requested}; use --gpus-per-node"
            )
        if shape.gpus % shape.nodes:
            raise InputRefused(f"--gpus: expected a multiple of --nodes ({shape.nodes}), found {shape.gpus}")
        gpus = shape.gpus // shape.nodes
    _amounts(shape, job, gpus, cpus)
    if "-" in shape.nodes_requested:
        job["nodes"] = shape.nodes_requested
    elif shape.nodes > 1:
        job["nodes"] = shape.nodes
    job["processesPerNode"] = tasks


def variables(shape: SbatchShape, job: dict[str, Any]) -> dict[str, str]:
    """Return Slurm's variables that are known at submit. The agent sets the others, which depend on the placement."""
    tasks = shape.tasks if shape.tasks and shape.tasks != shape.nodes * job.get("processesPerNode", 0) else 0
    found: dict[str, Any] = {
        "NTASKS": tasks,
        "NPROCS": tasks,
        "NTASKS_PER_NODE": shape.tasks_per_node,
        "CPUS_PER_TASK": shape.cpus_per_task,
        "GPUS_PER_TASK": shape.gpus_per_task,
        "GPUS_PER_NODE": shape.gpus_per_node,
        "MEM_PER_CPU": shape.memory_per_cpu_mib,
        "JOB_ACCOUNT": job.get("project", ""),
    }
    if "array" in job:
        first, _, last = str(job["array"]).partition("%")[0].partition("-")
        found |= {
            "ARRAY_TASK_MIN": first,
            "ARRAY_TASK_MAX": last,
            "ARRAY_TASK_COUNT": int(last) - int(first) + 1,
            "ARRAY_TASK_STEP": 1,
        }
    return {f"SLURM_{name}": str(value) for name, value in found.items() if value}


def _amounts(shape: SbatchShape, job: dict[str, Any], gpus: int, cpus: int) -> None:
    """Resources of a node, or of a task."""
    resources: dict[str, Any] = {}
    if gpus:
        resources[resource_of(shape.profile) if shape.profile else GPU] = gpus
    if cpus > 1:
        resources["cpu"] = str(cpus)
    memory_mib = shape.memory_per_cpu_mib * cpus or shape.memory_per_gpu_mib * gpus
    if shape.memory or memory_mib:
        resources["memory"] = shape.memory or f"{memory_mib}Mi"
    if resources:
        job["resources"] = resources


type Fields = dict[str, Any]
#: Word of a job that is no part of a job file: {"on": kinds, "to": address, "elements": bool} of the mail about it (`take_mail`).
MAIL = "(mail)"


class TranslatedScript(NamedTuple):
    """A job file, remarks about how it was read, and the options that cannot be kept: {name: what to do instead}."""

    job: Fields
    notes: list[str]
    unkept: dict[str, str]


class Unkept(Exception):
    """An option, or a value of one, that cannot be kept here; the message says what to do instead."""


#: Options without effect on the command or on its place, and the alternative for each.
NOT_FOLLOWED = {
    "no-requeue": "a job whose node is lost is always queued again",
    "qos": "the queue (--partition) has the limits, and --priority of fairlead submit the order",
    "nice": "use --priority of fairlead submit",
    "time-min": "a job has one time limit, --time",
    "kill-on-invalid-dep": "a job whose dependency cannot come true is ended",
    "hint": "CPUs are assigned by the node's topology",
    "distribution": "tasks fill one node after the other",
    "ntasks-per-core": "CPUs are assigned by the node's topology",
    "ntasks-per-socket": "CPUs are assigned by the node's topology",
    "threads-per-core": "CPUs are assigned by the node's topology",
    "cpu-bind": "CPUs are assigned by the node's topology",
    "mem-bind": "CPUs are assigned by the node's topology",
    "gpu-bind": "GPUs are assigned by the node's topology; --gpus-per-task gives each task its own",
    "cpu-freq": "frequencies are the node's",
    "gpu-freq": "frequencies are the node's",
    "acctg-freq": "samples are taken at the agent's own interval: fairlead show JOB --plot",
    "profile": "samples are taken always: fairlead show JOB --plot",
    "wckey": "use labels in a job file",
    "mpi": "start MPI programs with mpirun",
    "comment": "use labels in a job file",
    "quiet": "redirect the output of the submit",
    "verbose": "see fairlead submit --dry-run",
    "get-user-env": "write --export=NAME=VALUE",
    "spread-job": "write placement: spread in a job file",
    "oversubscribe": "nodes are shared unless --exclusive is given",
    "overcommit": "each process is given its own CPUs",
    "label": "lines of several ranks carry their rank always",
    "unbuffered": "output is shown as it comes",
    "no-kill": "a gang ends when one of its nodes is lost, and is queued again",
}
#: Options known to Slurm's users that are not kept, and what to do instead.
UNKEPT = {
    "licenses": "there are no licences here",
    "reservation": "there are no reservations by name; see --deadline and fairlead maintenance",
    "input": "read the file in the script",
    "pty": "a job has no terminal; its output is shown without one",
    "sync": "an option of fairlead submit, which takes the same scripts: fairlead submit --sync DIR train.sh",
    "outputs": "an option of fairlead submit, which takes the same scripts: fairlead submit --outputs NAME=PATH train.sh",
    "hetjob": "write a job file with groups (docs/reference/jobs.md#how-many); the first part alone would run",
    "jobid": "every command is a job of its own here; start all steps in one script",
}


def translate(
    options: Iterable[tuple[str, str]], environ: Mapping[str, str] | None = None, text: str = ""
) -> TranslatedScript:
    """Job file words for sbatch's options; later ones win. `environ`: the submitter's, of which --export sends parts; `text`: of the
    script. Raises InputRefused for an unreadable value.
    """
    shape = SbatchShape()
    shape.environ = environ or {}
    job: Fields = {}
    notes: list[str] = []
    unkept: dict[str, str] = {}
    for key, value in options:
        follow = DIRECTIVES.get(key)
        if follow is not None:
            try:
                follow(value, job, shape, notes)
            except Unkept as instead:
                unkept[key] = str(instead)
            except ValueError as error:
                raise InputRefused(f'--{key}: {error or "not understood"}, found "{value}"') from error
        elif key in NOT_FOLLOWED:
            notes.append(f"--{key} is NOT FOLLOWED: {NOT_FOLLOWED[key]}")
        else:
            unkept[key] = UNKEPT.get(key, "this option is not known here")
    if shape.exports_all:
        notes.append(_not_all(text, shape.environ, job.get("env", {})))
    require_apart(job.get("nodeAffinity", ()))
    size(shape, job, notes)
    job["launcher"] = "slurm"
    if own := variables(shape, job) | job.get("env", {}):
        job["env"] = own
    return TranslatedScript(job, notes, unkept)


def take_mail(jobs: Iterable[Fields]) -> list[Fields | None]:
    """Remove and return the wishes for mail about jobs, in their order."""
    wishes = [job.pop(MAIL, None) for job in jobs]
    return [wish if wish and wish.get("on") else None for wish in wishes]


def require_apart(requirements: Iterable[str]) -> None:
    """Raise InputRefused for nodes that --nodelist names and --exclude leaves out."""
    both = selectors.contradictions(requirements)
    if both:
        raise InputRefused(
            f"--exclude: expected none of the nodes of --nodelist, found {', '.join(both)[:80]} in both",
            hint="name each node in one of the two",
        )


#: Variables of every shell, which a job has of its own.
_OF_SHELLS = frozenset(
    {"HOME", "PATH", "PWD", "USER", "SHELL", "LOGNAME", "HOSTNAME", "TMPDIR", "LANG", "TERM", "OLDPWD"}
)


def _not_all(text: str, environ: Mapping[str, str], sent: Mapping[str, str]) -> str:
    """Return the remark on `--export=ALL`, with the submitter's variables that the script names and that are not sent by name."""
    used = dict.fromkeys(re.findall(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)", text))
    names = [
        name
        for name in used
        if name in environ and name not in sent and name not in _OF_SHELLS and not name.startswith("SLURM")
    ]
    instead = (
        f"the script names {', '.join(names)}: --export={','.join(names)}"
        if names
        else "name what the job needs: --export=NAME,NAME=VALUE"
    )
    return (
        f"--export=ALL is NOT FOLLOWED: your environment may hold secrets, and a job file is kept for good; {instead}"
    )


def _whole(value: str) -> int:
    if not value.isdecimal() or not 0 < int(value) < 1_000_000:
        raise ValueError("expected a whole number above 0")
    return int(value)


def _set(field: str) -> "Callable[[str, Fields, SbatchShape, list[str]], None]":
    def follow(value: str, job: Fields, shape: SbatchShape, notes: list[str]) -> None:
        if not value:
            raise ValueError("expected a value")
        job[field] = value

    return follow


def _count(attribute: str) -> "Callable[[str, Fields, SbatchShape, list[str]], None]":
    def follow(value: str, job: Fields, shape: SbatchShape, notes: list[str]) -> None:
        setattr(shape, attribute, _whole(value))

    return follow


def _nodes(value: str, job: Fields, shape: SbatchShape, notes: list[str]) -> None:
    least, dash, most = value.partition("-")
    shape.nodes = _whole(least)
    if dash and _whole(most) < shape.nodes:
        raise ValueError('expected a number, or a range such as "2-8"')
    shape.nodes_requested = value if dash and int(most) > shape.nodes else least


def _gpus(attribute: str) -> "Callable[[str, Fields, SbatchShape, list[str]], None]":
    """`8`, `a100:8` or `3g.20gb:2`; a model becomes a node selector, whose short name is resolved at submit."""

    def follow(value: str, job: Fields, shape: SbatchShape, notes: list[str]) -> None:
        model, _, count = value.rpartition(":")
        setattr(shape, attribute, _whole(count))
        shape.profile = model if is_profile(model) else ""
        if model and not shape.profile:
            job["nodeSelector"] = {PRODUCT_LABEL: model}

    return follow


def _exclusive(value: str, job: Fields, shape: SbatchShape, notes: list[str]) -> None:
    if value:
        raise Unkept(f"only whole nodes are (--exclusive), found --exclusive={value}")
    job["exclusive"] = True


def _constraint(value: str, job: Fields, shape: SbatchShape, notes: list[str]) -> None:
    """Features are labels here: `ib` is a node that has the label, `rack=r1` one that has this value; "&" joins them."""
    words = value.split("&")
    try:
        job["nodeAffinity"] = [*job.get("nodeAffinity", []), *(selectors.parse(word).text for word in words)]
    except selectors.SelectorError:
        raise ValueError('expected labels joined by "&", such as "ib&fairlead/rack=r1"') from None


#: Slurm's fields of file names, and the job file's.
_FILE_FIELDS = {
    "j": "job",
    "J": "job",
    "A": "array",
    "a": "index",
    "x": "name",
    "u": "user",
    "N": "node",
    "n": "rank",
    "t": "rank",
}


def file_name(pattern: str) -> str:
    """Return a file name of Slurm's with a job file's fields: "%x-%A_%4a.out" is "{name}-{array}_{index:04}.out". Unknown fields
    stay as they are.
    """

    def field(found: re.Match[str]) -> str:
        if found[2] == "%":
            return "%"
        name = _FILE_FIELDS.get(found[2])
        return found[0] if name is None else f"{{{name}:0{found[1]}}}" if found[1] else f"{{{name}}}"

    return re.sub(r"%([0-9]?)([A-Za-z%])", field, pattern)


def _file(field: str) -> "Callable[[str, Fields, SbatchShape, list[str]], None]":
    def follow(value: str, job: Fields, shape: SbatchShape, notes: list[str]) -> None:
        if not value:
            raise ValueError("expected a file name")
        job["output"] = {**job.get("output", {}), field: file_name(value)}

    return follow


def _open_mode(value: str, job: Fields, shape: SbatchShape, notes: list[str]) -> None:
    if value not in ("append", "truncate"):
        raise ValueError("expected append or truncate")
    job["output"] = {**job.get("output", {}), "append": value == "append"}


def _gres(value: str, job: Fields, shape: SbatchShape, notes: list[str]) -> None:
    others: list[str] = []
    for item in value.split(","):
        kind, *rest = item.removeprefix("gres/").removeprefix("gres:").split(":")
        if kind != "gpu":
            others.append(item)
        elif rest and not rest[-1].isdecimal():
            _gpus("gpus_per_node")(f"{':'.join(rest)}:1", job, shape, notes)
        else:
            _gpus("gpus_per_node")(":".join(rest) or "1", job, shape, notes)
    if others:
        raise Unkept(f"only gpu is known, found {','.join(others)}; a share of a GPU is --gpus 0.5 of fairlead submit")


def _memory_mib(value: str) -> int:
    match = re.fullmatch(r"(\d{1,12})([KMGT]?)B?", value.upper())
    if match is None:
        raise ValueError('expected an amount such as "64G" (a plain number is MiB)')
    kib = int(match[1]) * {"K": 1, "": 1024, "M": 1024, "G": 1024**2, "T": 1024**3}[match[2]]
    return -(-kib // 1024)


def _memory(value: str, job: Fields, shape: SbatchShape, notes: list[str]) -> None:
    mib = _memory_mib(value)
    if mib == 0:
        raise Unkept("all memory of the node (--mem=0) cannot be asked for: name an amount")
    shape.memory = f"{mib // 1024}Gi" if mib % 1024 == 0 else f"{mib}Mi"


def _memory_per(attribute: str) -> "Callable[[str, Fields, SbatchShape, list[str]], None]":
    def follow(value: str, job: Fields, shape: SbatchShape, notes: list[str]) -> None:
        setattr(shape, attribute, _memory_mib(value))

    return follow


_TIME = re.compile(r"(?:(\d+)-(\d+)(?::(\d+))?(?::(\d+))?|(\d+)(?::(\d+))?(?::(\d+))?)\Z")


def slurm_seconds(value: str) -> int:
    """Seconds of Slurm's times: `M`, `M:S`, `H:M:S`, `D-H`, `D-H:M`, `D-H:M:S`. Raises ValueError."""
    match = _TIME.match(value)
    if match is None:
        raise ValueError('expected a time such as "90" (minutes), "2:00:00" or "1-12"')
    days, hours, minutes, seconds, first, second, third = (int(part) if part else 0 for part in match.groups())
    if match[1] is not None:
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if match[7] is not None:
        return (first * 60 + second) * 60 + third
    return first * 60 + second


def _time(value: str, job: Fields, shape: SbatchShape, notes: list[str]) -> None:
    if value.upper() in ("UNLIMITED", "INFINITE"):
        return
    job["time"] = {**job.get("time", {}), "total": f"{slurm_seconds(value)}s"}


def _signal(value: str, job: Fields, shape: SbatchShape, notes: list[str]) -> None:
    """Translate `B:USR1@120`: a signal and its time before the end in seconds (Slurm's own default: 60).

    TERM is sent in any case: its time becomes the grace. Without `B:`, Slurm signals the steps and not the script. Here the
    script is signalled, and a note states that.
    """
    words, _, seconds = value.partition("@")
    target, colon, name = words.rpartition(":")
    signal = SLURM_SIGNALS.get(name.upper().removeprefix("SIG"))
    if signal is None or target.upper() not in ("", "B") or words.startswith(":"):
        raise ValueError('expected a signal and seconds such as "B:USR1@120"')
    length = f"{_whole(seconds or '60')}s"
    if signal == "SIGTERM":
        job["time"] = {**job.get("time", {}), "grace": length}
        return
    job["checkpoint"] = {"signal": signal, "notice": length}
    if not colon:
        notes.append(f"--signal={value}: the script itself gets {signal}, as with B:; pass it on to what it runs")


#: {what Slurm's users write: the word of a job file}
SLURM_SIGNALS = {
    "USR1": "SIGUSR1",
    "10": "SIGUSR1",
    "USR2": "SIGUSR2",
    "12": "SIGUSR2",
    "TERM": "SIGTERM",
    "15": "SIGTERM",
    "INT": "SIGINT",
    "2": "SIGINT",
    "HUP": "SIGHUP",
    "1": "SIGHUP",
}


def _array(value: str, job: Fields, shape: SbatchShape, notes: list[str]) -> None:
    indexes, percent, at_once = value.partition("%")
    if not re.fullmatch(r"\d+-\d+", indexes):
        if not indexes.isdecimal():
            raise ValueError('expected one range such as "0-7" or "0-7%2"')
        indexes = f"{indexes}-{indexes}"
    job["array"] = f"{indexes}%{_whole(at_once)}" if percent else indexes


#: Slurm's conditions that a job file has a word for.
_CONDITIONS = {"afterok": "succeeded", "afternotok": "failed", "afterany": "ended"}


def _dependency(value: str, job: Fields, shape: SbatchShape, notes: list[str]) -> None:
    """`afterok:1:2,afterany:3`: all of them. What cannot be followed is refused: such a job must not start at once."""
    wanted: list[Fields] = []
    for part in value.split(","):
        condition, *jobs = part.split(":")
        if condition not in _CONDITIONS or not jobs or not all(is_job_id(one) for one in jobs):
            known = ", ".join(_CONDITIONS)
            raise ValueError(f'expected {known} with job ids and joined by commas, such as "afterok:1:2,afterany:3"')
        wanted += [{"job": one, "state": _CONDITIONS[condition]} for one in jobs]
    job["dependsOn"] = wanted


def _export(value: str, job: Fields, shape: SbatchShape, notes: list[str]) -> None:
    missing: list[str] = []
    for item in value.split(","):
        name, equals, text = item.partition("=")
        if equals:
            job["env"] = {**job.get("env", {}), name: text}
        elif item == "ALL":
            shape.exports_all = True
        elif item in shape.environ:
            job["env"] = {**job.get("env", {}), item: shape.environ[item]}
        elif item != "NONE":
            missing.append(item)
    if missing:
        raise Unkept(f"your environment has no {missing[0]}: write {missing[0]}=VALUE")


def _moment(field: str) -> "Callable[[str, Fields, SbatchShape, list[str]], None]":
    def follow(value: str, job: Fields, shape: SbatchShape, notes: list[str]) -> None:
        if not re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d", value):
            raise ValueError('expected a time such as "2027-01-31T10:00:00+01:00"')
        job[field] = value

    return follow


_AHEAD = re.compile(r"now(?:\+(\d{1,9})(seconds?|minutes?|hours?|days?|weeks?)?)?\Z")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def _begin(value: str, job: Fields, shape: SbatchShape, notes: list[str]) -> None:
    """`now+1hour` becomes a duration, which the submit turns into a time by its clock."""
    if match := _AHEAD.match(value):
        seconds = int(match[1] or 0) * _UNITS[(match[2] or "")[:1]]
        job["startAt"] = f"{seconds}s" if seconds else ""
        return
    try:
        _moment("startAt")(value, job, shape, notes)
    except ValueError:
        raise ValueError('expected a time such as "now+1hour" or "2027-01-31T10:00:00+01:00"') from None


def _nodelist(value: str, job: Fields, shape: SbatchShape, notes: list[str]) -> None:
    """Name the nodes: as many of them as --nodes says, or all. Slurm adds others to a list that is too short, which is refused here."""
    shape.nodelist = hostlists.node_names(value)
    job["nodeAffinity"] = [*job.get("nodeAffinity", []), *selectors.named(shape.nodelist)]


def _exclude(value: str, job: Fields, shape: SbatchShape, notes: list[str]) -> None:
    job["nodeAffinity"] = [*job.get("nodeAffinity", []), *selectors.named(hostlists.node_names(value), without=True)]


#: {Slurm's word for a time of mail: kinds of our notifications}
_MAIL_KINDS = {
    "NONE": (),
    "BEGIN": ("start",),
    "END": ("end",),
    "FAIL": ("failure",),
    "INVALID_DEPEND": ("failure",),
    "TIME_LIMIT": ("failure",),
    "REQUEUE": ("requeue",),
    "ALL": ("start", "end", "requeue"),
    "ARRAY_TASKS": (),
}


def _mail_type(value: str, job: Fields, shape: SbatchShape, notes: list[str]) -> None:
    """Wish a rule of notifications for the job, which is made after the submit."""
    words = [word.strip().upper() for word in value.split(",")]
    for word in words:
        if word not in _MAIL_KINDS:
            notes.append(f"--mail-type={word[:40]} is NOT FOLLOWED: expected some of {', '.join(_MAIL_KINDS)}")
    kinds = [kind for word in words for kind in _MAIL_KINDS.get(word, ())]
    if kinds:
        job[MAIL] = {**job.get(MAIL, {}), "on": list(dict.fromkeys(kinds)), "elements": "ARRAY_TASKS" in words}


def _mail_user(value: str, job: Fields, shape: SbatchShape, notes: list[str]) -> None:
    job[MAIL] = {**job.get(MAIL, {}), "to": value}


def _hold(value: str, job: Fields, shape: SbatchShape, notes: list[str]) -> None:
    job["held"] = True


def _requeue(value: str, job: Fields, shape: SbatchShape, notes: list[str]) -> None:
    """Slurm requeues after the loss of a node, not after a failed exit; that is what always happens here."""


#: {directive: how it changes the job file}
DIRECTIVES: dict[str, Callable[[str, Fields, SbatchShape, list[str]], None]] = {
    "job-name": _set("name"), "partition": _set("queue"), "account": _set("project"), "chdir": _set("workdir"),
    "nodes": _nodes, "ntasks": _count("tasks"), "ntasks-per-node": _count("tasks_per_node"),
    "cpus-per-task": _count("cpus_per_task"), "gres": _gres, "gpus": _gpus("gpus"),
    "gpus-per-node": _gpus("gpus_per_node"), "gpus-per-task": _gpus("gpus_per_task"),
    "mem": _memory, "mem-per-cpu": _memory_per("memory_per_cpu_mib"), "mem-per-gpu": _memory_per("memory_per_gpu_mib"),
    "time": _time, "signal": _signal, "array": _array, "export": _export, "begin": _begin,
    "deadline": _moment("deadline"), "exclusive": _exclusive, "constraint": _constraint,
    "dependency": _dependency, "requeue": _requeue, "hold": _hold, "nodelist": _nodelist, "exclude": _exclude,
    "mail-type": _mail_type, "mail-user": _mail_user,
    "output": _file("stdout"), "error": _file("stderr"), "open-mode": _open_mode,
}  # fmt: skip
