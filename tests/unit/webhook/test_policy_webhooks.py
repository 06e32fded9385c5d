"""Reviews of policies themselves and of the heartbeat, and how large a server may be."""

import asyncio
from base64 import b64decode
from pathlib import Path
from types import SimpleNamespace

import orjson
import pytest
from serving import Bench, make_policy, make_review, require_label, write_policies

from lictor.core.errors import UsageError
from lictor.core.facts.resource_names import builtin_names
from lictor.core.raw import JsonObject
from lictor.kubernetes.flags import Flags
from lictor.kubernetes.rbac import Access
from lictor.webhook.capacity import count_cores, divide_memory, find_memory
from lictor.webhook.policy_webhooks import CLEANUP_PATH, PolicyReviewer

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
    # A status is ours to write, and what goes away needs no result.
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


MEGABYTE = 1024 * 1024
LIMITS = [
    ("none", {}, "0::/", "", None),
    ("version 2", {"memory.max": "1048576"}, "0::/", "", 1),
    ("version 2 without a limit", {"memory.max": "max"}, "0::/", "", None),
    (
        "the narrowest around us counts",
        {"memory.max": "max", "a/memory.max": "2097152", "a/b/memory.max": "4194304"},
        "0::/a/b",
        "",
        2,
    ),
    ("version 1", {"memory/memory.limit_in_bytes": "3145728"}, "9:memory:/", "", 3),
    (
        "version 1, among others",
        {"memory/pod/memory.limit_in_bytes": "3145728"},
        "4:cpu,cpuacct:/\n9:memory:/pod\n0::/",
        "",
        3,
    ),
    (
        "version 1 without a limit",
        {"memory/memory.limit_in_bytes": "9223372036854771712"},
        "9:memory:/",
        "",
        None,
    ),
    ("what was said counts for more", {"memory.max": "1048576"}, "0::/", "512Mi", 512),
]


@pytest.mark.parametrize(
    ("files", "own", "said", "megabytes"), [c[1:] for c in LIMITS], ids=[c[0] for c in LIMITS]
)
def test_memory_follows_the_container(
    tmp_path: Path, files: dict[str, str], own: str, said: str, megabytes: int | None
) -> None:
    for name, text in files.items():
        (tmp_path / "fs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "fs" / name).write_text(f"{text}\n")
    (tmp_path / "own").write_text(f"{own}\n")
    found = find_memory(said, tmp_path / "fs", tmp_path / "own")
    assert found == (None if megabytes is None else megabytes * MEGABYTE)


def test_memory_that_is_no_quantity_is_refused() -> None:
    with pytest.raises(UsageError, match="--memoryLimit: lots is no quantity"):
        find_memory("lots")


@pytest.mark.parametrize("has_control", [True, False])
@pytest.mark.parametrize("workers", [1, 2, 8])
def test_memory_is_shared_out(workers: int, has_control: bool) -> None:  # noqa: FBT001
    total = workers * 512 * MEGABYTE
    share = divide_memory(total, workers, has_control=has_control)
    # The parent, and a new worker while the old one is still there.
    assert (workers + has_control) * share + 64 * MEGABYTE <= total
    assert share > 150 * MEGABYTE
    assert divide_memory(None, workers, has_control=has_control) == 2048 * MEGABYTE
    assert divide_memory(1, workers, has_control=has_control) == 96 * MEGABYTE


def test_a_right_that_was_granted_just_before_counts() -> None:
    """The API server reads new roles from a watch of its own, a moment after they are stored."""
    answers = iter([False, False, False, True])

    async def allows(_access: Access) -> bool:
        return next(answers, True)

    cleanup: JsonObject = {
        "apiVersion": "kyverno.io/v2",
        "kind": "CleanupPolicy",
        "metadata": {"name": "tidy", "namespace": "default"},
        "spec": {
            "schedule": "0 0 1 1 *",
            "match": {"any": [{"resources": {"kinds": ["Secret"]}}]},
        },
    }
    reviewer = PolicyReviewer(
        Flags(), SimpleNamespace(names=builtin_names()), allows=allows, cleanup_account="cleaner"
    )
    assert asyncio.run(reviewer.review(CLEANUP_PATH, cleanup, None)).allowed
