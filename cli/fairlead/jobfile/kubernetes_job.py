"""Kubernetes objects as Fairlead job files, naming every field that is not followed: Job, Pod, PyTorchJob, MPIJob, RayJob.

Pure. Fields without effect on the command and its placement are notes. All others are `unkept`, and the caller refuses the file
unless the user ignores them by name. ConfigMaps and priority classes of the same file are used; Services, Namespaces and claims
have no meaning here. Pods are read by `kubernetes_pod.py`. Start at `read_all`.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fairlead.errors import InputRefused
from fairlead.jobfile.job_draft import Around, JobDraft, names, put_priority, put_topology, take
from fairlead.jobfile.kubernetes_pod import read_pod

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
TIME_LABEL = "kueue.x-k8s.io/max-exec-time-seconds"
TOPOLOGY = "kueue.x-k8s.io/podset-"
_TEMPLATE = "spec.template"
#: Kinds that stand next to jobs and change nothing about them.
_NEXT_TO_JOBS = frozenset(
    {
        "Namespace",
        "Service",
        "ServiceAccount",
        "PersistentVolumeClaim",
        "PersistentVolume",
        "LocalQueue",
        "Secret",
        "ConfigMap",
        "PriorityClass",
        "WorkloadPriorityClass",
    }
)
#: Fields about the cluster's own housekeeping, or about its answers: what runs is the same without them.
_NOTED = (
    "apiVersion",
    "metadata.annotations",
    "metadata.generateName",
    "metadata.creationTimestamp",
    "spec.ttlSecondsAfterFinished",
    "spec.manualSelector",
    "spec.podReplacementPolicy",
    "spec.runPolicy",
    "spec.shutdownAfterJobFinishes",
    "spec.submissionMode",
    "spec.mpiImplementation",
    "spec.sshAuthMountPath",
    "spec.launcherCreationPolicy",
    "spec.rayClusterSpec.rayVersion",
    "spec.rayClusterSpec.enableInTreeAutoscaling",
    "status",
)
#: The same of a pod.
_POD_NOTED = (
    "metadata",
    "spec.schedulerName",
    "spec.enableServiceLinks",
    "spec.automountServiceAccountToken",
    "spec.dnsPolicy",
    "spec.serviceAccountName",
    "spec.serviceAccount",
    "spec.imagePullSecrets",
    "spec.hostIPC",
    "spec.subdomain",
    "spec.setHostnameAsFQDN",
    "spec.securityContext.runAsNonRoot",
    "spec.securityContext.seccompProfile",
)
_HARMLESS = frozenset({"apiVersion", "kind", "metadata.namespace"})


class TranslatedKubernetesJob(NamedTuple):
    """A job file, remarks about how it was read, the fields that cannot be kept ({path: why}), its document's number, and
    {field of the job: path in the document}."""

    job: dict[str, Any]
    notes: list[str]
    unkept: dict[str, str]
    number: int = 0
    renamed: dict[str, str] = {}


def is_job(document: Any) -> bool:
    """True for anything that calls itself a Kubernetes object."""
    return isinstance(document, dict) and "apiVersion" in document and "kind" in document


def read_all(
    documents: Sequence[dict[str, Any]], numbers: Sequence[int]
) -> tuple[list[TranslatedKubernetesJob], list[str]]:
    """Translate the Kubernetes objects of a file; `numbers`: of each document in it. Returns the jobs, and remarks on the rest.

    Raises InputRefused naming every document of a kind that is no job.
    """
    given = [(number, each) for number, document in zip(numbers, documents, strict=True) for each in _listed(document)]
    every = [document for _, document in given]
    around = Around(
        {name: _map(each.get("data")) for name, each in names(every, "ConfigMap").items()},
        {
            name: each.get("value", 0)
            for kind in ("PriorityClass", "WorkloadPriorityClass")
            for name, each in names(every, kind).items()
            if isinstance(each.get("value", 0), int)
        },
    )
    jobs: list[TranslatedKubernetesJob] = []
    notes: list[str] = []
    wrong: list[str] = []
    for number, document in given:
        kind = str(document["kind"])
        if kind in _KINDS and str(document["apiVersion"]).startswith(_KINDS[kind][0]):
            jobs.append(_read(document, around, number))
        elif kind in _NEXT_TO_JOBS:
            if kind not in ("ConfigMap", "PriorityClass", "WorkloadPriorityClass"):
                notes.append(f"document {number + 1} ({kind}) is not followed: it is no job")
        else:
            wrong.append(f"document {number + 1}: expected {_EXPECTED}, found {document['apiVersion']} {kind}")
    if wrong:
        raise InputRefused("\n  ".join(wrong), hint="put what is no job into another file")
    return jobs, notes


def _map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _listed(document: dict[str, Any]) -> list[dict[str, Any]]:
    items = document.get("items")
    return (
        [each for each in items if is_job(each)]
        if document.get("kind") == "List" and isinstance(items, list)
        else [document]
    )


def _read(document: dict[str, Any], around: Around, number: int) -> TranslatedKubernetesJob:
    rest, draft = copy.deepcopy(document), JobDraft(around)
    draft.put("name", take(rest, "metadata.name"), "metadata.name")
    _kueue(rest, draft)
    draft.put("labels", take(rest, "metadata.labels"), "metadata.labels")
    try:
        _KINDS[str(document["kind"])][1](rest, draft)
    except (
        AttributeError,
        TypeError,
        ValueError,
        KeyError,
        IndexError,
    ) as error:  # a list in place of a map, or the like
        raise InputRefused(f"document {number + 1}: expected a valid {document['kind']}, found other values") from error
    for path in _HARMLESS:
        take(rest, path)
    draft.leave(rest, "", _NOTED)
    return TranslatedKubernetesJob(draft.job, draft.notes, draft.unkept, number, draft.renamed)


def _kueue(rest: dict[str, Any], draft: JobDraft) -> None:
    """Read the labels of Kueue: queue, priority, time."""
    draft.put("queue", take(rest, f"metadata.labels|{QUEUE_LABEL}"), f"metadata.labels.{QUEUE_LABEL}")
    if (name := take(rest, f"metadata.labels|{PRIORITY_LABEL}")) is not None:
        put_priority(str(name), f"metadata.labels.{PRIORITY_LABEL}", draft)
    if (seconds := take(rest, f"metadata.labels|{TIME_LABEL}")) is not None:
        draft.put("time", {"total": f"{seconds}s"}, f"metadata.labels.{TIME_LABEL}")


def _pod(template: dict[str, Any], at: str, draft: JobDraft, command: list[str] | None = None) -> None:
    """Read a pod template, and name what is left of it."""
    annotations: dict[str, Any] = (template.get("metadata") or {}).get("annotations") or {}
    for word, theirs in (("require", "required-topology"), ("prefer", "preferred-topology")):
        if key := annotations.pop(TOPOLOGY + theirs, None):
            put_topology(word, str(key), f"{at}.metadata.annotations", draft)
    pod = template.get("spec") or {}
    read_pod(pod, f"{at}.spec", draft, command)
    take(pod, "restartPolicy")
    draft.leave(template, f"{at}.", _POD_NOTED)


def _run_policy(rest: dict[str, Any], at: str, draft: JobDraft) -> None:
    """Read limits on time and retries, which all kinds have."""
    if (total := take(rest, f"{at}.activeDeadlineSeconds")) is not None:
        draft.put("time", {**draft.job.get("time", {}), "total": f"{total}s"}, f"{at}.activeDeadlineSeconds")
    if (limit := take(rest, f"{at}.backoffLimit")) is not None:
        draft.put("retries", {"max": limit}, f"{at}.backoffLimit")
    if take(rest, f"{at}.suspend"):
        if "queue" in draft.job:
            draft.note("suspend is not followed: with Kueue it means that the queue starts the job, as it does here")
            return
        draft.put("held", True, f"{at}.suspend")


# ---------------------------------------------------------------------------- kinds


def _job(rest: dict[str, Any], draft: JobDraft) -> None:
    _run_policy(rest, "spec", draft)
    if (limit := take(rest, "spec.backoffLimitPerIndex")) is not None:
        draft.put("retries", {"max": limit}, "spec.backoffLimitPerIndex")
    indexed = take(rest, "spec.completionMode") == "Indexed"
    completions, parallel = take(rest, "spec.completions"), take(rest, "spec.parallelism")
    template: dict[str, Any] = take(rest, _TEMPLATE) or {}
    count = completions or parallel or 1
    together = parallel or 1
    if count > 1 and completions is None:
        draft.note(f"parallelism without completions: {count} elements, and each of them has to succeed")
    if indexed and count > 1 and together >= count and (template.get("spec") or {}).get("subdomain"):
        draft.put("nodes", count, "spec.completions")  # its pods know each other by name: all of them, or none
        draft.note("an Indexed Job whose pods have a subdomain is a gang: $MASTER_ADDR is the first node")
        draft.late["JOB_COMPLETION_INDEX"] = '"$NODE_RANK"'
        draft.first_pod = f"{draft.job.get('name')}-0.{template['spec']['subdomain']}"
    elif count > 1 or indexed:
        draft.put("array", f"0-{count - 1}%{together}" if together < count else count, "spec.completions")
        if indexed:
            draft.late["JOB_COMPLETION_INDEX"] = '"$FAIRLEAD_ARRAY_INDEX"'
    _pod(template, _TEMPLATE, draft)


def _single_pod(rest: dict[str, Any], draft: JobDraft) -> None:
    _pod({"spec": take(rest, "spec")}, "", draft)


def _pytorch(rest: dict[str, Any], draft: JobDraft) -> None:
    """Master and workers are a gang of equal nodes, with one process on each unless the command is a launcher."""
    _run_policy(rest, "spec.runPolicy", draft)
    _scheduling(rest, draft)
    roles: dict[str, Any] = take(rest, "spec.pytorchReplicaSpecs") or {}
    at = "spec.pytorchReplicaSpecs"
    first, *others = [role for role in ("Master", "Worker") if role in roles] or ["Master"]
    count = sum(int(role.get("replicas", 1)) for role in roles.values())
    template: dict[str, Any] = (roles.get(first) or {}).get("template") or {}
    for role in others:
        if (roles[role].get("template") or {}).get("spec") != template.get("spec"):
            draft.unkept[f"{at}.{role}.template"] = (
                f"it differs from {first}'s: nodes of a gang run one command in one image"
            )
    least, most = (take(rest, f"spec.elasticPolicy.{word}") for word in ("minReplicas", "maxReplicas"))
    nodes = f"{least}-{most}" if least and most and least < most else count
    draft.put("nodes", nodes, f"{at}.{others[-1] if others else first}.replicas")
    _pod(copy.deepcopy(template), f"{at}.{first}.template", draft)
    processes = take(rest, "spec.nprocPerNode") or take(rest, "spec.elasticPolicy.nProcPerNode")
    if draft.job["command"][0].rpartition("/")[2] != "torchrun" and draft.job.get("launcher") is None:
        draft.job |= {"launcher": "env", "processesPerNode": int(processes) if str(processes).isdecimal() else 1}
    elif str(processes).isdecimal():
        draft.job["processesPerNode"] = int(str(processes))
    draft.leave(take(rest, "spec.elasticPolicy") or {}, "spec.elasticPolicy.", ("",))
    draft.leave({role: _rest_of(words) for role, words in roles.items()}, f"{at}.", _RESTART)


def _mpi(rest: dict[str, Any], draft: JobDraft) -> None:
    """The launcher's command on the workers' nodes: mpirun runs on the first of them."""
    _run_policy(rest, "spec.runPolicy", draft)
    _scheduling(rest, draft)
    at = "spec.mpiReplicaSpecs"
    roles: dict[str, Any] = take(rest, at) or {}
    launcher, worker = roles.get("Launcher") or {}, roles.get("Worker") or {}
    command = _container(launcher)
    words = [*(command.get("command") or []), *(command.get("args") or [])]
    draft.put("launcher", "mpi", f"{at}.Launcher")
    draft.put("nodes", int(worker.get("replicas", 1)), f"{at}.Worker.replicas")
    draft.put("processesPerNode", take(rest, "spec.slotsPerWorker"), "spec.slotsPerWorker")
    template: dict[str, Any] = worker.get("template") or {}
    container = _container(worker)
    container["env"] = [*(container.get("env") or []), *(command.get("env") or [])]
    for word in ("command", "args"):
        container.pop(word, None)
    _pod(
        template, f"{at}.Worker.template", draft, _without_hostfile([str(word) for word in words], draft) or ["mpirun"]
    )
    if command.get("resources"):
        draft.note("resources of the Launcher are not followed: it runs on the first worker's node")
    for word in ("name", "image", "command", "args", "env", "resources"):
        command.pop(word, None)
    launcher_pod = (launcher.get("template") or {}).get("spec") or {}
    take(launcher_pod, "containers")
    draft.leave({"container": command, **launcher_pod}, f"{at}.Launcher.", ("restartPolicy", *_RESTART))
    draft.leave({role: _rest_of(words) for role, words in roles.items()}, f"{at}.", _RESTART)


#: Beginnings of paths about restarts of single pods: a gang is restarted as a whole, by its retries.
_RESTART = ("Master.restartPolicy", "Worker.restartPolicy", "Launcher.restartPolicy", "container.imagePullPolicy")


def _rest_of(role: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in role.items() if key not in ("replicas", "template")}


def _without_hostfile(words: list[str], draft: JobDraft) -> list[str]:
    """Return mpirun's words without the host file of the operator: mpirun finds our nodes in its environment."""
    kept: list[str] = []
    skip = False
    for word in words:
        if skip or word in ("--hostfile", "-hostfile", "--machinefile"):
            skip = not skip
            draft.note("the host file of mpirun is not followed: mpirun gets the nodes from its environment")
        else:
            kept.append(word)
    return kept


