"""Batch scripts of Slurm's users: every directive is followed or named, none is lost."""

from typing import Any

import pytest

from fairlead.errors import InputRefused
from fairlead.jobfile import reader, sbatch
from fairlead.jobfile.gpu_models import PRODUCT_LABEL
from fairlead.jobfile.sbatch_options import _MAIL_KINDS, TranslatedScript, take_mail
from fairlead_schemas.policies.notifications import KINDS

GPU = "nvidia.com/gpu"
#: What every script of Slurm's has.
OURS = {"command", "launcher", "processesPerNode", "env"}


def script(*directives: str, body: str = "python train.py") -> str:
    lines = [f"#SBATCH {directive}" for directive in directives]
    return "\n".join(["#!/bin/bash", *lines, "", body, ""])


def read(*directives: str) -> TranslatedScript:
    return sbatch.read(script(*directives), name="train.sh", arguments=[])


@pytest.mark.parametrize(
    ("directives", "expected"),
    [
        (["--job-name=vision"], {"name": "vision"}),
        (["-J vision"], {"name": "vision"}),
        (["--nodes=2"], {"nodes": 2}),
        (["-N2"], {"nodes": 2}),
        (["--cpus-per-task=8"], {"resources": {"cpu": "8"}}),
        (["--nodes=2", "--ntasks=16", "-c 4"], {"nodes": 2, "resources": {"cpu": "32"}}),
        (["--ntasks-per-node=8", "--cpus-per-task=4"], {"resources": {"cpu": "32"}}),
        (["--gres=gpu:4"], {"resources": {GPU: 4}}),
        (["--gres=gpu"], {"resources": {GPU: 1}}),
        (["--gres=gpu:a100:8"], {"resources": {GPU: 8}, "nodeSelector": {PRODUCT_LABEL: "a100"}}),
        (["--gres=gpu:a100"], {"resources": {GPU: 1}, "nodeSelector": {PRODUCT_LABEL: "a100"}}),
        (["--nodes=2", "--gpus=16"], {"nodes": 2, "resources": {GPU: 8}}),
        (["--gpus-per-node=h100:8"], {"resources": {GPU: 8}, "nodeSelector": {PRODUCT_LABEL: "h100"}}),
        (["--gpus-per-task=1", "--ntasks-per-node=8"], {"resources": {GPU: 8, "cpu": "8"}}),
        (["--mem=64G"], {"resources": {"memory": "64Gi"}}),
        (["--mem=4000"], {"resources": {"memory": "4000Mi"}}),
        (["--mem-per-cpu=2G", "-c 8"], {"resources": {"cpu": "8", "memory": "16384Mi"}}),
        (["--mem-per-gpu=10G", "--gres=gpu:8"], {"resources": {GPU: 8, "memory": "81920Mi"}}),
        (["--time=90"], {"time": {"total": "5400s"}}),
        (["-t 1-12:30:00"], {"time": {"total": "131400s"}}),
        (["--time=UNLIMITED"], {}),
        (["--signal=B:TERM@120"], {"time": {"grace": "120s"}}),
        (["--signal=B:USR1@300"], {"checkpoint": {"signal": "SIGUSR1", "notice": "300s"}}),
        (["--signal=B:SIGINT"], {"checkpoint": {"signal": "SIGINT", "notice": "60s"}}),
        (["--signal=B:12@30"], {"checkpoint": {"signal": "SIGUSR2", "notice": "30s"}}),
        (["--partition=research/vision"], {"queue": "research/vision"}),
        (["--account=llm"], {"project": "llm"}),
        (["--array=0-7"], {"array": "0-7"}),
        (["--array=0-9%2"], {"array": "0-9%2"}),
        (["--array=5"], {"array": "5-5"}),
        (
            ["--dependency=afterok:1:2,afterany:3,afternotok:4_1"],
            {
                "dependsOn": [
                    {"job": "1", "state": "succeeded"},
                    {"job": "2", "state": "succeeded"},
                    {"job": "3", "state": "ended"},
                    {"job": "4_1", "state": "failed"},
                ]
            },
        ),
        (["-d afterok:12"], {"dependsOn": [{"job": "12", "state": "succeeded"}]}),
        (["--deadline=2027-01-31T10:00:00+01:00"], {"deadline": "2027-01-31T10:00:00+01:00"}),
        (["--chdir=/data"], {"workdir": "/data"}),
        (["--export=A=1,B=two"], {"env": {"A": "1", "B": "two"}}),
        (["--begin=2027-01-31T10:00:00+01:00"], {"startAt": "2027-01-31T10:00:00+01:00"}),
        (["--requeue"], {}),
        (["--nodes=2-8", "--gpus-per-node=4"], {"nodes": "2-8", "resources": {GPU: 4}}),
        (["--nodes=2-2"], {"nodes": 2}),
        (["--ntasks=16", "--gpus-per-task=1", "-c 4"], {"tasks": 16, "resources": {GPU: 1, "cpu": "4"}}),
        (["--ntasks=16", "--mem-per-cpu=2G", "-c 2"], {"tasks": 16, "resources": {"cpu": "2", "memory": "4096Mi"}}),
        (["--ntasks=4", "--gpus=4"], {"resources": {GPU: 4, "cpu": "4"}}),
        (["--ntasks=4", "--mem=8G"], {"resources": {"cpu": "4", "memory": "8Gi"}}),
        (["--gres=gpu:3g.20gb:2"], {"resources": {"nvidia.com/mig-3g.20gb": 2}}),
        (["--exclusive"], {"exclusive": True}),
        (["--constraint=ib"], {"nodeAffinity": ["ib"]}),
        (["-C ib&fairlead/rack=r1"], {"nodeAffinity": ["ib", "fairlead/rack=r1"]}),
        (["--nodes=4", "--nodes=2"], {"nodes": 2}),
        (["-o x-%j.out"], {"output": {"stdout": "x-{job}.out"}}),
        (
            ["--output=%x-%A_%4a.%%.%u", "--error=%N.err", "--open-mode=append"],
            {"output": {"stdout": "{name}-{array}_{index:04}.%.{user}", "stderr": "{node}.err", "append": True}},
        ),
        (['--job-name "two words" # a remark'], {"name": "two words"}),
    ],
)
def test_a_directive_becomes_fields_of_a_job_file(directives: list[str], expected: dict[str, Any]) -> None:
    """The table of supported ones; the result is a valid job file once GPU names are resolved."""
    job = dict(read(*directives).job)
    assert job.pop("launcher") == "slurm" and (job.pop("processesPerNode", 0) or "tasks" in job)
    own = {name: value for name, value in job.pop("env", {}).items() if not name.startswith("SLURM_")}
    job |= {"env": own} if own else {}
    assert {key: value for key, value in job.items() if key not in ("command", "name") or key in expected} == expected
    reader.check(job)


