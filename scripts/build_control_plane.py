"""Build etcd, kube-apiserver and kube-controller-manager for the tests on a real cluster.

    python scripts/build_control_plane.py [--folder FOLDER]

They go to $LICTOR_CACHE, or ~/.cache/lictor, and what is there already is not built again.
"""

import argparse
import shutil
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "cluster"))

from control_plane.build import PROGRAMS, build_programs, cache_folder
from control_plane.go_modules import BuildError


def main() -> int:
    """Build what is missing, and print the locations."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=cache_folder())
    folder = parser.parse_args().folder
    if shutil.which("go") is None:
        print("build_control_plane: there is no `go` here", file=sys.stderr)
        return 1
    started = time.monotonic()
    try:
        build_programs(folder, lambda line: print(line, flush=True))
    except BuildError as error:
        print(f"build_control_plane: {error}", file=sys.stderr)
        return 1
    print(f"{', '.join(PROGRAMS)} in {folder} ({time.monotonic() - started:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
