"""Carries attacks out, with the rights of someone who has `red` and nothing else."""

import time
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import httpx2
from attacks import SCHEDULED, Attack
from oracle import Oracle
from violations import ViolationLog

Object = dict[str, Any]
# Until the API server has heard of the webhooks for a new policy.
_SETTLE = 0.7
# What runs every minute must live longer than that.
_LINGER = 70.0
# Policies that could not be deleted refuse what comes after them: no more than so many attacks may
# leave some behind, or the later ones would attack nothing.
_MOST_LEFT = 2
_PLURALS = {
    "Policy": "policies",
    "CleanupPolicy": "cleanuppolicies",
    "PolicyException": "policyexceptions",
    "NamespacedValidatingPolicy": "namespacedvalidatingpolicies",
    "NamespacedMutatingPolicy": "namespacedmutatingpolicies",
    "NamespacedGeneratingPolicy": "namespacedgeneratingpolicies",
    "NamespacedDeletingPolicy": "namespaceddeletingpolicies",
    "AdmissionPolicy": "admissionpolicies",
    "AdmissionPolicyGroup": "admissionpolicygroups",
    "ConfigMap": "configmaps",
    "Secret": "secrets",
    "Pod": "pods",
}
_SWEPT = ("configmaps", "secrets", "pods", "events")


@dataclass
class Tally:
    """What was tried so far."""

    accepted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    # Objects under the policies.
    created: Counter[str] = field(default_factory=Counter)
    denied: Counter[str] = field(default_factory=Counter)
    # Policies that their author could not delete; and those that nobody could.
    left_behind: int = 0
    stuck: int = 0
    requests: int = 0
    unanswered: int = 0
    slowest_policy: float = 0.0


@dataclass
class Attacker:
    """One who writes policies and objects in `red`."""

    client: httpx2.Client
    # Someone who may delete policies everywhere.
    administrator: httpx2.Client
    oracle: Oracle
    violations: ViolationLog
    tally: Tally = field(default_factory=Tally)
    _lingering: list[tuple[float, Attack, list[str]]] = field(default_factory=list)
    _left: deque[tuple[Attack, list[str]]] = field(default_factory=deque)

    def carry_out(self, attack: Attack) -> None:
        """Policies, then objects under them; then both go."""
        self.violations.begin(attack)
        made = [path for body in attack.policies if (path := self._create_policy(body))]
        if made:
            time.sleep(_SETTLE)
        objects = [path for body in attack.triggers if (path := self._create_object(body))]
        for path in objects[:2]:
            patch = {"metadata": {"annotations": {"again": "yes"}}}
            self._ask("PATCH", path, patch, "application/merge-patch+json")
        for path in objects:
            self._ask("DELETE", path)
        lasting = [path for path in made if any(name in path for name in _SCHEDULED_PATHS)]
        is_gone = self._withdraw(attack, [path for path in made if path not in lasting])
        if lasting:
            self._lingering.append((time.monotonic() + _LINGER, attack, lasting))
        elif is_gone:
            self.violations.end(attack)
        self._end_lingering(time.monotonic())
        self._remove_left(_MOST_LEFT)

    def finish(self) -> None:
        """Take away what is still there."""
        self._end_lingering(float("inf"))
        self._remove_left(0)
        self.sweep()

    def sweep(self) -> None:
        """Remove what policies made in `red`."""
        for plural in _SWEPT:
            self._ask("DELETE", f"/api/v1/namespaces/red/{plural}?labelSelector=shared!=true")

    def _end_lingering(self, now: float) -> None:
        for entry in [each for each in self._lingering if each[0] < now]:
            self._lingering.remove(entry)
            if self._withdraw(entry[1], entry[2]):
                self.violations.end(entry[1])

    def _withdraw(self, attack: Attack, paths: Iterable[str]) -> bool:
        """Delete policies; False where some of them stay."""
        left = [path for path in paths if not _is_gone(self._ask("DELETE", path))]
        if left:
            self.tally.left_behind += len(left)
            self._left.append((attack, left))
        return not left

    def _remove_left(self, most: int) -> None:
        """Have an administrator delete the oldest of what is left, where there is more of it."""
        for _ in range(len(self._left) - most):
            attack, paths = self._left.popleft()
            stuck = [path for path in paths if not _is_gone(self._remove(path))]
            if stuck:
                self.tally.stuck += len(stuck)
                self._left.append((attack, stuck))
            else:
                self.violations.end(attack)

    def _remove(self, path: str) -> httpx2.Response | None:
        try:
            return self.administrator.delete(path)
        except httpx2.HTTPError:
            return None

    def _create_object(self, body: Object) -> str | None:
        path = self._create(body)
        (self.tally.created if path else self.tally.denied)[body["kind"]] += 1
        return path

    def _create_policy(self, body: Object) -> str | None:
        began = time.monotonic()
        path = self._create(body)
        self.tally.slowest_policy = max(self.tally.slowest_policy, time.monotonic() - began)
        (self.tally.accepted if path else self.tally.refused)[body["kind"]] += 1
        return path

    def _create(self, body: Object) -> str | None:
        """The path of what was created; None where it was refused."""
        path = _collection(body)
        answer = self._ask("POST", path, body)
        if answer is None or not answer.is_success:
            return None
        return f"{path}/{body['metadata']['name']}"

    def _ask(
        self, method: str, path: str, body: Object | None = None, form: str = "application/json"
    ) -> httpx2.Response | None:
        self.tally.requests += 1
        headers = {"Content-Type": form}
        try:
            answer = self.client.request(method, path, json=body, headers=headers)
        except httpx2.HTTPError:
            self.tally.unanswered += 1
            return None
        said = f"{answer.text} {answer.headers.get_list('warning')}"
        self.oracle.search(said, f"the answer to {method} {path}")
        return answer


_SCHEDULED_PATHS = tuple(f"/{_PLURALS[kind]}/" for kind in SCHEDULED)


def _is_gone(answer: httpx2.Response | None) -> bool:
    return answer is not None and (answer.is_success or answer.status_code == 404)


def _collection(body: Object) -> str:
    version = body["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/namespaces/red/{_PLURALS[body['kind']]}"