@pytest.mark.parametrize(
    "directive",
    [
        "--qos=high",
        "--mail-type=STAGE_OUT",
        "--export=ALL",
        "--no-requeue",
    ],
)
def test_directives_without_effect_on_the_run_are_noted(directive: str) -> None:
    """Each leaves a note that names it, and changes nothing else."""
    found = read(directive)
    assert len(found.notes) == 1 and not found.unkept
    assert "NOT" in found.notes[0]
    assert {k: v for k, v in found.job.items() if k not in OURS} == {"name": "train.sh"}


@pytest.mark.parametrize(
    ("directive", "name"),
    [
        ("--gres=shard:1", "gres"),
        ("--gres=license:2", "gres"),
        ("--exclusive=user", "exclusive"),
        ("--licenses=matlab", "licenses"),
        ("--mem=0", "mem"),
        ("--export=HOME", "export"),
        ("--frobnicate=1", "frobnicate"),
        ("--sync=src", "sync"),
        ("-Z", "Z"),
    ],
)
def test_unsupported_directives_are_named(directive: str, name: str) -> None:
    """A directive that would change the program, place or time of the run is never ignored; the caller refuses it."""
    found = read(directive)
    assert list(found.unkept) == [name] and not found.notes
    assert {k: v for k, v in found.job.items() if k not in OURS} == {"name": "train.sh"}
    assert ("fairlead submit --sync" in found.unkept[name]) == (name == "sync"), "an option of submit names it"


@pytest.mark.parametrize(
    "directive",
    [
        "--signal=KILL@60",
        "--signal=B:USR1@soon",
        "--nodes=0",
        "--time=soon",
        "--mem=lots",
        "--array=1,3,5",
        "--array=0-9%0",
        "--array=0-9%x",
        "--gres=gpu:0",
        "--nodes=8-2",
        "--nodes=2-x",
        "--constraint=a|b",
        "--constraint=",
        "--begin=soon",
        "--open-mode=w",
        "--output=",
        "--deadline=tomorrow",
        "--gpus=x:",
        "--dependency=singleton",
        "--dependency=after:1",
        "--dependency=afterok",
        "--dependency=afterok:x",
        "--dependency=afterok:1?afterany:2",
    ],
)
def test_an_unreadable_value_is_refused(directive: str) -> None:
    """A directive whose value cannot be read is refused naming it: a guess would be run for days."""
    with pytest.raises(InputRefused, match=directive.partition("=")[0]):
        read(directive)


