"""Do flags ask for more than files on this machine, and do they go together?"""

import re

from lictor.cli.apply_plan import ApplyFlags
from lictor.cli.inputs.sources import STDIN, is_url
from lictor.core.errors import UsageError

ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
LOCAL = "local"
RAY = "ray"
RAY_ADDRESS = f"{RAY}://"


def is_address(path: str) -> bool:
    """Whether a path is read through fsspec."""
    return ADDRESS.match(path) is not None and not is_url(path)


def is_ray(engine: str) -> bool:
    """Whether an engine is Ray, alone or with the address of a cluster of Ray's."""
    return engine == RAY or engine.startswith(RAY_ADDRESS)


def is_fleet(flags: ApplyFlags) -> bool:
    """Whether files are to be judged by other machines, for clusters, or lie in a store."""
    return (
        flags.engine != LOCAL
        or bool(flags.cluster_from)
        or any(map(is_address, flags.resource_paths))
    )


def check_fleet(flags: ApplyFlags) -> None:
    """Raise UsageError where flags contradict each other."""
    faults = {
        f"unknown engine {flags.engine!r}: choose {LOCAL}, {RAY} or {RAY_ADDRESS}ADDRESS": (
            flags.engine != LOCAL and not is_ray(flags.engine)
        ),
        f"--engine {RAY_ADDRESS}: the address is missing": flags.engine == RAY_ADDRESS,
        "--cluster asks a live cluster: it goes with --engine local, files and no --cluster-from": (
            flags.cluster
        ),
        "payloads (--json, --http-payload, --envoy-payload) are judged by --engine local only": (
            flags.json or flags.http_payload or flags.envoy_payload
        ),
        "no resources were named: give files, folders, patterns or addresses by --resource": (
            not flags.resource_paths
        ),
        "standard input cannot be shared out: give files, folders or addresses": (
            STDIN in flags.resource_paths
        ),
    }
    for message, wrong in faults.items():
        if wrong:
            raise UsageError(message)
