"""A real Prometheus (Debian's package) on a free port, with our configuration's jobs and rules."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import httpx
import yaml

from fairlead.stack.nats_server import free_port
from tests.kit.eventually import eventually

CONFIG = Path("deploy/prometheus/prometheus.yml")
RULES = Path("deploy/prometheus/rules.yml").absolute()
WAIT_S = 60.0


class PrometheusServer:
    """Scrapes each second. `targets`: {job of our configuration: addresses}."""

    def __init__(self, directory: Path, targets: dict[str, list[str]]) -> None:
        config = yaml.safe_load(CONFIG.read_text())
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["rule_files"] = [str(RULES)]
        for job in config["scrape_configs"]:
            job["static_configs"] = [{"targets": targets[job["job_name"]]}]
        (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._directory, self.port = directory, free_port()
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=30)
        self._log = (directory / "prometheus.log").open("w")

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={self._directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={self._directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stdout=self._log,
            stderr=self._log,
        )
        self.until(self._ready, "Prometheus is ready")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._http.close()
        self._log.close()

    def _ready(self) -> bool:
        try:
            return self._http.get("/-/ready").status_code == 200
        except httpx.HTTPError:
            return False

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until something holds; what it says in its log, where it never does."""
        log = self._directory / "prometheus.log"
        eventually(holds, what, within_s=WAIT_S, look_s=0.2, logs=lambda: log.read_text()[-2000:])

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Series of an instant query. Raises AssertionError with Prometheus' words where it refuses."""
        answer = self._http.get("/api/v1/query", params={"query": expression}).json()
        assert answer["status"] == "success", f"{expression}: {json.dumps(answer)}"
        return answer["data"]["result"]

    def get(self, path: str, **parameters: str) -> Any:
        """The data of another question of its API."""
        return self._http.get(path, params=parameters).json()["data"]