def test_mail_is_wished_by_slurms_kinds() -> None:
    """It is no part of the job file: a rule of notifications is made after the submit."""
    found = read("--mail-type=END,FAIL,ARRAY_TASKS", "--mail-user=a@example.org")
    assert not found.notes and not found.unkept
    wishes = take_mail([found.job, read("--mail-type=NONE").job, read("--mail-user=a@example.org").job, read().job])
    assert wishes == [{"on": ["end", "failure"], "elements": True, "to": "a@example.org"}, None, None, None]
    reader.check(found.job)
    kinds = {kind for kinds in _MAIL_KINDS.values() for kind in kinds}
    assert kinds <= set(KINDS)


def test_export_of_all_names_the_variables_that_the_script_uses() -> None:
    """Those that the submitter has; neither what every shell has, nor what is sent by name, nor Slurm's."""
    body = 'echo $HOME ${EPOCHS} "$WANDB_MODE" $SLURM_JOB_ID $SENT $UNKNOWN'
    environ = dict.fromkeys(["HOME", "EPOCHS", "WANDB_MODE", "SLURM_JOB_ID", "SENT", "AWS_SECRET"], "x")
    text = script("--export=ALL,SENT=1", body=body)
    found = sbatch.read(text, name="train.sh", arguments=[], environ=environ)
    (note,) = found.notes
    assert note.startswith("--export=ALL is NOT FOLLOWED: your environment may hold secrets")
    assert note.endswith("the script names EPOCHS, WANDB_MODE: --export=EPOCHS,WANDB_MODE")
    assert {k: v for k, v in found.job["env"].items() if not k.startswith("SLURM_")} == {"SENT": "1"}


def test_a_node_is_not_named_and_excluded() -> None:
    """It would wait permanently; Slurm refuses it, too."""
    with pytest.raises(InputRefused, match="found n2 in both"):
        read("--nodelist=n[1-2]", "--exclude=n2")
    assert read("--nodelist=n1", "--exclude=n2").job["nodeAffinity"] == [
        "fairlead/node in (n1)",
        "fairlead/node notin (n2)",
    ]


def test_gpus_in_all_must_divide_over_the_nodes() -> None:
    """`--gpus` counts in all; what does not come out even is refused, not rounded."""
    with pytest.raises(InputRefused, match="multiple of --nodes"):
        read("--nodes=3", "--gpus=8")
    with pytest.raises(InputRefused, match="expected one number of --nodes"):
        read("--nodes=2-4", "--gpus=8")


def test_only_leading_comments_count() -> None:
    """A directive after the first command is not followed, as in Slurm, and its line is named."""
    text = script("--nodes=2", body="echo start\n#SBATCH --nodes=8\necho end")
    found = sbatch.read(text, name="a.sh", arguments=[])
    assert found.job["nodes"] == 2
    assert found.notes == ["line 5: #SBATCH after the first command is not read, as in Slurm"]


def test_only_the_first_32_kib_are_read() -> None:
    """A directive behind 32 KiB of comments is not followed."""
    text = "#!/bin/sh\n" + "# padding\n" * 4000 + "#SBATCH --nodes=2\necho\n"
    assert "nodes" not in sbatch.read(text, name="a.sh", arguments=[]).job


def test_the_script_travels_with_its_name_and_arguments() -> None:
    """A shell gets the text, its name as $0 and the arguments; Python the text and the arguments."""
    shell = sbatch.read("#!/bin/bash -l\necho\n", name="a.sh", arguments=["--x"]).job["command"]
    assert shell == ["/bin/bash", "-l", "-c", "#!/bin/bash -l\necho\n", "a.sh", "--x"]
    python = sbatch.read("#!/usr/bin/env python3\nprint()\n", name="a.py", arguments=["--x"]).job["command"]
    assert python == ["python3", "-c", "#!/usr/bin/env python3\nprint()\n", "--x"]


def test_an_unknown_interpreter_is_refused() -> None:
    """A script for an interpreter that does not take text is refused with what to do instead."""
    with pytest.raises(InputRefused, match="expected a shell or Python"):
        sbatch.read("#!/usr/bin/awk -f\nBEGIN {}\n", name="a.awk", arguments=[])


