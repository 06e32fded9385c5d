"""Which etcd, kube-apiserver and kube-controller-manager do the tests run?"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from control_plane.build import Report, build_programs, cache_folder, is_complete

ABSENT = (
    "no control plane: set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver, "
    "or install Go, and the programs are built"
)


class NoControlPlaneError(RuntimeError):
    """The programs are neither here nor can they be made."""


@dataclass(frozen=True)
class Programs:
    """The programs of a control plane; without a controller manager there is no garbage collection."""

    etcd: Path
    api_server: Path
    controller_manager: Path | None


def find_programs(report: Report = lambda _: None) -> Programs:
    """What KUBEBUILDER_ASSETS names, else what the cache holds, else what Go can build."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and is_complete(Path(assets), ("etcd", "kube-apiserver")):
        return _programs_in(Path(assets))
    folder = cache_folder()
    if not is_complete(folder):
        if shutil.which("go") is None:
            raise NoControlPlaneError(ABSENT)
        build_programs(folder, report)
    return _programs_in(folder)


def _programs_in(folder: Path) -> Programs:
    manager = "kube-controller-manager"
    if not is_complete(folder, (manager,)):
        # envtest's folders have none; the one in the cache does as well.
        folder_of_manager = cache_folder()
        found = folder_of_manager / manager if is_complete(folder_of_manager, (manager,)) else None
    else:
        found = folder / manager
    return Programs(folder / "etcd", folder / "kube-apiserver", found)
