"""A real Prometheus that watches processes of a test, and answers queries."""

import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import httpx2
import pytest
import yaml

PROGRAM = shutil.which("prometheus")
needs_prometheus = pytest.mark.skipif(PROGRAM is None, reason="prometheus is not installed")


class Prometheus:
    """Asks its targets every second; rules are evaluated as often."""

    def __init__(self, folder: Path, targets: Sequence[str], groups: Sequence[object]) -> None:
        assert PROGRAM is not None
        (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": list(groups)}))
        job = {
            "job_name": "lictor",
            "static_configs": [{"targets": list(targets), "labels": {"namespace": "lictor"}}],
        }
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [job],
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self._log = (folder / "prometheus.log").open("wb")
        self._process = subprocess.Popen(
            [
                PROGRAM,
                f"--config.file={folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={folder / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=self._log,
            stderr=self._log,
        )
        self._client = httpx2.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False)

    def __enter__(self) -> "Prometheus":
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                if self._client.get("/-/ready").status_code == 200:
                    return self
            except httpx2.HTTPError:
                pass
            time.sleep(0.1)
        pytest.fail(f"Prometheus is not ready: {Path(self._log.name).read_text()[-2000:]}")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._client.close()
        self._log.close()

    def ask(self, path: str, **params: str):
        answer = self._client.get(f"/api/v1/{path}", params=params).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression: str) -> list[float]:
        """The values of all series; those that are no number are left out."""
        found = [float(each["value"][1]) for each in self.ask("query", query=expression)["result"]]
        return [value for value in found if value == value]  # noqa: PLR0124  (NaN)
