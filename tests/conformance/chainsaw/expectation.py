"""Which tests count: those that real Kyverno passes on such a cluster, or that need nothing more."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from chainsaw.case import Case
from chainsaw.signed_images import NOT_HERE

# These ask a registry whatever they look at; the others only when there is something with images.
_REGISTRY = re.compile(r"^\s*-?\s*imageRegistry:\s*$|GetMetadata\(|\bimageData\b", re.MULTILINE)
_SIGNATURES = re.compile(
    r"^\s*-?\s*verifyImages:|^kind: (Namespaced)?ImageValidatingPolicy|\bverifyImageSignatures\(",
    re.MULTILINE,
)
_WORKLOAD = re.compile(r"^kind: (Pod|Deployment|DaemonSet|StatefulSet|Job|CronJob)$", re.MULTILINE)
_SCRIPT = re.compile(r"(?:^|\s)\./([\w.-]+\.sh)\b")
_CONTAINERS = re.compile(
    r"kubectl (-n \S+ )?(logs|exec|rollout|port-forward|attach|cp|drain)\b"
    r"|kubectl scale (deploy|sts|statefulset)"
    r"|kubectl wait .*(pod|deploy)"
    r"|\b(containerStatuses|readyReplicas|availableReplicas)\b"
    r"|phase: (Running|Succeeded)|cert-manager",
)


def read_index(path: Path) -> dict[str, bool]:
    """Whether real Kyverno passed, by the test's path; empty where there is no such file."""
    if not path.exists():
        return {}
    rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line)
    return {row["test"]: row["status"] == "passed" for row in rows}


def find_need(case: Case) -> str | None:
    """What a test needs that there is not here: a registry, containers that run, a file."""
    if _lacks_files(case):
        return "a file that is not in its folder"
    text = "\n".join(
        file.read_text(encoding="utf-8", errors="replace")
        for file in sorted(case.folder.rglob("*"))
        if file.suffix in (".yaml", ".yml", ".sh") and file.is_file()
    )
    if _REGISTRY.search(text) or (_SIGNATURES.search(text) and _WORKLOAD.search(text)):
        return "a registry"
    return "running containers" if _CONTAINERS.search(text) else None


def _lacks_files(case: Case) -> bool:
    """Tell whether a test names a file that was not handed down with it."""
    named = [
        (operation or {}).get("file", "")
        for step in case.steps
        for entry in step.tries
        for operation in entry.values()
        if isinstance(operation, dict)
    ]
    named += [
        name
        for step in case.steps
        for entry in step.tries
        for name in _SCRIPT.findall((entry.get("script") or {}).get("content") or "")
    ]
    plain = [name for name in named if name and not re.search(r"[($*?\[]|://", name)]
    return any(not (case.folder / name).exists() for name in plain)


def is_expected(case: Case, index: Mapping[str, bool], *, has_images: bool = False) -> bool:
    """Tell whether a test counts. In a folder that the index names, only what it names does.

    With images of our own in a registry, those count that need nothing but a registry.
    """
    if case.skip or case.fault or (has_images and case.path in NOT_HERE):
        return False
    if has_images and find_need(case) == "a registry":
        return True
    if any(path.partition("/")[0] == case.group for path in index):
        return index.get(case.path, False) and not _lacks_files(case)
    return find_need(case) is None
