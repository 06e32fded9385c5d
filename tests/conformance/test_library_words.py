"""Completion in policies that others wrote: is what they wrote among what is offered?"""

import re

import pytest
from test_golden import LIBRARY

from lictor.addons.editor.field_help import list_words
from lictor.addons.editor.outline import find_cursor
from lictor.addons.editor.workspace_files import WorkspaceFiles

# Some of each sort: a classic policy that checks, changes, generates; policies in CEL.
NAMES = (
    "disallow-latest-tag",
    "require-pod-probes",
    "add-default-securitycontext",
    "add-networkpolicy",
    "restrict-image-registries",
    "disallow-host-ports",
    "add-safe-to-evict",
)
FILES = sorted(
    path for name in NAMES for path in LIBRARY.rglob(f"{name}.yaml") if "-test" not in str(path)
)
KEY = re.compile(r"^( *(?:- +)*[=+^X<]?\(?)([\w./-]+)\)?:")
STEP = re.compile(r"(?:request\.object|\bobject|\bvariables)(?:\.\w+)*?\.(\w+)(?![\w(])")


def list_places(lines):
    for number, line in enumerate(lines):
        key = KEY.match(line)
        if key:
            yield number, key.start(2), key[2]
        yield from ((number, step.start(1), step[1]) for step in STEP.finditer(line))


@pytest.mark.skipif(not FILES, reason="the public library is not here")
def test_what_is_written_is_offered() -> None:
    files, written, missing = WorkspaceFiles(lambda _: None), 0, []
    for path in FILES:
        lines = path.read_text().split("\n")
        for number, column, word in list_places(lines):
            # The line ends where the word would begin.
            cut = [*lines[:number], lines[number][:column], *lines[number + 1 :]]
            offered = list_words(find_cursor(cut, number, column), files)
            written += 1
            if word not in {each.word for each in offered}:
                missing.append(f"{path.name}:{number + 1}: {word}")
    assert written > 150
    # Labels of one's own choice, and fields of kinds that only their CRDs tell.
    assert len(missing) <= 0.05 * written, missing
