"""Conversion of a plain Kubernetes `batch/v1` Job to a Fairlead job file, naming every field that is not followed.

Pure. Understood fields are removed from a copy. The remainder at the end was not understood, so no field can be dropped
silently. Fields without effect on the command and its placement are notes. All others are `unkept`, and the caller
refuses the file unless the user ignores them by name.
"""

import copy
from typing import Any, NamedTuple

from fairlead.errors import InputRefused
from fairlead_schemas.jobfile.request import NIC, is_gpu

#: What Kubernetes gives a pod to end in, where it says nothing.
K8S_GRACE_S = 30
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
#: Fields that change nothing here and would only make noise.
_HARMLESS = frozenset({"apiVersion", "kind", "spec.template.spec.restartPolicy", "metadata.namespace"})
#: Fields about the cluster's own housekeeping, or about its answers: what runs is the same without them.
_NOTED = (
    "metadata.annotations",
    "metadata.generateName",
    "spec.template.metadata",
    "spec.ttlSecondsAfterFinished",
    "spec.manualSelector",
    "spec.podReplacementPolicy",
    "spec.template.spec.schedulerName",
    "spec.template.spec.enableServiceLinks",
    "spec.template.spec.automountServiceAccountToken",
    "spec.template.spec.dnsPolicy",
    "containers[0].imagePullPolicy",
    "containers[0].terminationMessagePath",
    "containers[0].terminationMessagePolicy",
    "containers[0].resources.requests",
    "status",
)


class TranslatedKubernetesJob(NamedTuple):
    """A job file, remarks about how it was read, and the fields that cannot be kept: {path: why}."""

    job: dict[str, Any]
    notes: list[str]
    unkept: dict[str, str]


def is_job(document: dict[str, Any]) -> bool:
    """True for anything that calls itself a Kubernetes object."""
    return "apiVersion" in document and "kind" in document


def read(document: dict[str, Any]) -> TranslatedKubernetesJob:
    """Translate. Raises Refused for another kind, or for a pod that is not one container."""
    kind = f"{document['apiVersion']} {document['kind']}"
    if kind != "batch/v1 Job":
        raise InputRefused(f"expected a Kubernetes batch/v1 Job, found {kind}")
    rest = copy.deepcopy(document)
    pod = "spec.template.spec."
    containers = _take(rest, pod + "containers")
    if not isinstance(containers, list) or len(containers) != 1:
        raise InputRefused("spec.template.spec.containers: expected exactly one container")
    container = containers[0]
    job = {
        "name": _take(rest, "metadata.name"),
        "queue": _take(rest, f"metadata.labels|{QUEUE_LABEL}"),
        "labels": _take(rest, "metadata.labels"),
        "image": _take(container, "image"),
        "command": [*(_take(container, "command") or []), *(_take(container, "args") or [])],
        "env": _environment(container),
        "workdir": _take(container, "workingDir"),
        "resources": _resources(container),
        "nodeSelector": _take(rest, pod + "nodeSelector"),
        "tolerations": _tolerations(rest, pod),
        "checkpoint": _checkpoint(container, rest),
        "time": _times(rest, pod),
        "retries": _retries(rest),
        "array": _array(rest),
    }
    left = [path for path in _leaves(rest) if path not in _HARMLESS]
    left += [f"containers[0].{path}" for path in _leaves(container) if path != "name"]
    noted = [path for path in left if path.startswith(_NOTED)]
    unkept = {path: "this field is not followed here" for path in left if path not in noted}
    if not job["command"]:
        raise InputRefused("containers[0].command: expected a command; an image's own entry point is not known here")
    return TranslatedKubernetesJob(
        {key: value for key, value in job.items() if value not in (None, {}, [], "")},
        [f"{path} is not followed" for path in noted],
        unkept,
    )


def _take(document: Any, path: str) -> Any:
    """Remove and return the value at a dotted path (None: not there). `a|b.c`: the last key is `b.c`."""
    head, bar, last = path.partition("|")
    *parents, final = head.split(".") if not bar else [*head.split("."), last]
    for key in parents:
        document = document.get(key) if isinstance(document, dict) else None
    return document.pop(final, None) if isinstance(document, dict) else None


def _leaves(value: Any, path: str = "") -> list[str]:
    if isinstance(value, dict):
        return [leaf for key, child in value.items() for leaf in _leaves(child, f"{path}.{key}" if path else str(key))]
    return [path]


def _environment(container: dict[str, Any]) -> dict[str, str]:
    """Plain values are taken; `valueFrom` entries stay behind and are named as not followed."""
    env: dict[str, str] = {}
    left: dict[str, Any] = {}
    for entry in _take(container, "env") or []:
        if isinstance(entry, dict) and "value" in entry:
            env[str(entry.get("name"))] = str(entry["value"])
        else:
            left[str(entry.get("name") if isinstance(entry, dict) else entry)] = "valueFrom"
    if left:
        container["env"] = left
    return env


def _resources(container: dict[str, Any]) -> dict[str, Any]:
    """Limits win over requests, as they are what a container may really use."""
    wanted: dict[str, Any] = {}
    for part in ("requests", "limits"):
        there = container.get("resources")
        named = (there.get(part) if isinstance(there, dict) else None) or {}
        for key in [key for key in named if key in ("cpu", "memory", NIC) or is_gpu(str(key))]:
            value = _take(container, f"resources.{part}|{key}")
            if value is not None:
                wanted[key] = value
    return wanted


def _tolerations(rest: dict[str, Any], pod: str) -> list[Any]:
    """Return the tolerations without a time limit; the others stay in `rest` and are named as not followed."""
    given = _take(rest, pod + "tolerations") or []
    followed = [one for one in given if isinstance(one, dict) and "tolerationSeconds" not in one]
    if len(followed) < len(given):
        rest["spec"]["template"]["spec"]["tolerations"] = [one for one in given if one not in followed]
    return followed


def _checkpoint(container: dict[str, Any], rest: dict[str, Any]) -> dict[str, Any] | None:
    """A preStop command is the notice: in Kubernetes its time is part of the grace period, here it goes before it."""
    command = _take(container, "lifecycle.preStop.exec.command")
    if not command:
        return None
    grace = rest["spec"]["template"]["spec"].get("terminationGracePeriodSeconds", K8S_GRACE_S)
    return {"command": command, "notice": f"{grace}s"}


def _times(rest: dict[str, Any], pod: str) -> dict[str, str]:
    total = _take(rest, "spec.activeDeadlineSeconds")
    grace = _take(rest, pod + "terminationGracePeriodSeconds")
    return {key: f"{value}s" for key, value in (("total", total), ("grace", grace)) if value is not None}


def _retries(rest: dict[str, Any]) -> dict[str, int]:
    limit = _take(rest, "spec.backoffLimit")
    return {} if limit is None else {"max": limit}


def _array(rest: dict[str, Any]) -> int | None:
    """An Indexed Job is an array; any other number of completions than 1 stays behind, not followed."""
    spec = rest.get("spec", {})
    if spec.get("completionMode") == "Indexed":
        _take(rest, "spec.completionMode")
        return _take(rest, "spec.completions")
    for field in ("completions", "parallelism"):
        if spec.get(field) == 1:
            del spec[field]
    return None
