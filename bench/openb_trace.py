"""The openb trace: its nodes, lists of pods, what was published, and a plain scan that shares no code with the placer."""

import csv
from pathlib import Path

from fairlead_placer.packing.pool import Machine
from fairlead_placer.packing.shapes import Shape

FOLDER = Path(__file__).parent / "data" / "openb"
NODES = FOLDER / "openb_node_list_gpu_node.csv"
PODS = FOLDER / "openb_pod_list_default.csv"


def machines() -> list[Machine]:
    """The 1,213 nodes with GPUs, in the order of the file."""
    return [
        Machine(int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"]) for row in _rows(NODES)
    ]


def pods(path: Path) -> list[Shape]:
    """A list of the trace's form, in the order of the file; models are told apart by `|`."""
    found: list[Shape] = []
    for row in _rows(path):
        gpus = int(row["num_gpu"])
        milli = int(row["gpu_milli"]) if gpus else 0
        models = tuple(sorted(model for model in (row["gpu_spec"] or "").split("|") if model))
        found.append(Shape(int(row["cpu_milli"]), int(row["memory_mib"]), gpus, milli, models))
    return found


def published(policy: str, points_pct: tuple[int, ...]) -> list[tuple[float, float]]:
    """(mean, standard deviation) of the GPU allocation in percent at each point."""
    rows = {
        int(row["arrived_gpu_pct"]): (float(row["mean"]), float(row["sd"]))
        for row in _rows(FOLDER / "fgd_published_default.csv")
        if row["metric"] == "gpu_alloc_pct" and row["policy"] == policy
    }
    return [rows[pct] for pct in points_pct]


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


class Scan:
    """The same cluster, kept and looked through in the most obvious way."""

    def __init__(self, machines: list[Machine]) -> None:
        self._nodes = [[m.cpu_milli, m.memory_mib, [1000] * m.gpus, m.model] for m in machines]

    def fits(self, pod: Shape) -> bool:
        """True when some node has room for the pod."""
        for cpu, memory, gpus, model in self._nodes:
            if not pod.gpu_count or not pod.models or model in pod.models:
                room = cpu >= pod.cpu_milli and memory >= pod.memory_mib
                if room and sum(each >= pod.gpu_milli for each in gpus) >= pod.gpu_count:
                    return True
        return False

    def take(self, node: int, pod: Shape, gpus: tuple[int, ...]) -> None:
        """The pod is there now. Asserts that it was allowed to be."""
        state = self._nodes[node]
        assert len(set(gpus)) == pod.gpu_count, f"{pod} got GPUs {gpus}"
        assert not pod.models or not pod.gpu_count or state[3] in pod.models, f"{pod} got a {state[3]}"
        state[0] -= pod.cpu_milli
        state[1] -= pod.memory_mib
        for at in gpus:
            state[2][at] -= pod.gpu_milli
        assert min(state[0], state[1], *state[2]) >= 0, f"{pod} overfills node {node}: {state}"
