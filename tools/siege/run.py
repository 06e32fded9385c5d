"""Policies as an enemy would write them, against a running lictor: `run.py --seconds 300`.

Someone with rights in namespace `red` alone writes policies and objects there; someone else keeps slow
policies of `orange` under review on eight connections. Meanwhile requests in `green` must be answered
rightly and soon, an administrator's policies accepted within 2 s, nothing outside `red` may change, and no word of another
namespace's secrets may appear anywhere. Violations are kept in a folder, to be tried again by
`run.py --replay FOLDER/attack-….json`.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tests" / "cluster"))

from siege import besiege


def main() -> int:
    """Read arguments, run, report."""
    parser = argparse.ArgumentParser(description="Attack a running lictor with policies")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=0, help="0 takes one from the clock")
    parser.add_argument("--first", type=int, default=0, help="number of the first attack")
    parser.add_argument("--cluster", choices=("embedded", "real"), default="embedded")
    parser.add_argument("--folder", type=Path, default=Path("build/siege"), help="for violations")
    parser.add_argument("--replay", type=Path, help="an attack from such a folder")
    given = parser.parse_args()
    seed = given.seed or int(time.time())
    siege = besiege(
        given.cluster, given.folder, given.seconds, seed, first=given.first, replay=given.replay
    )
    for line in siege.describe():
        print(line)
    return 1 if siege.violations.counts else 0


if __name__ == "__main__":
    sys.exit(main())
