"""One Kubernetes pod as words of a job file: its container, environment, volumes and requirements on nodes.

Pure. Understood fields are removed from the pod, and the remainder is named. Start at `read_pod`. The kinds of `kubernetes_job.py`
complete the job.
"""

import re
import shlex
from collections.abc import Mapping
from typing import Any

from fairlead.errors import InputRefused
from fairlead.jobfile.job_draft import JobDraft, put_priority, put_topology, take, token
from fairlead_schemas.jobfile.request import NIC, is_gpu
from fairlead_schemas.policies.launchers import launcher_of

#: What Kubernetes gives a pod to end in, where it says nothing.
K8S_GRACE_S = 30
#: {field reference: the job's own variable with the same meaning here}
FIELDS = {
    "metadata.name": "$FAIRLEAD_JOB",
    "metadata.uid": "$FAIRLEAD_JOB-$FAIRLEAD_ATTEMPT",
    "spec.nodeName": "$FAIRLEAD_NODE",
    "metadata.annotations['batch.kubernetes.io/job-completion-index']": "$JOB_COMPLETION_INDEX",
    "metadata.labels['batch.kubernetes.io/job-completion-index']": "$JOB_COMPLETION_INDEX",
}
#: Paths below a container with no effect on what its program does or where: {beginning of a path}
_NOTED = (
    "imagePullPolicy",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "resources.requests",
    "ports",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "resources.limits.ephemeral-storage",
    "securityContext.allowPrivilegeEscalation",
    "securityContext.runAsNonRoot",
    "securityContext.readOnlyRootFilesystem",
    "securityContext.capabilities.drop",
    "tty",
    "stdin",
)
_VARIABLE = re.compile(r"\$(\$?)\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")
_LABELS_OF_THE_SYSTEM = ("kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch")
_ACCELERATOR = "cloud.google.com/gke-accelerator"


def read_pod(pod: dict[str, Any], at: str, draft: JobDraft, command: list[str] | None = None) -> None:
    """Read a pod's specification, of which the followed fields are removed. `at`: its path; `command`: in place of its own.

    Raises InputRefused for a pod that is not one container.
    """
    containers = take(pod, "containers")
    if not isinstance(containers, list) or len(containers) != 1 or not isinstance(containers[0], dict):
        found = f"{len(containers)}" if isinstance(containers, list) else "none"
        raise InputRefused(f"{at}.containers: expected exactly one container, found {found}")
    container: dict[str, Any] = containers[0]
    where = f"{at}.containers[0]"
    draft.put("image", take(container, "image"), f"{where}.image")
    draft.put("workdir", take(container, "workingDir"), f"{where}.workingDir")
    draft.put("resources", _resources(container), f"{where}.resources.limits")
    draft.put("env", _environment(container, draft), f"{where}.env")
    _volumes(pod, container, draft)
    _where(pod, at, draft)
    draft.put("checkpoint", _checkpoint(container, pod), f"{where}.lifecycle.preStop")
    if (grace := take(pod, "terminationGracePeriodSeconds")) is not None:
        draft.put("time", {**draft.job.get("time", {}), "grace": f"{grace}s"}, f"{at}.terminationGracePeriodSeconds")
    own = [*(take(container, "command") or []), *(take(container, "args") or [])]
    draft.put("command", _late_command([str(word) for word in command or own], draft), f"{where}.command")
    take(container, "name")
    draft.leave(container, "containers[0].", _NOTED)
    if "command" not in draft.job:
        raise InputRefused("containers[0].command: expected a command; an image's own entry point is not known here")


# ---------------------------------------------------------------------------- environment


