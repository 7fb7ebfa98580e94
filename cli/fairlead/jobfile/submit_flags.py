"""Options of `submit` as fields of a job file, and their precedence over the file's. Pure except the time of `moment`."""

import copy
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fairlead.errors import InputRefused
from fairlead.jobfile import reader
from fairlead.jobfile.sbatch_options import require_apart
from fairlead_schemas.jobfile.request import GPU, is_gpu
from fairlead_schemas.units import hostlists, quantities, selectors
from fairlead_schemas.units.hardware import is_profile, resource_of
from fairlead_schemas.units.timestamps import rfc3339_seconds


class SubmitOptions(NamedTuple):
    """Options from the command line, unchanged; "", None and () were not given."""

    name: str = ""
    queue: str = ""
    project: str = ""
    kind: str = ""
    image: str = ""
    priority: int | None = None
    retries: int | None = None
    array: str = ""
    env: Sequence[str] = ()
    nodes: str = ""
    tasks: int | None = None
    gpus: str = ""
    mig: str = ""
    cpus: str = ""
    memory: str = ""
    gpu_model: Sequence[str] = ()
    gpu_memory: str = ""
    require: Sequence[str] = ()
    prefer: Sequence[str] = ()
    toleration: Sequence[str] = ()
    exclusive: bool = False
    hold: bool = False
    nodelist: str = ""
    exclude: str = ""
    time: str = ""
    slice: str = ""
    deadline: str = ""
    sync: str = ""
    outputs: Sequence[str] = ()
    output_keep: str = ""
    output_max: str = ""


def jobfile_words(given: SubmitOptions) -> dict[str, Any]:
    """Words of a job file; what was not given is left out. Raises Refused for what makes no word."""
    words: dict[str, Any] = {
        key: getattr(given, key)
        for key in ("name", "queue", "priority", "kind", "image", "project", "deadline", "tasks", "sync")
        if getattr(given, key) not in ("", None)
    }
    words.update(_where(given))
    if resources := _resources(given):
        words["resources"] = resources
    if given.hold:
        words["held"] = True
    if times := {key: value for key, value in (("total", given.time), ("slice", given.slice)) if value}:
        words["time"] = times
    if output := {key: value for key, value in (("keep", given.output_keep), ("max", given.output_max)) if value}:
        words["output"] = output
    if given.nodes:
        if given.tasks is not None:
            raise InputRefused(
                "expected --nodes or --tasks, found both", hint="--require node puts all tasks on one node"
            )
        words["nodes"] = _number(given.nodes)
    if given.retries is not None:
        words["retries"] = {"max": given.retries}
    if given.array:
        words["array"] = _number(given.array)
    if given.outputs:
        words["outputs"] = _outputs(given.outputs)
    if given.env:
        words["env"] = _environment(given.env)
    return words


def _where(given: SubmitOptions) -> dict[str, Any]:
    """Return the requirements on GPUs, nodes and topology."""
    gpu: dict[str, Any] = {}
    if given.gpu_model:
        gpu["model"] = given.gpu_model[0] if len(given.gpu_model) == 1 else list(given.gpu_model)
    if given.gpu_memory:
        gpu["memory"] = given.gpu_memory
    topology = {key: list(value) for key, value in (("require", given.require), ("prefer", given.prefer)) if value}
    affinity = [
        text for option, without in (("nodelist", False), ("exclude", True)) for text in _named(given, option, without)
    ]
    require_apart(affinity)
    found = {
        "nodeAffinity": affinity,
        "gpu": gpu,
        "topology": topology,
        "tolerations": list(given.toleration),
        "exclusive": given.exclusive,
    }
    return {key: value for key, value in found.items() if value}


def _named(given: SubmitOptions, option: str, without: bool) -> list[str]:
    names: str = getattr(given, option)
    try:
        return selectors.named(hostlists.node_names(names), without=without) if names else []
    except ValueError as error:
        raise InputRefused(f'--{option}: {error}, found "{names}"') from error


def _resources(given: SubmitOptions) -> dict[str, Any]:
    """Return the resources per node, or per task."""
    resources: dict[str, Any] = {"cpu": given.cpus, "memory": given.memory}
    if given.gpus:
        resources[GPU] = _number(given.gpus)
    if given.mig:
        if given.gpus:
            raise InputRefused("expected --gpus or --mig, found both")
        profile, _, count = given.mig.partition(":")
        if not is_profile(profile) or not (count or "1").isdecimal():
            raise InputRefused(
                f'--mig: expected a profile and a count such as "3g.20gb" or "3g.20gb:2", found "{given.mig}"'
            )
        resources[resource_of(profile)] = int(count or "1")
    return {key: value for key, value in resources.items() if value != ""}


def _number(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdecimal() else text


def _environment(pairs: Sequence[str]) -> dict[str, str]:
    split = [item.partition("=") for item in pairs]
    if bad := [name for name, equals, _ in split if not equals or not name]:
        raise InputRefused(f'--env: expected NAME=VALUE, found "{bad[0]}"')
    return {name: value for name, _, value in split}


def _outputs(pairs: Sequence[str]) -> dict[str, list[str]]:
    """Return paths by name; a name that is given several times has all of its paths."""
    found: dict[str, list[str]] = {}
    for pair in pairs:
        name, equals, path = pair.partition("=")
        if not equals or not name or not path:
            raise InputRefused(f'--outputs: expected NAME=PATH such as "model=checkpoints/*.pt", found "{pair}"')
        found.setdefault(name, []).append(path)
    return found


def override(job: dict[str, Any], words: dict[str, Any]) -> dict[str, Any]:
    """Return the job with `words` in precedence over its own fields. GPUs and units of another kind are replaced too: `--mig`
    replaces the file's GPUs, `--tasks` its nodes.
    """
    kept = copy.copy(job)
    if any(is_gpu(key) for key in words.get("resources", {})):
        kept.pop("gpusPerTask", None)
        if isinstance(resources := kept.get("resources"), dict):
            kept["resources"] = {key: value for key, value in resources.items() if not is_gpu(str(key))}
    if "tasks" in words:
        kept.pop("nodes", None)
    if "nodes" in words and "tasks" in kept:
        if (per_task := kept.pop("gpusPerTask", None)) is not None:
            kept["resources"] = {**kept.get("resources", {}), GPU: per_task}
        del kept["tasks"]
    if "nodeAffinity" in words and isinstance(own := kept.get("nodeAffinity"), list):
        words = {**words, "nodeAffinity": [*own, *words["nodeAffinity"]]}
    return reader.merge(kept, words)


def moment(text: str) -> str:
    """Return a time as a job file has it: unchanged, or for a duration ("8h") that long from now."""
    try:
        ahead_ns = quantities.parse_duration(text)
    except quantities.QuantityError:
        return text  # checked with the rest of the job file
    return rfc3339_seconds(time.time_ns() + ahead_ns)


def depends_on(word: str, pick_jobs: Callable[[str], list[str]]) -> dict[str, str] | str:
    """`12` or `last:ended` as a job file has it. Raises Refused for what names no single job."""
    name, colon, state = word.partition(":")
    jobs = pick_jobs(name)
    if len(jobs) != 1:
        raise InputRefused(f'--after: expected one job such as "12", "12_3" or "last", found "{name}"')
    return {"job": jobs[0], "state": state} if colon else jobs[0]