def _ray(rest: dict[str, Any], draft: JobDraft) -> None:
    """A Ray cluster for one entry point: a gang whose first node is the head and runs it."""
    _run_policy(rest, "spec", draft)
    at = "spec.rayClusterSpec"
    head: dict[str, Any] = take(rest, f"{at}.headGroupSpec") or {}
    groups: list[Any] = take(rest, f"{at}.workerGroupSpecs") or []
    command = ["/bin/sh", "-c", _RAY.format(entrypoint=str(take(rest, "spec.entrypoint") or "true"))]
    for number, group in enumerate(groups):
        image = _container(group).get("image")
        _ray_workers(group, f"{at}.workerGroupSpecs[{number}]", draft, command)
        if image != _container(head).get("image"):
            draft.unkept[f"{at}.workerGroupSpecs[{number}].image"] = "it differs from the head's: a job has one image"
    _pod(head.get("template") or {}, f"{at}.headGroupSpec.template", draft, command)
    head.pop("template", None)
    draft.leave(head, f"{at}.headGroupSpec.", _GROUP_NOTED)


#: Parts of a group of a Ray cluster that change nothing here.
_GROUP_NOTED = ("rayStartParams", "serviceType", "scaleStrategy", "idleTimeoutSeconds", "numOfHosts")


