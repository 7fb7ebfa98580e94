"""Slurm batch scripts: `#SBATCH` lines as Fairlead job file words. Pure.

Rules: only leading comment lines count, and only within the first 32 KiB; the command line wins over the
file. What each directive means is in `sbatch_options.py`. The script travels inside the job file, as `sbatch`
copies it. Start at `read`; `parse_options` reads the same options where they stand on a command line.
"""

import re
import shlex
from collections.abc import Collection, Iterable, Mapping

from fairlead.errors import InputRefused
from fairlead.jobfile.sbatch_options import Fields, TranslatedScript, translate

HEAD_BYTES_MAX = 32 * 1024
#: Interpreters that take a script as `-c TEXT NAME ARGUMENTS…`.
_TAKES_TEXT = re.compile(r"(?:ba|da|z|k)?sh|python[0-9.]*")

#: Short options and other spellings, by the long name.
_SPELLINGS = {
    "J": "job-name", "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "G": "gpus", "t": "time", "p": "partition",
    "A": "account", "a": "array", "D": "chdir", "b": "begin", "o": "output", "e": "error", "d": "dependency",
    "C": "constraint", "w": "nodelist", "x": "exclude", "q": "qos", "H": "hold", "i": "input", "L": "licenses",
    "W": "wait", "Q": "quiet", "v": "verbose", "O": "overcommit", "s": "oversubscribe", "k": "no-kill", "l": "label", "u": "unbuffered", "workdir": "chdir",
}  # fmt: skip
#: Slurm's variables that a job has which came by #SBATCH (the agent's and those of `sbatch_options.variables`).
SET = frozenset(
    [
        "SLURM_ARRAY_JOB_ID",
        "SLURM_ARRAY_TASK_ID",
        "SLURM_ARRAY_TASK_COUNT",
        "SLURM_ARRAY_TASK_MAX",
        "SLURM_ARRAY_TASK_MIN",
        "SLURM_ARRAY_TASK_STEP",
        "SLURM_CLUSTER_NAME",
        "SLURM_CPUS_ON_NODE",
        "SLURM_CPUS_PER_TASK",
        "SLURM_GPUS",
        "SLURM_GPUS_ON_NODE",
        "SLURM_GPUS_PER_NODE",
        "SLURM_GPUS_PER_TASK",
        "SLURM_JOBID",
        "SLURM_JOB_ACCOUNT",
        "SLURM_JOB_CPUS_PER_NODE",
        "SLURM_JOB_GPUS",
        "SLURM_JOB_ID",
        "SLURM_JOB_NAME",
        "SLURM_JOB_NODELIST",
        "SLURM_JOB_NUM_NODES",
        "SLURM_JOB_PARTITION",
        "SLURM_JOB_USER",
        "SLURM_LOCALID",
        "SLURM_MEM_PER_CPU",
        "SLURM_MEM_PER_NODE",
        "SLURM_NNODES",
        "SLURM_NODEID",
        "SLURM_NODELIST",
        "SLURM_NPROCS",
        "SLURM_NTASKS",
        "SLURM_NTASKS_PER_NODE",
        "SLURM_PROCID",
        "SLURM_RESTART_COUNT",
        "SLURM_STEPID",
        "SLURM_STEP_ID",
        "SLURM_STEP_NUM_NODES",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_SUBMIT_DIR",
        "SLURM_SUBMIT_HOST",
        "SLURM_TASKS_PER_NODE",
        "SLURM_TASK_PID",
        "SLURMD_NODENAME",
    ]
)
#: Slurm's variables for which a job here has one of its own.
OUR_NAMES = {
    "SLURM_ARRAY_TASK_ID": "FAIRLEAD_ARRAY_INDEX",
    "SLURM_JOB_ID": "FAIRLEAD_JOB",
    "SLURM_JOBID": "FAIRLEAD_JOB",
    "SLURM_NODEID": "NODE_RANK",
    "SLURM_NNODES": "NNODES",
    "SLURM_JOB_NUM_NODES": "NNODES",
    "SLURM_GPUS_ON_NODE": "GPUS_PER_NODE",
    "SLURM_RESTART_COUNT": "FAIRLEAD_ATTEMPT (from 1)",
}
#: Options that no value follows; some take one, but only after "=".
_WITHOUT_VALUE = frozenset(
    {
        "contiguous",
        "disable-stdout-job-summary",
        "exclusive",
        "get-user-env",
        "hold",
        "ignore-pbs",
        "label",
        "nice",
        "no-kill",
        "no-requeue",
        "overcommit",
        "oversubscribe",
        "parsable",
        "propagate",
        "pty",
        "quiet",
        "reboot",
        "requeue",
        "spread-job",
        "test-only",
        "unbuffered",
        "use-min-nodes",
        "verbose",
        "wait",
    }
)


def is_script(text: str) -> bool:
    """True for a text that starts as a script does, or whose leading comments hold a directive."""
    return text.startswith("#!") or any(line.startswith("#SBATCH") for line in _leading_comments(text))


