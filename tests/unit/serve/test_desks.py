"""Reviews of policies themselves and of the heartbeat, and how large a server may be."""

from base64 import b64decode
from pathlib import Path

import orjson
import pytest
from serving import Bench, make_policy, make_review, require_label, write_policies

from lictor.raw import JsonObject
from lictor.serve.capacity import count_cores, find_memory_limit

STAMP = "kyverno.io/last-request-time"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(write_policies(tmp_path, make_policy("teams", require_label("team"))))


def _review(kind: str, document: JsonObject | None, **more: object) -> JsonObject:
    asked = {"group": "kyverno.io", "version": "v1", "kind": kind}
    name = ((document or {}).get("metadata") or {}).get("name", "")
    return make_review(kind=asked, object=document, namespace="", name=name, **more)


def test_policies_are_looked_over(bench: Bench) -> None:
    good = make_policy("good", require_label("x"))
    assert bench.ask("/policyvalidate", _review("ClusterPolicy", good))["allowed"]
    bad = make_policy("bad", {**require_label("x"), "validate": {"message": "nothing to check"}})
    response = bench.ask("/policyvalidate", _review("ClusterPolicy", bad))
    assert not response["allowed"]
    assert response["status"]["message"]
    assert bench.ask("/policymutate", _review("ClusterPolicy", bad))["allowed"]
    # A status is ours to write, and what goes away needs no opinion.
    assert bench.ask("/policyvalidate", _review("ClusterPolicy", bad, subResource="status"))[
        "allowed"
    ]
    deleted = _review("ClusterPolicy", None, operation="DELETE", oldObject=bad)
    assert bench.ask("/policyvalidate", deleted)["allowed"]


def test_cleanup_policies_share_a_path_with_everything(bench: Bench) -> None:
    cleanup: JsonObject = {
        "apiVersion": "kyverno.io/v2",
        "kind": "ClusterCleanupPolicy",
        "metadata": {"name": "sweep"},
        "spec": {"match": {"any": [{"resources": {"kinds": ["Pod"]}}]}, "schedule": "nonsense"},
    }
    asked = _review("ClusterCleanupPolicy", cleanup)
    assert not bench.ask("/validate", asked)["allowed"]
    cleanup["spec"]["schedule"] = "*/5 * * * *"
    assert bench.ask("/validate", asked)["allowed"]


@pytest.mark.parametrize("annotations", [None, {}, {STAMP: "2020-01-01T00:00:00Z"}])
def test_the_heartbeat_is_stamped(bench: Bench, annotations: dict[str, str] | None) -> None:
    metadata: JsonObject = {"name": "lictor-health", "namespace": "lictor"}
    if annotations is not None:
        metadata["annotations"] = annotations
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
    review = make_review(object=lease, name="lictor-health", namespace="lictor")
    (change,) = orjson.loads(b64decode(bench.ask("/verifymutate", review)["patch"]))
    assert change["op"] == "add"
    if annotations is None:
        assert list(change["value"]) == [STAMP]
    else:
        assert change["path"] == "/metadata/annotations/kyverno.io~1last-request-time"
    other = make_review(object=lease, name="other", namespace="lictor")
    assert "patch" not in bench.ask("/verifymutate", other)


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, None),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "nonsense"}, None),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "10000", "cpu/cpu.cfs_period_us": "100000"}, 1),
    ],
)
def test_cores_follow_the_quota(tmp_path: Path, files: dict[str, str], cores: int | None) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    everything = count_cores(tmp_path / "nothing")
    assert count_cores(tmp_path) == (cores or everything)


@pytest.mark.parametrize(
    ("text", "megabytes"), [("max", 2048), ("4294967296", 2048), ("2147483648", 1024), ("1", 512)]
)
def test_memory_is_shared_out(tmp_path: Path, text: str, megabytes: int) -> None:
    (tmp_path / "memory.max").write_text(text)
    assert find_memory_limit(2, tmp_path) == megabytes * 1024 * 1024