def _environment(container: dict[str, Any], draft: JobDraft) -> dict[str, str]:
    env: dict[str, str] = {}
    left: dict[str, Any] = {}
    for source in take(container, "envFrom") or []:
        found = draft.around.config.get(str((source.get("configMapRef") or {}).get("name")))
        if found is None:
            left["envFrom"] = source
        else:
            env |= {f"{source.get('prefix', '')}{key}": str(value) for key, value in found.items()}
    for entry in take(container, "env") or []:
        name = str(entry.get("name") if isinstance(entry, dict) else entry)
        if isinstance(entry, dict) and "valueFrom" not in entry:
            value = str(entry.get("value", ""))
            if draft.first_pod and value.startswith(draft.first_pod):
                draft.note(f"{name}: {value} is the gang's $MASTER_ADDR here")
                draft.late[name] = '"$MASTER_ADDR"'
            else:
                env[name] = _expanded(value, env)
        elif not isinstance(entry, dict) or not _value_from(name, entry["valueFrom"], env, draft):
            left[name] = "valueFrom"
    for name in left:
        at = name if name == "envFrom" else f"env.{name}"
        draft.unkept[f"containers[0].{at}"] = "its value is not known here: write it, or make it a secret of the job"
    return env


def _value_from(name: str, source: Any, env: dict[str, str], draft: JobDraft) -> bool:
    """Set a variable whose value is elsewhere: in the file, or (in `draft.late`) on the node. Returns False if it is nowhere."""
    if secret := source.get("secretKeyRef"):
        ours = secret_of(secret.get("name"), secret.get("key"), draft)
        draft.put("secrets", [*draft.job.get("secrets", []), ours], "spec.template.spec.containers[0].env")
        draft.late[name] = f'"$(cat /run/secrets/{ours})"'
        return True
    if (ours := FIELDS.get(str((source.get("fieldRef") or {}).get("fieldPath")))) is not None:
        draft.late[name] = f'"{ours}"'
        return True
    config = source.get("configMapKeyRef") or {}
    resource = str((source.get("resourceFieldRef") or {}).get("resource"))
    value = draft.around.config.get(str(config.get("name")), {}).get(str(config.get("key")))
    if (amount := draft.job.get("resources", {}).get(resource.partition(".")[2])) is not None and str(
        amount
    ).isdecimal():
        value = amount
    if value is not None:
        env[name] = str(value)
    return value is not None


def secret_of(name: Any, key: Any, draft: JobDraft) -> str:
    """Return our name of a key of a Kubernetes Secret, with a remark: here a secret is one file."""
    ours = token(f"{name}-{key}")
    draft.note(f"key {key} of the Secret {name} is the secret {ours} here: a file of the job's project on its node")
    return ours


def _expanded(text: str, env: Mapping[str, str]) -> str:
    """Return a text with `$(NAME)` replaced as Kubernetes does: unknown names stay, and `$$(NAME)` is `$(NAME)`."""
    return _VARIABLE.sub(lambda m: f"$({m[2]})" if m[1] else env.get(m[2], m[0]), text)


def _late_command(words: list[str], draft: JobDraft) -> list[str]:
    """Return the command; with variables that are known on the node only, a shell sets them and becomes the command."""
    env: dict[str, str] = draft.job.get("env", {})
    if not draft.late or not words:
        return [_expanded(word, env) for word in words]
    launcher = launcher_of("", words)
    if launcher != "none":
        draft.job.setdefault("launcher", launcher)
    draft.note(f"/bin/sh sets {', '.join(draft.late)} before the command starts; the image needs it")
    lines = [f"export {name}={value}" for name, value in draft.late.items()]
    run = " ".join(_quoted(word, env, draft.late) for word in words)
    return ["/bin/sh", "-c", "\n".join([*lines, f"exec {run}"])]


def _quoted(word: str, env: Mapping[str, str], late: Mapping[str, str]) -> str:
    """Return a shell's word for a word of the command, with late variables left to the shell."""
    parts: list[str] = []
    end = 0
    for match in _VARIABLE.finditer(word):
        if not match[1] and match[2] in late:
            parts += [_expanded(word[end : match.start()], env), f'"${{{match[2]}}}"']
            end = match.end()
    parts.append(_expanded(word[end:], env))
    quoted = [part if at % 2 else shlex.quote(part) for at, part in enumerate(parts) if part]
    return "".join(quoted) or "''"


# ---------------------------------------------------------------------------- amounts and volumes


