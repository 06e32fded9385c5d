"""The answers that `green` gets while `red` attacks: read from the prober and judged."""

import json
import subprocess
import sys
import threading
from base64 import b64decode
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from siege_site import Site, find_admission
from violations import ViolationLog

LONGEST = 50.0
# While a worker waits for a processor, requests queue up before it: then an answer comes after the
# work for several, which would have been done one by one.
_QUEUED_SHARE = 0.05
_PROBER = Path(__file__).parent / "prober.py"


@dataclass
class Answers:
    """Figures of all answers so far, in milliseconds."""

    count: Counter[str] = field(default_factory=Counter)
    wrong: int = 0
    slow: int = 0
    slowest_raw: dict[str, float] = field(default_factory=dict)
    slowest_own: dict[str, float] = field(default_factory=dict)
    own: list[float] = field(default_factory=list)


class Foreign:
    """The prober, and what it tells."""

    def __init__(self, site: Site, violations: ViolationLog, pids: Path) -> None:
        self._site = site
        self._violations = violations
        self._pids = pids
        self._credentials = _write_credentials(site)
        self._process: subprocess.Popen[str] | None = None
        self.answers = Answers()

    def run(self, enough: threading.Event) -> None:
        """Until it is enough; a new prober where the server has moved."""
        while not enough.is_set():
            port = find_admission(self._site).port
            with self._start(port) as process:
                assert process.stdout is not None
                for line in process.stdout:
                    self._judge(json.loads(line))
                    if enough.is_set() or find_admission(self._site).port != port:
                        break
                process.kill()

    def _start(self, port: int) -> "subprocess.Popen[str]":
        certificate, key = self._credentials
        cluster = self._site.cluster
        command = [
            sys.executable, str(_PROBER), "--host", cluster.address, "--port", str(port),
            "--api-port", str(urlsplit(cluster.url).port), "--certificate", str(certificate),
            "--key", str(key), "--pids", str(self._pids),
        ]  # fmt: skip
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def _judge(self, answer: dict[str, Any]) -> None:
        way, found = answer["way"], self.answers
        found.count[way] += 1
        found.slowest_raw[way] = max(found.slowest_raw.get(way, 0.0), answer["raw"])
        found.slowest_own[way] = max(found.slowest_own.get(way, 0.0), answer["own"])
        if way == "webhook":
            found.own.append(answer["own"])
        if not answer["right"]:
            found.wrong += 1
            self._violations.report("wrong answer", way, **answer)
        elif way == "webhook" and answer["own"] > LONGEST + answer["raw"] * _QUEUED_SHARE:
            found.slow += 1
            self._violations.report("slow answer", way, **answer, log=self._read_log())

    def _read_log(self) -> str:
        """What the webhook server said lately."""
        return find_admission(self._site).process.read_log(20_000)


def _write_credentials(site: Site) -> tuple[Path, Path]:
    """Those of the administrator, as files."""
    config = yaml.safe_load(site.cluster.kubeconfig.read_text(encoding="utf-8"))
    user = config["users"][0]["user"]
    paths = site.cluster.folder / "prober.crt", site.cluster.folder / "prober.key"
    for path, name in zip(paths, ("client-certificate-data", "client-key-data"), strict=True):
        path.write_bytes(b64decode(user[name]))
    return paths