def _ray_workers(group: dict[str, Any], at: str, draft: JobDraft, command: list[str]) -> None:
    count, own = int(group.pop("replicas", 1)), JobDraft(draft.around)
    if {int(group.pop(word, count)) for word in ("minReplicas", "maxReplicas")} != {count}:
        draft.note(f"Ray's autoscaling is not followed: the gang has {count} of each such group")
    group.pop("groupName", None)
    _pod(group.pop("template", None) or {}, f"{at}.template", own, command)
    words = {key: own.job[key] for key in ("resources", "nodeSelector", "nodeAffinity", "gpu") if key in own.job}
    draft.put(
        "groups", [*draft.job.get("groups", []), {"nodes": count, **words}], "spec.rayClusterSpec.workerGroupSpecs"
    )
    for text in own.notes:
        draft.note(text)
    draft.unkept |= own.unkept
    draft.leave(group, f"{at}.", _GROUP_NOTED)


#: The head serves until its entry point ends; a worker joins it, and ends once it is gone.
_RAY = """\
if [ "$NODE_RANK" = 0 ]; then
  ray start --head --port=6379 || exit 1
  {entrypoint}
  code=$?
  ray stop
  exit $code
fi
until ray start --address="$MASTER_ADDR:6379"; do sleep 2; done
while ray health-check --address "$MASTER_ADDR:6379" >/dev/null 2>&1; do sleep 5; done
ray stop"""


