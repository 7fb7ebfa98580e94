"""The openb trace: its nodes, lists of pods, what was published, and a plain scan that shares no code with the placer."""

import csv
from collections import Counter
from pathlib import Path

from fairlead_placer.packing.policies import fragmentation
from fairlead_placer.packing.policy import ARRIVAL, EmptyNode, Population, RequestShape, TypicalWork

FOLDER = Path(__file__).parents[1] / "data" / "openb"
NODES = FOLDER / "openb_node_list_gpu_node.csv"
PODS = FOLDER / "openb_pod_list_default.csv"


def machines(path: Path = NODES) -> list[EmptyNode]:
    """The nodes of a list, in the order of the file: by default the 1,213 with GPUs."""
    return [
        EmptyNode(int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"]) for row in _rows(path)
    ]


def pods(path: Path) -> list[RequestShape]:
    """Read the pods of a list in the trace's form, in the order of the file; models are separated by `|`."""
    found: list[RequestShape] = []
    for row in _rows(path):
        gpus = int(row["num_gpu"])
        milli = int(row["gpu_milli"]) if gpus else 0
        models = tuple(sorted(model for model in (row["gpu_spec"] or "").split("|") if model))
        found.append(RequestShape(int(row["cpu_milli"]), int(row["memory_mib"]), gpus, milli, models))
    return found


def published(policy: str, metric: str = "gpu_alloc_pct") -> dict[int, float]:
    """{point: the mean over their seeds} of what the FGD paper's simulator got, in percent."""
    return {
        int(row["arrived_gpu_pct"]): float(row["mean"])
        for row in _rows(FOLDER / "fgd_published_default.csv")
        if row["metric"] == metric and row["policy"] == policy
    }


def typical(pods: list[RequestShape]) -> TypicalWork:
    """All that the list has: what fragments are measured by, whatever a policy has learned."""
    return TypicalWork({pod: count * ARRIVAL for pod, count in Counter(pods).items()})


def unusable_milli(pool: Population, work: TypicalWork) -> int:
    """Free GPUs that a pod of the list cannot use, on average, in thousandths; a pod without GPUs can use none of them."""
    gpus = sum(weight for _, weight in work.with_gpus())
    with_gpus = fragmentation(pool, work).unusable_milli
    return (with_gpus * gpus + pool.free_milli * (sum(work.weights.values()) - gpus)) // sum(work.weights.values())


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


class Scan:
    """The same cluster, kept and looked through in the most obvious way."""

    def __init__(self, machines: list[EmptyNode]) -> None:
        self._nodes = [[m.cpu_milli, m.memory_mib, [1000] * m.gpus, m.model] for m in machines]

    def fits(self, pod: RequestShape) -> bool:
        """True when some node has room for the pod."""
        for cpu, memory, gpus, model in self._nodes:
            if not pod.gpu_count or not pod.models or model in pod.models:
                room = cpu >= pod.cpu_milli and memory >= pod.memory_mib
                if room and sum(each >= pod.gpu_milli for each in gpus) >= pod.gpu_count:
                    return True
        return False

    def take(self, node: int, pod: RequestShape, gpus: tuple[int, ...]) -> None:
        """The pod is there now. Asserts that it was allowed to be."""
        state = self._nodes[node]
        assert len(set(gpus)) == pod.gpu_count, f"{pod} got GPUs {gpus}"
        assert not pod.models or not pod.gpu_count or state[3] in pod.models, f"{pod} got a {state[3]}"
        state[0] -= pod.cpu_milli
        state[1] -= pod.memory_mib
        for at in gpus:
            state[2][at] -= pod.gpu_milli
        assert min(state[0], state[1], *state[2]) >= 0, f"{pod} overfills node {node}: {state}"