def _resources(container: dict[str, Any]) -> dict[str, Any]:
    """Limits win over requests, as they are what a container may really use."""
    wanted: dict[str, Any] = {}
    for part in ("requests", "limits"):
        there = container.get("resources")
        named = (there.get(part) if isinstance(there, dict) else None) or {}
        for key in list(named):
            ours = NIC if str(key).startswith("rdma/") else key
            if ours in ("cpu", "memory", NIC) or is_gpu(str(key)):
                value = take(container, f"resources.{part}|{key}")
                if value is not None:
                    wanted[ours] = value
    return wanted


def _volumes(pod: dict[str, Any], container: dict[str, Any], draft: JobDraft) -> None:
    """Read what is mounted into the container. Volumes that are mounted nowhere change nothing."""
    there = {str(volume.get("name")): volume for volume in take(pod, "volumes") or [] if isinstance(volume, dict)}
    volumes: list[Any] = []
    for mount in take(container, "volumeMounts") or []:
        volume, path = there.get(str(mount.get("name")), {}), str(mount.get("mountPath"))
        if mount.get("subPath") or mount.get("subPathExpr"):
            draft.unkept[f"volumes.{mount.get('name')}"] = (
                "a part of a volume (subPath) cannot be mounted: name a volume for it"
            )
        elif name := _volume_name(volume, str(mount.get("name")), path, draft):
            read_only = mount.get("readOnly") or (volume.get("persistentVolumeClaim") or {}).get("readOnly")
            volumes.append({"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})})
    draft.put("volumes", volumes, "spec.template.spec.volumes")


def _volume_name(volume: dict[str, Any], name: str, path: str, draft: JobDraft) -> str:
    """Return the name of our volume for one of a pod; "" for what is no volume here, which is noted."""
    if claim := volume.get("persistentVolumeClaim"):
        return token(str(claim.get("claimName")))
    if "hostPath" in volume or "nfs" in volume:
        source = (volume.get("hostPath") or volume.get("nfs") or {}).get("path")
        if source == "/dev/shm":  # noqa: S108 -- a path in the file that is read
            draft.note(f"volume {name} is not followed: a job has a /dev/shm of its own, of resources.shm")
            return ""
        draft.note(f"volume {name} ({source}): the directory that the nodes list as the volume {token(name)}")
        return token(name)
    if "emptyDir" in volume:
        _scratch(volume["emptyDir"] or {}, name, path, draft)
    elif items := (volume.get("secret") or {}).get("items"):
        secret = volume["secret"].get("secretName")
        mounted = [
            {"name": secret_of(secret, item.get("key"), draft), "mountPath": f"{path.rstrip('/')}/{item.get('path')}"}
            for item in items
        ]
        draft.put("secrets", [*draft.job.get("secrets", []), *mounted], "spec.template.spec.volumes")
    elif "secret" in volume:
        draft.unkept[f"volumes.{name}"] = (
            "the keys of a Secret are not known here: name them (secret.items), each is a file"
        )
    else:
        kind = next((key for key in volume if key != "name"), "missing")
        draft.unkept[f"volumes.{name}"] = (
            f"{kind} is not followed here: put the files into the image, or into a volume of the nodes"
        )
    return ""


def _scratch(words: Mapping[str, Any], name: str, path: str, draft: JobDraft) -> None:
    """Note an empty directory: /dev/shm is the job's shm, and below /tmp every container can write."""
    if path == "/dev/shm":  # noqa: S108 -- a mount point in a container
        if size := words.get("sizeLimit"):
            draft.put(
                "resources",
                {**draft.job.get("resources", {}), "shm": size},
                "spec.template.spec.containers[0].resources.limits",
            )
    elif path == "/tmp" or path.startswith("/tmp/"):  # noqa: S108 -- as above
        draft.note(f"volume {name} is not followed: every job has a /tmp of its own")
    else:
        draft.unkept[f"volumes.{name}"] = "an empty directory is at /tmp or /dev/shm here: mount it there"


# ---------------------------------------------------------------------------- nodes


def _where(pod: dict[str, Any], at: str, draft: JobDraft) -> None:
    selector = take(pod, "nodeSelector") or {}
    for label in _LABELS_OF_THE_SYSTEM:
        if label in selector:
            draft.note(
                f"nodeSelector {label}: {selector.pop(label)} is not followed: the nodes of a cluster are alike in it"
            )
    if model := selector.pop(_ACCELERATOR, None):
        draft.put("gpu", {"model": str(model).rpartition("-")[2].upper()}, f"{at}.nodeSelector")
    draft.put("nodeSelector", selector, f"{at}.nodeSelector")
    draft.put("tolerations", _tolerations(pod), f"{at}.tolerations")
    _affinity(take(pod, "affinity") or {}, at, draft)
    if (name := take(pod, "priorityClassName")) is not None:
        put_priority(str(name), f"{at}.priorityClassName", draft)


def _tolerations(pod: dict[str, Any]) -> list[Any]:
    """Return the tolerations without a time limit; the others stay in the pod and are named as not followed."""
    given = take(pod, "tolerations") or []
    followed = [one for one in given if isinstance(one, dict) and "tolerationSeconds" not in one]
    if len(followed) < len(given):
        pod["tolerations"] = [one for one in given if one not in followed]
    return followed


def _affinity(words: dict[str, Any], at: str, draft: JobDraft) -> None:
    terms = take(words, "nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms") or []
    if len(terms) > 1:
        draft.unkept["affinity.nodeAffinity"] = (
            "several nodeSelectorTerms (one OR the other) are not followed: write one"
        )
    elif terms:
        texts = [text for one in terms[0].get("matchExpressions") or [] if (text := _requirement(one))]
        draft.put("nodeAffinity", texts, f"{at}.affinity.nodeAffinity")
        if len(texts) < len(terms[0].get("matchExpressions") or []) or "matchFields" in terms[0]:
            draft.unkept["affinity.nodeAffinity"] = "an expression without a meaning for labels is not followed"
    for term in take(words, "podAffinity.requiredDuringSchedulingIgnoredDuringExecution") or []:
        put_topology("require", str(term.get("topologyKey")), "affinity.podAffinity", draft)
    for term in take(words, "podAffinity.preferredDuringSchedulingIgnoredDuringExecution") or []:
        put_topology(
            "prefer", str((term.get("podAffinityTerm") or {}).get("topologyKey")), "affinity.podAffinity", draft
        )
    for kind, rules in words.items():
        for rule in (rule for rule, left in (rules or {}).items() if left):
            if rule.startswith("preferred"):
                draft.note(f"affinity.{kind}.{rule} is not followed: it is a preference only")
            elif kind == "podAntiAffinity":
                draft.unkept["affinity.podAntiAffinity"] = (
                    'not followed: nodes of a gang are apart; "exclusive: true" keeps other jobs away'
                )
            else:
                draft.unkept.setdefault(f"affinity.{kind}", "this field is not followed here")


def _requirement(words: Any) -> str:
    """Return a requirement on a label as text; "" for an operator that does not exist."""
    key, operator = words.get("key"), words.get("operator")
    values = [str(value) for value in words.get("values") or []]
    texts = {
        "In": f"{key} in ({','.join(values)})",
        "NotIn": f"{key} notin ({','.join(values)})",
        "Exists": f"{key}",
        "DoesNotExist": f"!{key}",
        "Gt": f"{key}>{''.join(values[:1])}",
        "Lt": f"{key}<{''.join(values[:1])}",
    }
    return texts.get(str(operator), "")


def _checkpoint(container: dict[str, Any], pod: dict[str, Any]) -> dict[str, Any] | None:
    """A preStop command is the notice: in Kubernetes its time is part of the grace period, here it goes before it."""
    command = take(container, "lifecycle.preStop.exec.command")
    if not command:
        return None
    return {"command": command, "notice": f"{pod.get('terminationGracePeriodSeconds', K8S_GRACE_S)}s"}
