"""Pack the plug-in for krew: dist/kubectl-lictor.tar.gz, and its manifest beside it.

    python -m build --no-isolation && python scripts/make_krew.py [--uri https://...]

The archive holds the wheel, the lock of what it needs, and the script that installs both at its
first use. --uri says from where krew will fetch the archive; `kubectl krew install --manifest
--archive` needs no such place.
"""

import argparse
import gzip
import hashlib
import io
import tarfile
from pathlib import Path

import yaml

from lictor.core.release import VERSION

ROOT = Path(__file__).parent.parent
ARCHIVE = "kubectl-lictor.tar.gz"
MANIFEST = "lictor.krew.yaml"
LAUNCHER = "kubectl-lictor"
DESCRIPTION = """\
Evaluate resources with policies of Kyverno, Kubernetes and Kubewarden before they reach a
cluster, or preview what policies would do to existing objects: apply, test, lint, explain, preview,
status and more.
"""
CAVEATS = """\
Needs Python 3.11 or newer. The first call installs lictor and the packages that its lock names
into your cache folder, from the package index that pip is set to.
"""


def pack(wheel: Path) -> bytes:
    """The archive: the same bytes for the same files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, mode in (
            (ROOT / "plugin" / LAUNCHER, 0o755),
            (wheel, 0o644),
            (ROOT / "requirements-run.lock", 0o644),
            (ROOT / "LICENSE", 0o644),
        ):
            content = path.read_bytes()
            entry = tarfile.TarInfo(path.name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return gzip.compress(packed.getvalue(), mtime=0)


def render_manifest(archive: bytes, uri: str) -> str:
    """What krew reads."""
    systems = {"key": "os", "operator": "In", "values": ["linux", "darwin"]}
    platform = {
        "selector": {"matchExpressions": [systems]},
        "uri": uri,
        "sha256": hashlib.sha256(archive).hexdigest(),
        "bin": LAUNCHER,
        "files": [{"from": "*", "to": "."}],
    }
    manifest = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "lictor"},
        "spec": {
            "version": f"v{VERSION}",
            "shortDescription": "Evaluate resources with policies",
            "description": DESCRIPTION,
            "caveats": CAVEATS,
            "platforms": [platform],
        },
    }
    return yaml.safe_dump(manifest, sort_keys=False)


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "dist")
    parser.add_argument("--uri", default=f"https://downloads.example/lictor/{VERSION}/{ARCHIVE}")
    given = parser.parse_args()
    wheel = given.folder / f"lictor-{VERSION}-py3-none-any.whl"
    if not wheel.exists():
        raise SystemExit(f"{wheel} is not there: python -m build --no-isolation makes it")
    archive = pack(wheel)
    (given.folder / ARCHIVE).write_bytes(archive)
    (given.folder / MANIFEST).write_text(render_manifest(archive, given.uri), encoding="utf-8")
    print(f"{given.folder / ARCHIVE}\n{given.folder / MANIFEST}")


if __name__ == "__main__":
    main()
