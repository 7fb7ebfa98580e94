"""Two nodes on hosts of their own, used as people do: by the command.

Each agent's host has a name of its own besides its network, since MPI tells nodes apart by their names.
"""

import contextlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.system.over_hosts import HTTP_PORT, NODES, READY_S, OverHosts

PAGE = Path(__file__).parents[2] / "docs/how-to/multi-node.md"
FAIRLEAD = str(Path(sys.executable).with_name("fairlead"))


def example(name: str, *, put: dict[str, str], **fields: Any) -> dict[str, Any]:
    """A job file of docs/how-to/multi-node.md, by its first line; `put` are words of its command and what stands for them here. These
    hosts have no GPUs and little of anything: `fields` say what is asked for in their place."""
    text = next(
        block
        for block in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
        if block.startswith(f"# {name}\n")
    )
    job: dict[str, Any] = yaml.safe_load(text)
    for word, mine in put.items():
        job["command"] = [each.replace(word, mine) for each in job["command"]]
    return {**job, "resources": {"cpu": "100m", "memory": "64Mi"}, **fields}


class TwoHosts(OverHosts):
    """`with TwoHosts(directory) as hosts: job = hosts.submit({...})`."""

    around_agent = ("unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', "host-{node}")

    def _ready(self) -> None:
        self.until(lambda: len((self._ask("nodes") or {"items": []})["items"]) == len(NODES), "both nodes have joined")

    # ------------------------------------------------------------------ what a person types

    def fairlead(self, *words: str) -> str:
        """The command's output. Raises CalledProcessError."""
        return self.hosts["control"].run("env", f"FAIRLEAD_URL=http://127.0.0.1:{HTTP_PORT}", FAIRLEAD, *words)

    def submit(self, job: dict[str, Any]) -> str:
        """`fairlead submit -f`; the job's id."""
        path = self.data / "job.json"
        path.write_text(json.dumps({"resources": {"cpu": "100m", "memory": "64Mi"}, **job}))
        return self.fairlead("submit", "-f", str(path)).strip()

    def show(self, job: str) -> dict[str, Any]:
        """`fairlead show -o json`."""
        return json.loads(self.fairlead("show", job, "-o", "json"))

    def ended(self, job: str) -> dict[str, Any]:
        """The job once it has ended (`fairlead wait`)."""
        with contextlib.suppress(subprocess.CalledProcessError):  # how it ended is in its exit code
            self.fairlead("wait", job, "--timeout", f"{READY_S:g}s")
        shown = self.show(job)
        assert shown["state"] in ("succeeded", "failed", "cancelled"), self.logs()
        return shown

    def _ask(self, *words: str) -> Any:
        try:
            return json.loads(self.fairlead(*words, "-o", "json"))
        except subprocess.CalledProcessError:
            return None
