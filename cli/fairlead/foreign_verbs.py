"""Verbs of other systems, and what to type here instead. Data, read once somebody has typed one of them.

Start at `ours`.
"""

_LIST = "fairlead jobs | fairlead nodes | fairlead queues"
_SHOW = "fairlead show JOB | fairlead why JOB | fairlead nodes describe NODE"
_SUBMIT = "fairlead run -- CMD | fairlead submit train.sh | fairlead submit -f job.yaml"
_RUN = "fairlead run -- CMD"
_CANCEL = "fairlead cancel JOB"
_JOBS = "fairlead jobs"
_NODES = "fairlead nodes"
_QUEUES = "fairlead queues"
_LOGS = "fairlead logs -f JOB"
_UPDATE = "fairlead update JOB --time 4h --priority 70"
_HOLD = "fairlead hold JOB"
_REQUEUE = "fairlead requeue JOB"
_RELEASE = "fairlead release JOB"
_MOVE = "fairlead move JOB QUEUE"
_USAGE = "fairlead usage"
_EVENTS = "fairlead events --job JOB"
_TOP = "fairlead top | fairlead show JOB --plot"
_INTERACTIVE = "fairlead exec -it JOB -- bash | fairlead run -- CMD"

#: Programs whose own verb follows: `fairlead kubectl get pods`.
PROGRAMS = frozenset({"kubectl", "sky", "dstack", "ray", "hq", "runai", "slurm"})
#: {verb: what to type here, or that there is no such thing}
OURS: dict[str, str] = {
    # Several systems
    "list": _LIST, "ls": _LIST, "ps": _JOBS, "job": _JOBS, "restart": _REQUEUE, "rerun": _REQUEUE, "node": _NODES, "queue": _QUEUES,
    "info": _SHOW, "inspect": _SHOW, "tail": _LOGS, "log": _LOGS, "kill": _CANCEL, "stop": _CANCEL, "rm": _CANCEL,
    "delete": _CANCEL, "start": _SUBMIT, "pause": _HOLD, "suspend": _HOLD, "resume": _RELEASE, "unhold": _RELEASE,
    "history": _EVENTS, "event": _EVENTS, "explain": "fairlead why JOB", "reason": "fairlead why JOB", "metrics": _TOP,
    "stats": _TOP, "cost": _USAGE, "config": "fairlead context list", "user": "fairlead people", "version": "fairlead doctor",
    "shell": _INTERACTIVE,
    # kubectl
    "get": _LIST, "describe": _SHOW, "apply": f"{_SUBMIT} | fairlead queues apply -f queues.yaml", "create": _SUBMIT,
    "edit": _UPDATE, "patch": _UPDATE, "auth": "fairlead whoami | fairlead access",
    # SkyPilot, dstack, Ray
    "launch": _RUN, "offer": "fairlead submit --dry-run --gpus 8 -- CMD", "fleet": _NODES, "autostop": "fairlead idle",
    "cost-report": _USAGE, "check": "fairlead doctor",
    # Slurm
    "salloc": _RUN, "sattach": _LOGS, "sstat": _TOP,
    "sreport": _USAGE,
    "sacctmgr": "fairlead queues apply -f queues.yaml | fairlead access",
    # LSF
    "bsub": _SUBMIT, "bjobs": _JOBS, "bkill": _CANCEL, "bqueues": _QUEUES, "bhosts": _NODES, "bpeek": _LOGS, "bhist": _EVENTS,
    "bmod": _UPDATE, "brequeue": _REQUEUE, "bstop": _HOLD, "bresume": _RELEASE, "bswitch": _MOVE,
    # PBS, Grid Engine
    "qsub": _SUBMIT, "qstat": _JOBS, "qdel": _CANCEL, "qhold": _HOLD, "qrls": _RELEASE, "qalter": _UPDATE, "qrerun": _REQUEUE, "qmove": _MOVE,
    "pbsnodes": _NODES, "qhost": _NODES, "qrsh": _INTERACTIVE, "qlogin": _INTERACTIVE, "qacct": _USAGE,
}  # fmt: skip


def ours(words: list[str]) -> str:
    """Return what to type instead of a command line that begins with another system's verb; "" where none is known."""
    verb = next((word for word in words if word not in PROGRAMS), "")
    return OURS.get(verb, _LIST if words and words[0] in PROGRAMS else "")
