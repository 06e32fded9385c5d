"""A tenant who keeps policies under review all the time, and an administrator who writes one too."""

import itertools
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from siege_site import Site
from violations import ViolationLog
from waiting import Waiting

Object = dict[str, Any]
LONGEST = 2.0
_CONNECTIONS = 8
_EVERY = 1.0
_DRY = "?dryRun=All"
_POLICIES = f"/apis/kyverno.io/v1/namespaces/orange/policies{_DRY}"
_GROUPS = f"/apis/policies.kubewarden.io/v1/namespaces/orange/admissionpolicygroups{_DRY}"
_WIDE = f"/apis/kyverno.io/v1/clusterpolicies{_DRY}"


@dataclass
class CrowdTally:
    """What came of it, in seconds."""

    written: int = 0
    reviewed: int = 0
    slowest: float = 0.0
    slowest_own: float = 0.0


class Crowd:
    """Both of them; nothing that they write is kept."""

    def __init__(self, site: Site, violations: ViolationLog, pids: Path) -> None:
        self._site = site
        self._violations = violations
        self._waiting = Waiting(pids)
        self.tally = CrowdTally()
        self._numbers = itertools.count()

    def run(self, enough: threading.Event) -> None:
        """Until it is enough."""
        tenants = [
            threading.Thread(target=self._crowd, args=(enough,), daemon=True)
            for _ in range(_CONNECTIONS)
        ]
        for tenant in tenants:
            tenant.start()
        with self._site.cluster.connect() as admin:
            while not enough.wait(_EVERY):
                self._write(admin)
        for tenant in tenants:
            tenant.join(60)

    def _crowd(self, enough: threading.Event) -> None:
        with self._site.connect_attacker("crowd") as client:
            while not enough.is_set():
                number = next(self._numbers)
                path, body = (_POLICIES, _long(number)) if number % 3 else (_GROUPS, _hard(number))
                try:
                    client.post(path, json=body)
                except httpx2.HTTPError:
                    # It is refused or given up: that is its own matter.
                    continue
                self.tally.reviewed += 1

    def _write(self, admin: httpx2.Client) -> None:
        """A new innocent policy of the whole cluster is accepted soon."""
        self._waiting.begin()
        began = time.monotonic()
        try:
            answer = admin.post(_WIDE, json=_innocent(next(self._numbers)), timeout=30)
            accepted, said = answer.status_code == 201, answer.text[:600]
        except httpx2.HTTPError as error:
            accepted, said = False, repr(error)
        raw = time.monotonic() - began
        excused, facts = self._waiting.end()
        own, tally = max(raw - excused, 0.0), self.tally
        tally.written += 1
        tally.slowest, tally.slowest_own = max(tally.slowest, raw), max(tally.slowest_own, own)
        if not accepted or own > LONGEST:
            told = {"raw": raw, "own": own, "said": "" if accepted else said, **facts}
            self._violations.report("administrator kept waiting", f"policy {tally.written}", **told)


def _innocent(number: int) -> Object:
    check = {"message": "m", "pattern": {"metadata": {"name": "?*"}}}
    return _policy("ClusterPolicy", f"z{number}", [{"name": "r", "validate": check}])


def _long(number: int) -> Object:
    """It takes seconds to compile, and no two are the same."""
    rules = []
    for rule in range(100):
        conditions = [
            {
                "key": f"{{{{ request.object.data.k{number}_{rule}_{place} || '' | length(@) }}}}",
                "operator": "Equals",
                "value": place,
            }
            for place in range(30)
        ]
        check = {"message": "m", "deny": {"conditions": {"any": conditions}}}
        rules.append({"name": f"r{rule}", "validate": check})
    return _policy("Policy", f"long{number}", rules)


def _policy(kind: str, name: str, rules: list[Object]) -> Object:
    match = {"any": [{"resources": {"kinds": ["ConfigMap"]}}]}
    spec = {"background": False, "rules": [{**rule, "match": match} for rule in rules]}
    version = "kyverno.io/v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _hard(number: int) -> Object:
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["configmaps"],
        "operations": ["CREATE"],
    }
    member = {"module": "registry://registry.local/a:1", "settings": {"number": number}}
    spec = {
        "rules": [rule],
        "message": "no",
        "expression": "a()" + " " * 60 + "$",
        "policies": {"a": member},
    }
    return {
        "apiVersion": "policies.kubewarden.io/v1",
        "kind": "AdmissionPolicyGroup",
        "metadata": {"name": f"hard{number}"},
        "spec": spec,
    }
