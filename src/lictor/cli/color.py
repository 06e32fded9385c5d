"""Are colours wanted? FORCE_COLOR and NO_COLOR are heeded everywhere, else a terminal decides."""

import os
import sys


def wants_color(*, unless: bool = False) -> bool:
    """Whether what goes to standard output is coloured; `unless` a flag says that it is not.

    As no-color.org and its counterpart say: set to anything but nothing, they count.
    """
    if unless or os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