def read(
    text: str,
    *,
    name: str,
    arguments: list[str],
    more: Iterable[tuple[str, str]] = (),
    environ: Mapping[str, str] | None = None,
) -> TranslatedScript:
    """The job file of a script, with the options of a command line (`more`) over its own; `environ` as in `translate`. Raises
    Refused for a directive whose value cannot be read.
    """
    options: list[tuple[str, str]] = []
    notes: list[str] = []
    more = list(more)
    parts = False
    directives = [line for line in _leading_comments(text) if line.startswith("#SBATCH")]
    for line in directives:
        if line.split()[1:2] in (["hetjob"], ["packjob"]):
            parts = True
        elif not parts:
            found, remarks = parse_options(_words(line.removeprefix("#SBATCH"), line))
            options += found
            notes += remarks
    notes += [
        f"line {number}: #SBATCH after the first command is not read, as in Slurm" for number in _late_directives(text)
    ]
    translated = translate([*options, *more, *([("hetjob", "")] if parts else [])], environ, text)
    job: Fields = {"name": name, **translated.job, "command": _command(text, name, arguments)}
    slurm = bool(directives or more)
    if not slurm:  # no script of Slurm's: it runs on every node
        del job["launcher"]
        job.pop("processesPerNode", None)
    return TranslatedScript(job, notes + translated.notes + _slurm_words(text, SET if slurm else ()), translated.unkept)


def _slurm_words(text: str, known: Collection[str]) -> list[str]:
    """Return notes on Slurm features that the script uses at run time and that are not there; `known`: variables that are."""
    code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    names = dict.fromkeys(re.findall(r"\bSLURMD?_[A-Z_]*[A-Z]", code))
    notes = [
        f"{name} is NOT SET here{f'; {OUR_NAMES[name]} is' if name in OUR_NAMES else ''}"
        for name in names
        if name not in known
    ]
    if not known and re.search(r"^\s*srun\b", code, re.MULTILINE):
        notes.append(
            "srun is NOT HERE: with --nodes, every node runs the whole script (NODE_RANK, NNODES, MASTER_ADDR)"
        )
    return notes


def _words(text: str, line: str) -> list[str]:
    """Words as a shell would split them, up to a remark. Raises Refused for an open quote."""
    try:
        return shlex.split(text, comments=True)
    except ValueError as error:
        raise InputRefused(f'expected words with closed quotes, found "{line[:80]}"') from error


def _leading_comments(text: str) -> Iterable[str]:
    for line in text[:HEAD_BYTES_MAX].splitlines():
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            return
        if stripped:
            yield stripped


def _late_directives(text: str) -> list[int]:
    lines = text.splitlines()
    first = next((i for i, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#")), len(lines))
    return [i + 1 for i in range(first, len(lines)) if lines[i].lstrip().startswith("#SBATCH ")]


def _command(text: str, name: str, arguments: list[str]) -> list[str]:
    first = text.partition("\n")[0]
    words = _words(first[2:], first) if first.startswith("#!") else ["/bin/bash"]
    if words and words[0].rpartition("/")[2] == "env":
        words = [word for word in words[1:] if word != "-S"]
    program = words[0].rpartition("/")[2] if words else ""
    if not _TAKES_TEXT.fullmatch(program):
        raise InputRefused(
            f'{name}: expected a shell or Python in the "#!" line, found "{first}"',
            hint="fairlead submit -- PROGRAM FILE runs anything",
        )
    # A shell takes its name as $0 after the text; Python has sys.argv[0] == "-c" and wants arguments only.
    return [*words, "-c", text, *([] if program.startswith("python") else [name]), *arguments]


def parse_options(words: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """(long name, value) pairs from sbatch's words: `--nodes=2`, `--nodes 2`, `-N 2`, `-N2`; and remarks."""
    options: list[tuple[str, str]] = []
    notes: list[str] = []
    queue = list(words)
    while queue:
        word = queue.pop(0)
        if word.startswith("--"):
            key, equals, value = word[2:].partition("=")
        elif len(word) > 1 and word.startswith("-"):
            key, equals, value = word[1], word[2:], word[2:].removeprefix("=")
        else:
            notes.append(f'"{word}" on an #SBATCH line is not an option')
            continue
        key = _SPELLINGS.get(key, key)
        if not equals and key not in _WITHOUT_VALUE and queue and not queue[0].startswith("-"):
            value = queue.pop(0)
        options.append((key, value))
    return options, notes


def wants_value(word: str) -> bool:
    """True when the next word is this option's value: `--nodes 2`, `-N 2`, but not `--nodes=2`, `-N2`, `--requeue`."""
    if word.startswith("--"):
        return "=" not in word and word[2:] not in _WITHOUT_VALUE
    return len(word) == 2 and _SPELLINGS.get(word[1], word[1]) not in _WITHOUT_VALUE
