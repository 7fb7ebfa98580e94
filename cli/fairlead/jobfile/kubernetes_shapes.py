"""Shapes of the fields that are read of Kubernetes objects: where a mapping, a list, a number or a plain value is expected.

Pure. A field that is not here is not read, and is named later as one that is not followed. A field without a value ("env:") counts
as absent everywhere. Start at `mistakes`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from fairlead_schemas.units.validation import FieldError, joined

#: Plain value: text, a number, or true and false.
VALUE = "a plain value"
#: Whole number, also in quotes.
NUMBER = "a whole number"
#: Shape: VALUE, NUMBER, a mapping of fields, or a list with the shape of its elements. Of a mapping of names that are the user's, "*".
type Shape = str | Mapping[str, Shape] | list[Shape]

_NAMES: Shape = {"*": VALUE}
_KEYS: Shape = [{"key": VALUE, "operator": VALUE, "values": [VALUE]}]
_PODS_NEAR: Shape = {
    "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": VALUE}],
    "preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": {"topologyKey": VALUE}}],
}
_CONTAINER: Shape = {
    "name": VALUE,
    "image": VALUE,
    "workingDir": VALUE,
    "command": [VALUE],
    "args": [VALUE],
    "env": [
        {
            "name": VALUE,
            "value": VALUE,
            "valueFrom": {
                "secretKeyRef": {"name": VALUE, "key": VALUE},
                "fieldRef": {"fieldPath": VALUE},
                "configMapKeyRef": {"name": VALUE, "key": VALUE},
                "resourceFieldRef": {"resource": VALUE},
            },
        }
    ],
    "envFrom": [{"prefix": VALUE, "configMapRef": {"name": VALUE}, "secretRef": {"name": VALUE}}],
    "resources": {"limits": _NAMES, "requests": _NAMES},
    "volumeMounts": [{"name": VALUE, "mountPath": VALUE, "subPath": VALUE, "subPathExpr": VALUE, "readOnly": VALUE}],
    "lifecycle": {"preStop": {"exec": {"command": [VALUE]}}},
}
_POD: Shape = {
    "containers": [_CONTAINER],
    "volumes": [
        {
            "name": VALUE,
            "persistentVolumeClaim": {"claimName": VALUE, "readOnly": VALUE},
            "hostPath": {"path": VALUE},
            "nfs": {"path": VALUE},
            "emptyDir": {"medium": VALUE, "sizeLimit": VALUE},
            "secret": {"secretName": VALUE, "items": [{"key": VALUE, "path": VALUE}]},
        }
    ],
    "nodeSelector": _NAMES,
    "tolerations": [{"key": VALUE, "operator": VALUE, "value": VALUE, "effect": VALUE, "tolerationSeconds": VALUE}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": _KEYS, "matchFields": _KEYS}]
            },
            "preferredDuringSchedulingIgnoredDuringExecution": [{}],
        },
        "podAffinity": _PODS_NEAR,
        "podAntiAffinity": _PODS_NEAR,
    },
    "priorityClassName": VALUE,
    "restartPolicy": VALUE,
    "subdomain": VALUE,
    "terminationGracePeriodSeconds": NUMBER,
}
_METADATA: Shape = {"name": VALUE, "labels": _NAMES, "annotations": _NAMES}
_TEMPLATE: Shape = {"metadata": _METADATA, "spec": _POD}
_ROLE: Shape = {"replicas": NUMBER, "template": _TEMPLATE}
_LIMITS: dict[str, Shape] = {"activeDeadlineSeconds": NUMBER, "backoffLimit": NUMBER, "suspend": VALUE}
_RUN_POLICY: Shape = {**_LIMITS, "schedulingPolicy": {"queue": VALUE, "priorityClass": VALUE}}
_RAY_GROUP: Shape = {
    "groupName": VALUE,
    "replicas": NUMBER,
    "minReplicas": NUMBER,
    "maxReplicas": NUMBER,
    "template": _TEMPLATE,
}
_SPECS: dict[str, Shape] = {
    "Job": {
        **_LIMITS,
        "backoffLimitPerIndex": NUMBER,
        "completionMode": VALUE,
        "completions": NUMBER,
        "parallelism": NUMBER,
        "template": _TEMPLATE,
    },
    "Pod": _POD,
    "PyTorchJob": {
        "runPolicy": _RUN_POLICY,
        "pytorchReplicaSpecs": {"Master": _ROLE, "Worker": _ROLE},
        "elasticPolicy": {"minReplicas": NUMBER, "maxReplicas": NUMBER, "nProcPerNode": VALUE},
        "nprocPerNode": VALUE,
    },
    "MPIJob": {
        "runPolicy": _RUN_POLICY,
        "mpiReplicaSpecs": {"Launcher": _ROLE, "Worker": _ROLE},
        "slotsPerWorker": NUMBER,
    },
    "RayJob": {
        **_LIMITS,
        "entrypoint": VALUE,
        "rayClusterSpec": {"headGroupSpec": _RAY_GROUP, "workerGroupSpecs": [_RAY_GROUP]},
    },
}
#: {kind: shape of its document}
SHAPES: dict[str, Shape] = {kind: {"metadata": _METADATA, "spec": spec} for kind, spec in _SPECS.items()}
SHAPES |= {"ConfigMap": {"metadata": _METADATA, "data": _NAMES}}
SHAPES |= {kind: {"metadata": _METADATA, "value": NUMBER} for kind in ("PriorityClass", "WorkloadPriorityClass")}


def mistakes(document: Mapping[str, Any]) -> list[FieldError]:
    """Return a mistake for each field of a Kubernetes object, or of those in a List, whose value has another shape than what is read
    there.
    """
    items = document.get("items")
    if document.get("kind") == "List" and isinstance(items, list):
        return [
            mistake
            for number, each in enumerate(items)
            for mistake in _mistakes(
                each, SHAPES.get(str(each.get("kind")), {}) if isinstance(each, dict) else {}, f"items[{number}]"
            )
        ]
    return list(_mistakes(document, SHAPES.get(str(document.get("kind")), {}), ""))


def _mistakes(value: Any, shape: Shape, path: str) -> Iterator[FieldError]:
    if value is None and not path.endswith("]"):
        return
    expected = shape if isinstance(shape, str) else "a list" if isinstance(shape, list) else "a mapping"
    if _kind_of(value, shape) != expected:
        found = _kind_of(value, VALUE)
        shown = f': "{str(value)[:40]}"' if found == VALUE and value is not None else ""
        yield FieldError(
            field=path, message=f"expected {expected}, found {'nothing' if value is None else found}{shown}"
        )
    elif isinstance(shape, list) and isinstance(value, list):
        for number, each in enumerate(value):
            yield from _mistakes(each, shape[0], f"{path}[{number}]")
    elif isinstance(shape, Mapping) and isinstance(value, dict):
        for key, each in value.items():
            inside = shape.get(str(key), shape.get("*"))
            if inside is not None:
                yield from _mistakes(each, inside, joined(path, str(key)))


def _kind_of(value: Any, shape: Shape) -> str:
    """Return what a value is; a whole number only where one is asked for."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    whole = isinstance(value, int) and not isinstance(value, bool)
    if shape == NUMBER and (whole or (isinstance(value, str) and value.isdecimal())):
        return NUMBER
    return VALUE if value is not None else "nothing"