def _container(role: dict[str, Any]) -> dict[str, Any]:
    containers = ((role.get("template") or {}).get("spec") or {}).get("containers") or [{}]
    return containers[0]


def _scheduling(rest: dict[str, Any], draft: JobDraft) -> None:
    """Read the scheduling policy of the training operator: its queue and its priority class. A gang is all or none in any case."""
    policy: dict[str, Any] = take(rest, "spec.runPolicy.schedulingPolicy") or {}
    if (queue := policy.get("queue")) and "queue" not in draft.job:
        draft.put("queue", queue, "spec.runPolicy.schedulingPolicy.queue")
    if name := policy.get("priorityClass"):
        put_priority(str(name), "spec.runPolicy.schedulingPolicy.priorityClass", draft)


#: {kind: (beginning of its apiVersion, its reader)}
_KINDS: dict[str, tuple[str, Callable[[dict[str, Any], JobDraft], None]]] = {
    "Job": ("batch/", _job),
    "Pod": ("v1", _single_pod),
    "PyTorchJob": ("kubeflow.org/", _pytorch),
    "MPIJob": ("kubeflow.org/", _mpi),
    "RayJob": ("ray.io/", _ray),
}
_EXPECTED = "a Kubernetes batch/v1 Job, Pod, PyTorchJob, MPIJob or RayJob"
