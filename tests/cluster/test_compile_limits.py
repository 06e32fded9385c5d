"""Policies of one namespace that are costly to compile or to write out: nobody else notices them."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from control_plane.install import Installation, install_lictor
from control_plane.local import LocalCluster
from load import Object, until

MATCH = {"any": [{"resources": {"kinds": ["ConfigMap"]}}]}


@dataclass
class Site:
    """A cluster with two namespaces, and lictor in it."""

    plane: LocalCluster
    lictor: Installation

    def create(self, *objects: Object, dry: bool = False) -> tuple[bool, str]:
        body = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        words = ("create", "-f", "-", *(("--dry-run=server",) if dry else ()))
        done = self.plane.kubectl(*words, stdin=json.dumps(body), check=False)
        return done.returncode == 0, done.stdout + done.stderr

    def ask(self, namespace: str) -> tuple[float, bool, str]:
        """How long an answer takes, and what it is."""
        metadata = {"name": "any", "namespace": namespace}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        began = time.monotonic()
        done, text = self.create(body, dry=True)
        return time.monotonic() - began, done, text


@pytest.fixture(scope="module")
def site(open_cluster: Callable[..., LocalCluster]) -> Iterator[Site]:
    with open_cluster() as plane:
        made = Site(plane, install_lictor(plane))
        for name in ("red", "blue"):
            plane.kubectl("create", "namespace", name)
        yield made


def policy(name: str, *rules: Object) -> Object:
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "Policy",
        "metadata": {"name": name, "namespace": "red"},
        "spec": {"background": True, "failurePolicy": "Fail", "rules": list(rules)},
    }


def deny(key: str, context: list[Object] | None = None) -> Object:
    condition = {"key": key, "operator": "Equals", "value": "x"}
    return {
        "name": "rule",
        "match": MATCH,
        "context": context or [],
        "validate": {
            "failureAction": "Enforce",
            "message": "m",
            "deny": {"conditions": {"any": [condition]}},
        },
    }


def _nest() -> str:
    text = "'" + "a" * 100 + "'"
    for _ in range(12):
        text = f"regex_replace_all('a', {text}, 'aaaaaaaaaa')"
    return f"{{{{ {text} }}}}"


def _double() -> list[Object]:
    entries: list[Object] = [{"name": "v0", "variable": {"value": {"a": 1}}}]
    for number in range(1, 31):
        query = f"{{a: v{number - 1}, b: v{number - 1}}}"
        entries.append({"name": f"v{number}", "variable": {"jmesPath": query}})
    return entries


COSTLY = {
    "nested": policy("nested", deny(_nest())),
    "doubled": policy("doubled", deny("{{ v30 }}", _double())),
    "doubled-pattern": policy(
        "doubled-pattern",
        {
            "name": "rule",
            "match": MATCH,
            "context": _double(),
            "validate": {
                "failureAction": "Enforce",
                "message": "m",
                "pattern": {"data": "{{ v30 }}"},
            },
        },
    ),
}


@pytest.mark.parametrize("name", COSTLY)
def test_a_costly_policy_is_an_error_where_it_stands_and_nowhere_else(
    site: Site, name: str
) -> None:
    done, text = site.create(COSTLY[name])
    assert done, text
    try:
        slowest = 0.0

        def is_heard() -> bool:
            nonlocal slowest
            seconds, allowed, text = site.ask("blue")
            assert allowed, text
            slowest = max(slowest, seconds)
            return not site.ask("red")[1]

        until(is_heard, "the policy is heard", 30)
        _, _, told = site.ask("red")
        assert "too large" in told or "larger than 8 MiB" in told or "too long" in told, told
        seconds, allowed, _ = site.ask("blue")
        assert allowed
        # kubectl alone takes most of it; without limits this took minutes, or was never answered.
        assert max(slowest, seconds) < 20
    finally:
        site.plane.kubectl("delete", "policy", name, "-n", "red")
    until(lambda: site.ask("red")[1], "the policy is gone", 30)
    for replica in site.lictor.replicas:
        log = replica.process.read_log(10**7)
        assert "process ended" not in log
        assert "process hangs" not in log


def test_a_policy_too_large_to_compile_is_refused_with_the_reason(site: Site) -> None:
    rules = [
        {
            "name": f"r{number}",
            "match": MATCH,
            "validate": {
                "message": "m",
                "anyPattern": [{"data": {f"a{n}": "?*"}} for n in range(9)],
            },
        }
        for number in range(4000)
    ]
    done, text = site.create(policy("large", *rules))
    assert not done
    # The embedded API server refuses it first: by the number of its items.
    assert "cannot be compiled within the limits" in text or "fields and list items" in text
    seconds, allowed, _ = site.ask("blue")
    assert allowed
    assert seconds < 20
