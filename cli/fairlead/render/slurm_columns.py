"""Slurm's columns, by the letters and words of its --format options, and its records of jobs, nodes and efficiency. Pure.

A format is `%i %.9P` (squeue, sinfo) or `JobID,State%20` (sacct, squeue -O). An unknown field is refused by name. Start at `ListShape`.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from fairlead.errors import InputRefused
from fairlead.render.columns import SLURM_STATE_WORDS, SLURM_STATES, elapsed_seconds, job_request, slurm_node_state
from fairlead_schemas.http.api import Job, Node, Queue
from fairlead_schemas.queries.telemetry import JobMetrics
from fairlead_schemas.queuefile.settings import DEFAULT_POOL, POOL_LABEL
from fairlead_schemas.units import hostlists
from fairlead_schemas.units.quantities import format_milli


class Field(NamedTuple):
    """Column: its head and its text of a row; `width` as asked for (0: as wide as needed, negative: to the right)."""

    head: str
    text: Callable[[Any], str]
    width: int = 0
    #: Text before it.
    before: str = " "


class ListShape(NamedTuple):
    """Columns of a list, and how they are separated."""

    fields: tuple[Field, ...]

    def text(self, rows: Iterable[Any], *, header: bool = True, bars: str = "", last: bool = False) -> str:
        """Return the list. `bars` such as "|": between columns that are not aligned, and with `last` after the last one."""
        cells = [[field.text(row) for field in self.fields] for row in rows]
        if header:
            cells.insert(0, [field.head for field in self.fields])
        if bars:
            return "".join(bars.join(line) + (bars if last else "") + "\n" for line in cells)
        literal = any(field.before.strip() for field in self.fields)  # "%i|%T" is for programs: nothing is aligned
        if literal:
            return "".join(self._joined(line, [field.width for field in self.fields]) for line in cells)
        widths = [
            field.width or max((len(line[at]) for line in cells), default=0) for at, field in enumerate(self.fields)
        ]
        return "".join(self._joined(line, widths) for line in cells)

    def _joined(self, line: Sequence[str], widths: Sequence[int]) -> str:
        fitted = map(_fitted, line, widths)
        parts = (
            field.before * (at > 0) + text for at, (field, text) in enumerate(zip(self.fields, fitted, strict=True))
        )
        return "".join(parts).rstrip() + "\n"


def _fitted(text: str, width: int) -> str:
    text = "".join(char if char.isprintable() else "?" for char in text)
    cut = text[: abs(width)] if width else text
    return cut.rjust(-width) if width < 0 else cut.ljust(width)


def clock(seconds: int) -> str:
    """Return a length of time as Slurm writes it: D-HH:MM:SS without leading days."""
    days, rest = divmod(max(0, seconds), 86400)
    text = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{text}" if days else text


def _moment(text: str | None) -> str:
    return text[:19] if text else "Unknown"


def _word(job: Job) -> str:
    """The state in full; an end by the time limit is Slurm's TIMEOUT."""
    if job.reason is not None and job.reason.code == "time_limit" and job.state in ("failed", "cancelled"):
        return "TIMEOUT"
    return SLURM_STATE_WORDS[SLURM_STATES[job.state]]


def _elapsed(job: Job) -> str:
    return clock(elapsed_seconds(job))


def _limit(job: Job) -> str:
    return "UNLIMITED" if job.left_seconds is None else clock(job.left_seconds + job.used_seconds)


def _where(job: Job) -> str:
    return ",".join(job.nodes) or f"({_reason(job)})"


def _reason(job: Job) -> str:
    return job.reason.code if job.reason else "None"


def _exit(job: Job) -> str:
    return f"{job.exit_code or 0}:{job.signal or 0}"


def _tres(job: Job) -> str:
    request = job_request(job)
    gpus = format_milli(request.gpu_milli_total)
    return f"gres/gpu={gpus}"


