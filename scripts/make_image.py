"""`make image`: build the image with buildah, podman or docker, as installed.

    python scripts/make_image.py [--tag NAME] [--target with-shell] [--base IMAGE]
        [--builder PROGRAM] [--print] [-- FLAGS OF THE BUILDER]

The image tells the commit that it was built from, and the time of that commit: the same source
makes the same image.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from lictor.core.release import DEFAULT_IMAGE

ROOT = Path(__file__).parent.parent
# Those without a daemon first.
BUILDERS = ("buildah", "podman", "docker")
# The default registry of Kubernetes and docker; buildah and podman use localhost.
_UNNAMED = "docker.io/library/"


def find_builder(wanted: str) -> str:
    """The program to build with."""
    for name in (wanted,) if wanted else BUILDERS:
        if shutil.which(name):
            return name
    raise SystemExit(
        f"no image is built: {wanted or ', '.join(BUILDERS)} not found. "
        "Install one of buildah, podman and docker; see docs/get-started/cluster.md."
    )


def complete_name(tag: str) -> str:
    """The name under which a node looks for the image."""
    host, slash, _ = tag.partition("/")
    named = slash and ("." in host or ":" in host or host == "localhost")
    return tag if named else f"{_UNNAMED}{tag}" if not slash else f"docker.io/{tag}"


def read_commit() -> tuple[str, int]:
    """The commit of the source, and when it was made; a copy without git's folder has neither."""
    done = subprocess.run(
        ["git", "-C", str(ROOT), "log", "-1", "--format=%H %ct"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return "---", 0
    commit, seconds = done.stdout.split()
    changed = subprocess.run(["git", "-C", str(ROOT), "diff", "--quiet", "HEAD"], check=False)
    return f"{commit}{'-changed' if changed.returncode else ''}", int(seconds)


def build_command(builder: str, given: argparse.Namespace, flags: Sequence[str]) -> list[str]:
    """The call of the builder."""
    commit, seconds = read_commit()
    time = datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
    command = [
        builder,
        "build",
        "--file",
        str(ROOT / "Dockerfile"),
        "--tag",
        complete_name(given.tag),
    ]
    command += ["--build-arg", f"COMMIT={commit}", "--build-arg", f"BUILT_AT={time}"]
    for label, value in (("version", DEFAULT_IMAGE.partition(":")[2]), ("revision", commit)):
        command += ["--label", f"org.opencontainers.image.{label}={value}"]
    if given.base:
        command += ["--build-arg", f"PYTHON_IMAGE={given.base}"]
    if given.target:
        command += ["--target", given.target]
    if builder == "docker":
        command += ["--build-arg", f"SOURCE_DATE_EPOCH={seconds}"]
    else:
        command += ["--timestamp", str(seconds)]
    return [*command, *flags, str(ROOT)]


def main() -> int:
    """Build, or show how."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tag", default=DEFAULT_IMAGE)
    parser.add_argument("--target", default="", help="with-shell: for runners that start a shell")
    parser.add_argument("--base", default="", help="the image with Python to start from")
    parser.add_argument("--builder", default="", help=", ".join(BUILDERS))
    parser.add_argument("--print", action="store_true", help="show the call, and build nothing")
    parser.add_argument("flags", nargs="*", help="for the builder, after --")
    given = parser.parse_args()
    command = build_command(find_builder(given.builder), given, given.flags)
    print(shlex.join(command), flush=True)
    if given.print:
        return 0
    # Without it docker's older builder would take no secret.
    return subprocess.run(
        command, check=False, env={**os.environ, "DOCKER_BUILDKIT": "1"}
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