def test_an_open_quote_is_refused() -> None:
    """A directive whose quotes do not close is refused showing the line."""
    with pytest.raises(InputRefused, match="closed quotes"):
        read('--job-name="half')


def test_variables_that_are_not_set_are_named() -> None:
    """A script that reads an unset variable runs and computes nonsense: each is named, with our equivalent if there is
    one; comments are ignored. Scripts with directives have nearly all of them, and srun."""
    body = "# SLURM_JOB_NAME\nsrun python x.py ${SLURM_ARRAY_TASK_ID} $SLURM_LOCALID $SLURM_TOPOLOGY_ADDR\n"
    notes = sbatch.read(f"#!/bin/bash\n#SBATCH --array=0-1\n{body}", name="a.sh", arguments=[]).notes
    assert notes == ["SLURM_TOPOLOGY_ADDR is NOT SET here"]
    plain = sbatch.read(f"#!/bin/bash\n{body}", name="a.sh", arguments=[])
    assert plain.notes == [
        "SLURM_ARRAY_TASK_ID is NOT SET here; FAIRLEAD_ARRAY_INDEX is",
        "SLURM_LOCALID is NOT SET here",
        "SLURM_TOPOLOGY_ADDR is NOT SET here",
        "srun is NOT HERE: with --nodes, every node runs the whole script (NODE_RANK, NNODES, MASTER_ADDR)",
    ]
    assert "launcher" not in plain.job
    assert sbatch.read("#!/bin/bash\npython x.py\n", name="a.sh", arguments=[]).notes == []


def test_tasks_become_processes_and_variables() -> None:
    """Tasks per node, and what Slurm's programs read of them; an uneven number stays what it is."""
    job = read("--nodes=2", "--ntasks=3", "-c 4", "--array=2-9%3").job
    assert (job["nodes"], job["processesPerNode"]) == (2, 2)
    assert job["env"] == {
        "SLURM_NTASKS": "3",
        "SLURM_NPROCS": "3",
        "SLURM_CPUS_PER_TASK": "4",
        "SLURM_ARRAY_TASK_MIN": "2",
        "SLURM_ARRAY_TASK_MAX": "9",
        "SLURM_ARRAY_TASK_COUNT": "8",
        "SLURM_ARRAY_TASK_STEP": "1",
    }
    assert "processesPerNode" not in read("--ntasks=16", "--gpus-per-task=1").job


def test_the_command_line_wins_and_named_variables_are_sent() -> None:
    """An option after the script's own changes the sizes that follow from it."""
    text = script("--nodes=4", "--ntasks=8", "--export=WANDB_MODE,A=1")
    job = sbatch.read(text, name="a.sh", arguments=[], more=[("nodes", "2")], environ={"WANDB_MODE": "offline"}).job
    assert (job["nodes"], job["processesPerNode"]) == (2, 4)
    assert {name: job["env"][name] for name in ("WANDB_MODE", "A")} == {"WANDB_MODE": "offline", "A": "1"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("now+1hour", "3600s"), ("now+90", "90s"), ("now+2days", "172800s"), ("now", "")],
)
def test_a_start_from_now_on_is_a_duration(text: str, expected: str) -> None:
    """The submit turns it into a time by its clock."""
    assert read(f"--begin={text}").job["startAt"] == expected


def test_a_heterogeneous_job_is_refused_by_name() -> None:
    """The sizes of its other parts are not taken for those of the first."""
    found = read("--nodes=2", "hetjob", "--nodes=7")
    assert (found.job["nodes"], list(found.unkept)) == (2, ["hetjob"])


def test_nodes_are_named_and_excluded() -> None:
    """By hostlists; a list without --nodes is as many nodes, one with fewer names than nodes is refused."""
    found = read("--nodelist=n[1-2,7]", "-x n3").job
    assert found["nodeAffinity"] == ["fairlead/node in (n1,n2,n7)", "fairlead/node notin (n3)"]
    assert found["nodes"] == 3
    assert read("-w n[1-4] -N 2").job["nodes"] == 2
    with pytest.raises(InputRefused, match="expected the names of --nodes=3 nodes or more, found 2: n1,n2"):
        read("--nodelist=n1,n2", "--nodes=3")
    with pytest.raises(InputRefused, match="--exclude: expected names of nodes"):
        read("--exclude=n[1")