def _cpus(job: Job) -> str:
    request = job_request(job)
    return str(sum(kind.units * max(1, kind.cpu_milli // 1000) for kind in request.kinds))


def _file(job: Job) -> dict[str, Any]:
    """The job file."""
    found: dict[str, Any] = msgspec.json.decode(bytes(job.spec))
    return found


_AFTER = {"succeeded": "afterok", "failed": "afternotok", "ended": "afterany"}


def _dependency(job: Job) -> str:
    return ",".join(f"{_AFTER[each['state']]}:{each['job']}" for each in job.after)


def job_fields() -> list[str]:
    """Return the names of all fields that --format takes."""
    return sorted([*(head for head, _ in _JOB.values()), *_EMPTY], key=str.lower)


#: Fields of a job: by Slurm's words in lower case, (head, text).
_JOB: dict[str, tuple[str, Callable[[Any], str]]] = {
    "jobid": ("JobID", lambda j: j.id),
    "jobidraw": ("JobIDRaw", lambda j: j.id),
    "jobname": ("JobName", lambda j: j.name),
    "name": ("NAME", lambda j: j.name),
    "partition": ("Partition", lambda j: j.queue),
    "account": ("Account", lambda j: j.project),
    "user": ("User", lambda j: j.user),
    "username": ("USER", lambda j: j.user),
    "state": ("State", _word),
    "statecompact": ("ST", lambda j: SLURM_STATES[j.state]),
    "exitcode": ("ExitCode", _exit),
    "elapsed": ("Elapsed", _elapsed),
    "elapsedraw": ("ElapsedRaw", lambda j: str(elapsed_seconds(j))),
    "timeused": ("TIME", _elapsed),
    "timelimit": ("Timelimit", _limit),
    "timeleft": ("TIME_LEFT", lambda j: "UNLIMITED" if j.left_seconds is None else clock(j.left_seconds)),
    "submit": ("Submit", lambda j: _moment(j.submitted_at)),
    "submittime": ("SUBMIT_TIME", lambda j: _moment(j.submitted_at)),
    "start": ("Start", lambda j: _moment(j.started_at)),
    "starttime": ("START_TIME", lambda j: _moment(j.started_at)),
    "end": ("End", lambda j: _moment(j.ended_at)),
    "endtime": ("END_TIME", lambda j: _moment(j.ended_at)),
    "nodelist": ("NodeList", lambda j: ",".join(j.nodes) or "None assigned"),
    "reasonlist": ("NODELIST(REASON)", _where),
    "reason": ("Reason", _reason),
    "nnodes": ("NNodes", lambda j: str(len(j.nodes) or job_request(j).units)),
    "numnodes": ("NODES", lambda j: str(job_request(j).units)),
    "alloctres": ("AllocTRES", _tres),
    "reqtres": ("ReqTRES", _tres),
    "tres_per_node": ("TRES_PER_NODE", _tres),
    "alloccpus": ("AllocCPUS", _cpus),
    "ncpus": ("NCPUS", _cpus),
    "numcpus": ("CPUS", _cpus),
    "priority": ("Priority", lambda j: str(j.priority)),
    "prioritylong": ("PRIORITY", lambda j: str(j.priority)),
    "restarts": ("Restarts", lambda j: str(max(0, j.attempt - 1))),
    "arrayjobid": ("ARRAY_JOB_ID", lambda j: j.id.partition("_")[0]),
    "arraytaskid": ("ARRAY_TASK_ID", lambda j: j.id.partition("_")[2] or "N/A"),
    "command": ("COMMAND", lambda j: j.name),
    "qos": ("QOS", lambda j: j.queue),
    "comment": ("Comment", lambda j: ""),
    "reqmem": ("ReqMem", lambda j: f"{job_request(j).memory_mib_total}M"),
    "reqcpus": ("ReqCPUS", _cpus),
    "reqnodes": ("ReqNodes", lambda j: str(job_request(j).units)),
    "minmemory": ("MIN_MEMORY", lambda j: f"{job_request(j).memory_mib}M"),
    "mincpus": ("MIN_CPUS", lambda j: str(max(1, job_request(j).cpu_milli // 1000))),
    "cputimeraw": ("CPUTimeRAW", lambda j: str(elapsed_seconds(j) * int(_cpus(j)))),
    "cputime": ("CPUTime", lambda j: clock(elapsed_seconds(j) * int(_cpus(j)))),
    "timelimitraw": (
        "TimelimitRaw",
        lambda j: "" if j.left_seconds is None else str((j.left_seconds + j.used_seconds) // 60),
    ),
    "derivedexitcode": ("DerivedExitCode", _exit),
    "batchhost": ("BATCH_HOST", lambda j: next(iter(j.nodes), "")),
    "dependency": ("DEPENDENCY", _dependency),
    "workdir": ("WorkDir", lambda j: str(_file(j).get("workdir", ""))),
    "cluster": ("Cluster", lambda j: "fairlead"),
}
#: Fields of Slurm's that nothing here has a value for: an empty column, so that scripts that name them go on.
_EMPTY = (
    "maxrss",
    "avecpu",
    "averss",
    "maxvmsize",
    "maxrssnode",
    "maxrsstask",
    "avevmsize",
    "totalcpu",
    "usercpu",
    "systemcpu",
    "maxdiskread",
    "maxdiskwrite",
    "consumedenergy",
    "consumedenergyraw",
    "ntasks",
    "uid",
    "gid",
    "group",
    "groupname",
    "wckey",
    "reservation",
    "admincomment",
    "layout",
    "associd",
    "flags",
)
#: squeue's letters, with the head that squeue prints over them.
_LETTERS: dict[str, tuple[str, str]] = {
    "i": ("jobid", "JOBID"), "A": ("jobid", "JOBID"), "P": ("partition", "PARTITION"), "j": ("jobname", "NAME"), "u": ("user", "USER"),
    "t": ("statecompact", "ST"), "T": ("state", "STATE"), "M": ("timeused", "TIME"), "l": ("timelimit", "TIME_LIMIT"),
    "L": ("timeleft", "TIME_LEFT"), "D": ("numnodes", "NODES"), "C": ("numcpus", "CPUS"), "R": ("reasonlist", "NODELIST(REASON)"),
    "N": ("nodelist", "NODELIST"), "r": ("reason", "REASON"), "S": ("starttime", "START_TIME"), "e": ("endtime", "END_TIME"),
    "V": ("submittime", "SUBMIT_TIME"), "b": ("tres_per_node", "TRES_PER_NODE"), "a": ("account", "ACCOUNT"), "Q": ("priority", "PRIORITY"),
    "p": ("priority", "PRIORITY"), "q": ("qos", "QOS"), "F": ("arrayjobid", "ARRAY_JOB_ID"), "K": ("arraytaskid", "ARRAY_TASK_ID"),
    "o": ("command", "COMMAND"), "k": ("comment", "COMMENT"), "m": ("minmemory", "MIN_MEMORY"), "c": ("mincpus", "MIN_CPUS"),
    "B": ("batchhost", "EXEC_HOST"), "E": ("dependency", "DEPENDENCY"), "Z": ("workdir", "WORK_DIR"),
}  # fmt: skip
_SQUEUE = "%i %P %j %u %t %M %D %R"
_SQUEUE_LONG = "%i %P %j %u %T %M %l %D %R"
_SACCT = "jobid,jobname,partition,account,alloctres,state,exitcode"
_SACCT_LONG = "jobid,jobname,partition,user,account,alloctres,alloccpus,nnodes,nodelist,state,exitcode,submit,start,end,elapsed,timelimit"
_PERCENT = re.compile(r"([^%]*)%(\.?)(\d*)([A-Za-z])")


def _by_letters(text: str, letters: Mapping[str, tuple[str, Callable[[Any], str]]]) -> ListShape:
    fields: list[Field] = []
    for before, dot, width, letter in _PERCENT.findall(text):
        if letter not in letters:
            raise InputRefused(f'--format: expected one of %{" %".join(letters)}, found "%{letter}"')
        head, value = letters[letter]
        fields.append(Field(head, value, int(width or 0) * (-1 if dot else 1), before))
    if not fields:
        raise InputRefused(f'--format: expected fields such as "%i %j %T", found "{text}"')
    return ListShape(tuple(fields))


def _by_words(text: str, separator: str) -> ListShape:
    """Return the columns of `JobID,State%20` (sacct) or `JobID:12,State:-20` (squeue -O)."""
    fields: list[Field] = []
    for word in text.split(","):
        name, _, width = word.strip().partition(separator)
        known = _JOB.get(name.lower()) or ((name, _nothing) if name.lower() in _EMPTY else None)
        if known is None:
            raise InputRefused(f'--format: expected fields such as {", ".join(sorted(_JOB)[:12])}, …, found "{name}"')
        if width and not re.fullmatch(r"[-.]?\d{1,3}", width):
            raise InputRefused(f'--format: expected a width after "{separator}", found "{word}"')
        fields.append(Field(known[0], known[1], int(width.replace(".", "-") or 0)))
    return ListShape(tuple(fields))


def _nothing(job: Job) -> str:
    return ""


def squeue_format(letters: str, words: str, *, long: bool) -> ListShape:
    """Return squeue's columns for -o, -O or -l."""
    if words:
        return _by_words(words, ":")
    known = {letter: (head, _JOB[name][1]) for letter, (name, head) in _LETTERS.items()}
    return _by_letters(letters or (_SQUEUE_LONG if long else _SQUEUE), known)


def sacct_format(words: str, *, long: bool) -> ListShape:
    """Return sacct's columns for --format."""
    return _by_words(words or (_SACCT_LONG if long else _SACCT), "%")


def sorted_by(rows: list[Job], keys: str) -> list[Job]:
    """Return the jobs by squeue's -S (letters with an optional minus, the first counts most). Raises InputRefused."""
    for key in reversed([key for key in keys.split(",") if key]):
        letter = key.lstrip("+-")
        if letter not in _LETTERS:
            raise InputRefused(f'--sort: expected letters of --format such as "-p,i", found "{key}"')
        value = _JOB[_LETTERS[letter][0]][1]
        rows = sorted(rows, key=lambda job: _natural(value(job)), reverse=key.startswith("-"))
    return rows


def _natural(text: str) -> list[tuple[int, int, str]]:
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", text) if part]


def state_names(words: str, otherwise: str) -> str:
    """Return our states for Slurm's (PD, PENDING, running, …); "all": every one; `otherwise` without any. Raises InputRefused."""
    if not words:
        return otherwise
    if words.lower() == "all":
        return ""
    found: list[str] = []
    for word in words.upper().split(","):
        mine = [state for state, short in SLURM_STATES.items() if word in (short, SLURM_STATE_WORDS[short])]
        mine = mine or {
            "TO": ["failed"],
            "TIMEOUT": ["failed"],
            "OUT_OF_MEMORY": ["failed"],
            "NODE_FAIL": ["failed"],
        }.get(word, [])
        if not mine:
            expected = ", ".join(dict.fromkeys(SLURM_STATE_WORDS.values()))
            raise InputRefused(f'--state: expected {expected} or "all", found "{word}"')
        found += mine
    return ",".join(dict.fromkeys(found))


def names(text: str) -> list[str]:
    """Return the nodes of a hostlist such as "n[1-3],x". Raises InputRefused."""
    try:
        return list(hostlists.expand(text))
    except ValueError as error:
        raise InputRefused(f'expected names of nodes such as "n1,n[3-5]", found "{text}"') from error


class NodeGroup(NamedTuple):
    """Line of sinfo: nodes of one partition in one state."""

    partition: str
    state: str
    nodes: Sequence[Node]
    #: up | down | drain | inact
    avail: str = "up"


#: {(held, drained): sinfo's word for the partition}
_AVAIL = {(False, False): "up", (True, False): "down", (False, True): "drain", (True, True): "inact"}


def closed_as(queue: Queue, queues: Sequence[Queue]) -> str:
    """Return sinfo's word for a queue that is held or drained by itself or by one above it; "up" for an open one."""
    above = [each for each in queues if queue.path == each.path or queue.path.startswith(f"{each.path}/")]
    return _AVAIL[any(each.held for each in above), any(each.drained for each in above)]


def sinfo_rows(nodes: Sequence[Node], partitions: Mapping[str, str], *, by_node: bool) -> list[NodeGroup]:
    """Return sinfo's lines: by state, or one for each node. `partitions`: {name: its availability}."""
    if by_node:
        pairs = [(node, *partition) for node in nodes for partition in partitions.items()]
        return [NodeGroup(name, slurm_node_state(node), [node], avail) for node, name, avail in pairs]
    groups: dict[str, list[Node]] = {}
    for node in nodes:
        groups.setdefault(slurm_node_state(node), []).append(node)
    return [
        NodeGroup(name, state, group, avail)
        for name, avail in partitions.items()
        for state, group in sorted(groups.items())
    ]


def _gres(row: NodeGroup) -> str:
    gpus = {node.gpus for node in row.nodes}
    return f"gpu:{'+'.join(map(str, sorted(gpus)))}" if any(gpus) else "(null)"


_SINFO: dict[str, tuple[str, Callable[[Any], str]]] = {
    "P": ("PARTITION", lambda r: r.partition), "R": ("PARTITION", lambda r: r.partition.rstrip("*")), "a": ("AVAIL", lambda r: r.avail),
    "l": ("TIMELIMIT", lambda r: "infinite"), "D": ("NODES", lambda r: str(len(r.nodes))), "t": ("STATE", lambda r: r.state),
    "T": ("STATE", lambda r: r.state), "N": ("NODELIST", lambda r: ",".join(node.id for node in r.nodes)), "G": ("GRES", _gres),
    "n": ("HOSTNAMES", lambda r: ",".join(node.hostname for node in r.nodes)),
    "c": ("CPUS", lambda r: str(min(node.cpu_milli for node in r.nodes) // 1000)),
    "m": ("MEMORY", lambda r: str(min(node.memory_mib for node in r.nodes))),
    "C": ("CPUS(A/I/O/T)", lambda r: _cpu_states(r.nodes)), "E": ("REASON", lambda r: next((n.reason for n in r.nodes if n.reason), "none")),
}  # fmt: skip


def _cpu_states(nodes: Sequence[Node]) -> str:
    total, free = sum(node.cpu_milli for node in nodes) // 1000, sum(node.cpu_milli_free for node in nodes) // 1000
    return f"{total - free}/{free}/0/{total}"


def sinfo_format(letters: str, *, by_node: bool, long: bool, reasons: bool) -> ListShape:
    """Return sinfo's columns for -o, -N, -l or -R."""
    usual = "%E %N" if reasons else "%N %D %P %t" if by_node else "%P %a %l %D %t %N"
    return _by_letters(letters or usual + (" %c %m %G" if long else ""), _SINFO)


SPRIO = ListShape(
    (
        Field("JOBID", lambda j: j.id),
        Field("PARTITION", lambda j: j.queue),
        Field("USER", lambda j: j.user),
        Field("PRIORITY", lambda j: str(j.priority)),
    )
)


def _share(queue: Queue, amounts: dict[str, int]) -> str:
    return format_milli(amounts.get("gpu", 0))


SSHARE = ListShape(
    (
        Field("Account", lambda q: "  " * q.path.count("/") + q.path),
        Field("RawShares", lambda q: str(q.settings.get("weight", 1))),
        Field("GuaranteedGPUs", lambda q: _share(q, q.guaranteed)),
        Field("UsedGPUs", lambda q: _share(q, q.used)),
        Field("BorrowedGPUs", lambda q: _share(q, q.borrowed)),
        Field("Waiting", lambda q: str(q.waiting)),
        Field("Running", lambda q: str(q.running)),
    )
)


def job_record(job: Job) -> str:
    """Return the job as `scontrol show job` prints it."""
    lines = [
        f"JobId={job.id} JobName={job.name}",
        f"   UserId={job.user} Account={job.project or '(null)'} Priority={job.priority}",
        f"   JobState={_word(job)} Reason={_reason(job)} ExitCode={_exit(job)} Restarts={max(0, job.attempt - 1)}",
        f"   RunTime={_elapsed(job)} TimeLimit={_limit(job)}",
        f"   SubmitTime={_moment(job.submitted_at)} StartTime={_moment(job.started_at)} EndTime={_moment(job.ended_at)}",
        f"   Partition={job.queue} NodeList={','.join(job.nodes) or '(null)'} NumNodes={job_request(job).units}",
        f"   NumCPUs={_cpus(job)} TRES={_tres(job)}",
    ]
    return "\n".join(lines) + "\n"


def node_record(node: Node) -> str:
    """Return the node as `scontrol show node` prints it."""
    used = (node.cpu_milli - node.cpu_milli_free) // 1000
    lines = [
        f"NodeName={node.id} NodeHostName={node.hostname} NodeAddr={node.address}",
        f"   State={slurm_node_state(node).upper()} Reason={node.reason or 'none'}",
        f"   CPUAlloc={used} CPUTot={node.cpu_milli // 1000} RealMemory={node.memory_mib} FreeMem={node.memory_mib_free}",
        f"   Gres=gpu:{node.gpus} GresUsed=gpu:{node.gpus - node.gpus_free}",
    ]
    return "\n".join(lines) + "\n"


def partition_record(queue: Queue, nodes: Sequence[Node]) -> str:
    """Return the queue as `scontrol show partition` prints it. Every queue may use the nodes of its pool."""
    own = [node for node in nodes if node.labels.get(POOL_LABEL, DEFAULT_POOL) == queue.pool]
    state = {"up": "UP", "down": "DOWN", "drain": "DRAIN", "inact": "INACTIVE"}
    most = queue.maximum.get("gpu")
    lines = [
        f"PartitionName={queue.path}",
        f"   State={state[closed_as(queue, [queue])]} Default={'YES' if queue.path == 'default' else 'NO'}",
        f"   TotalNodes={len(own)} Nodes={','.join(node.id for node in own) or '(null)'}",
        f"   TotalCPUs={sum(node.cpu_milli for node in own) // 1000} MaxTime=UNLIMITED MaxGPUs={format_milli(most) if most is not None else 'UNLIMITED'}",
    ]
    return "\n".join(lines) + "\n"


def efficiency(job: Job, metrics: JobMetrics | None) -> str:
    """Return what seff prints, for GPUs. CPU and memory of a job are not stored, so they are not named."""
    values = [value for gpu in metrics.gpus for value in gpu.utilization_pct if value is not None] if metrics else []
    memory = [value for gpu in metrics.gpus for value in gpu.memory_used_mib if value is not None] if metrics else []
    lines = [
        f"Job ID: {job.id}",
        f"User: {job.user}",
        f"State: {_word(job)} (exit code {job.exit_code or 0})",
        f"Nodes: {len(job.nodes) or job_request(job).units}",
        f"Job Wall-clock time: {_elapsed(job)}",
        f"GPUs: {format_milli(job_request(job).gpu_milli_total)}",
        f"GPU Efficiency: {sum(values) / len(values):.2f}%" if values else "GPU Efficiency: nothing was measured",
    ]
    if memory:
        lines.append(f"GPU Memory: {max(memory):.0f} MiB at most on one GPU")
    return "\n".join(lines) + "\n"
