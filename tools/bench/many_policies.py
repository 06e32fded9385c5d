"""Write the policies of a large cluster: many_policies.py COUNT FOLDER [--everywhere] [--from DIR].

A few policies are for everyone; the others are copies with names of their own, each for the
namespace of one team, as tenants have them. With `--everywhere` every copy is for everyone. The
same files are written every time, one for each policy.
"""

import argparse
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

# So many namespaces share the copies; the Pods of ../shared/bench/make_pods.py lie in the first 20.
_NAMESPACES = 1000


def write_policies(source: Path, folder: Path, count: int, *, everywhere: bool = False) -> None:
    """Write so many policies: those of a folder first, then copies of them."""
    folder.mkdir(parents=True, exist_ok=True)
    originals = [
        document
        for path in sorted(source.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
    ]
    for number in range(count):
        policy = originals[number % len(originals)]
        name = policy["metadata"]["name"]
        if number >= len(originals):
            policy = copy.deepcopy(policy)
            name = policy["metadata"]["name"] = f"{name}-{number}"
            if not everywhere:
                _bind(policy, f"ns-{number % _NAMESPACES}")
        (folder / f"{number:05}-{name}.yaml").write_text(yaml.safe_dump(policy, sort_keys=False))


def _bind(policy: dict[str, Any], namespace: str) -> None:
    """Let each rule of a policy concern one namespace alone."""
    constraints = policy["spec"].get("matchConstraints")
    if constraints is not None:
        named = {"kubernetes.io/metadata.name": namespace}
        constraints["namespaceSelector"] = {"matchLabels": named}
        return
    for rule in policy["spec"]["rules"]:
        for resources in _list_resources(rule["match"]):
            resources["namespaces"] = [namespace]


def _list_resources(match: dict[str, Any]) -> Iterator[dict[str, Any]]:
    filters = match.get("any") or match.get("all") or [match]
    for each in filters:
        yield each["resources"]


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--everywhere", action="store_true")
    parser.add_argument(
        "--from", dest="source", type=Path, default=Path("../shared/bench/policies")
    )
    given = parser.parse_args()
    write_policies(given.source, given.folder, given.count, everywhere=given.everywhere)


if __name__ == "__main__":
    main()
