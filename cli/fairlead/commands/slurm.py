"""Hidden aliases that submit in Slurm's words: `sbatch srun`. Lists and changes: `slurm_lists.py`."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from fairlead.commands.options import connect
from fairlead.commands.run import run_job
from fairlead.commands.submission import send
from fairlead.commands.submit import as_submitted, with_products
from fairlead.errors import InputRefused
from fairlead.jobfile import reader, sbatch, sbatch_options
from fairlead.jobfile.reader import read_script
from fairlead.jobfile.submit_flags import override
from fairlead.render import terminal
from fairlead.render.terminal import Format

_SPLIT: dict[str, Any] = {"context_settings": {"ignore_unknown_options": True, "allow_interspersed_args": False}}
#: Options of sbatch and srun are parsed by `split`.
TYPER_SETTINGS: dict[str, dict[str, Any]] = {"sbatch": _SPLIT, "srun": _SPLIT}


def sbatch_verb(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[OPTIONS] SCRIPT [ARGUMENTS]", show_default=False)
    ] = None,
) -> None:
    """Submit a batch script with sbatch's own options (fairlead submit).

    fairlead sbatch --nodes=2 --gres=gpu:8 train.sh

    fairlead sbatch --wrap "python train.py"
    """
    own, script, arguments, mode = split(words or [])
    options, remarks = sbatch.parse_options(own)
    flags = sbatch_options.translate(options, os.environ, mode.wrap)
    if mode.wrap:
        job = {"name": "wrap", **flags.job, "command": ["/bin/sh", "-c", mode.wrap]}
        loaded = reader.Loaded([job], flags.notes, flags.unkept)
    else:
        text = read_script(Path(script)) if script else sys.stdin.read(reader.FILE_BYTES_MAX + 1)
        # A script is Slurm's here even without an option; this one changes nothing.
        more = options or [("requeue", "")]
        loaded = reader.load(text, name=Path(script).name or "sbatch", arguments=arguments, more=more)
        loaded = _with_flags(loaded, flags)
    for note in [*loaded.notes, *remarks, *reader.require_kept(loaded.unkept, mode.ignore)]:
        terminal.note(f"warning: {note}")
    here, mail = {"workdir": str(Path.cwd())}, sbatch_options.take_mail(loaded.jobs)
    with connect() as client:
        jobs = [with_products(as_submitted(job, here), client, offline_ok=mode.test_only) for job in loaded.jobs]
        send(
            client,
            jobs,
            key="",
            wait=mode.wait,
            timeout="",
            dry_run=mode.test_only,
            output=Format.table,
            words="" if mode.parsable else "Submitted batch job ",
            mail=mail,
        )


def _with_flags(loaded: reader.Loaded, flags: sbatch_options.TranslatedScript) -> reader.Loaded:
    """Return what was loaded with the command line's options over job files, which are no scripts of Slurm's."""
    if all(job.get("launcher") == "slurm" for job in loaded.jobs):
        return loaded
    words = {key: value for key, value in flags.job.items() if key not in ("launcher", "processesPerNode", "env")}
    own = {name: value for name, value in flags.job.get("env", {}).items() if not name.startswith("SLURM_")}
    words |= {"env": own} if own else {}
    jobs = [override(job, words) for job in loaded.jobs]
    return reader.Loaded(jobs, [*loaded.notes, *flags.notes], {**loaded.unkept, **flags.unkept})


def srun(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[OPTIONS] COMMAND [ARGUMENTS]", show_default=False)
    ] = None,
) -> None:
    """Run a command as a job with srun's own options (fairlead run).

    fairlead srun --gpus=1 nvidia-smi
    """
    own, command, arguments, mode = split(words or [])
    if not command:
        raise InputRefused("expected a command, found nothing", hint="fairlead srun --gpus=1 nvidia-smi")
    options, remarks = sbatch.parse_options(own)
    flags = sbatch_options.translate(options, os.environ)
    for note in [*remarks, *flags.notes, *reader.require_kept(flags.unkept, mode.ignore)]:
        terminal.note(f"warning: {note}")
    # The job's own srun starts the tasks.
    job = {"name": Path(command).name, **flags.job}
    job["command"] = ["/bin/sh", "-c", 'exec srun "$@"', "srun", command, *arguments]
    if any(sbatch_options.take_mail([job])):
        terminal.note("warning: --mail-type is NOT FOLLOWED: srun waits for the job")
    with connect() as client:
        raise typer.Exit(
            run_job(client, [with_products(as_submitted(job, {"workdir": str(Path.cwd())}), client, offline_ok=False)])
        )


class SbatchMode(NamedTuple):
    """Options that address sbatch itself rather than the job."""

    wrap: str = ""
    wait: bool = False
    parsable: bool = False
    test_only: bool = False
    #: Options that cannot be kept here, and are to be left out.
    ignore: tuple[str, ...] = ()


def split(words: list[str]) -> tuple[list[str], str, list[str], SbatchMode]:
    """(the job's options, script, its arguments, what sbatch itself shall do): options end at the script."""
    own: list[str] = []
    mode = SbatchMode()
    rest = list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--wrap" and rest:
            mode = mode._replace(wrap=rest.pop(0))
        elif word.startswith("--wrap="):
            mode = mode._replace(wrap=word.partition("=")[2])
        elif word == "--ignore" and rest:
            mode = mode._replace(ignore=(*mode.ignore, rest.pop(0)))
        elif word.startswith("--ignore="):
            mode = mode._replace(ignore=(*mode.ignore, word.partition("=")[2]))
        elif word in ("--wait", "-W"):
            mode = mode._replace(wait=True)
        elif word == "--parsable":
            mode = mode._replace(parsable=True)
        elif word == "--test-only":
            mode = mode._replace(test_only=True)
        else:
            own.append(word)
            if sbatch.wants_value(word) and rest:
                own.append(rest.pop(0))
    if mode.wrap and rest:
        raise InputRefused(f'expected either --wrap or a script, found both ("{rest[0]}")')
    return own, rest[0] if rest else "", rest[1:], mode
