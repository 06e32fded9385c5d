"""kwctl's command lines: `lictor wasm` ends and prints as kwctl does, or differs as listed."""

import os
from pathlib import Path

import pytest
from kubewarden_guests import CORPUS, build_guests
from kwctl_rows import Comparison, compare

DIFFERENCES = Path(__file__).parents[2] / "scripts" / "differences.txt"
_RIGHT = 0.97


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    if not os.environ.get("LICTOR_KUBEWARDEN_TESTS"):
        pytest.skip("make test-kubewarden runs these: their guests need Go")
    if not CORPUS.is_dir():
        pytest.skip(f"no answers of kwctl at {CORPUS}: nothing to compare with")
    return compare(tmp_path_factory.mktemp("kwctl"), build_guests(), DIFFERENCES)


def test_command_lines_do_what_kwctl_does(comparison: Comparison) -> None:
    wrong = "\n".join(str(each) for each in comparison.unlisted)
    assert comparison.rate >= _RIGHT, wrong


def test_rows_that_need_a_compiler_are_told(comparison: Comparison) -> None:
    if comparison.skipped:
        pytest.skip(f"{len(comparison.skipped)} rows need a compiler that is not here")


def test_listed_differences_are_differences(comparison: Comparison) -> None:
    """A row that is listed and does not differ any more is to be taken off the list."""
    if comparison.skipped:
        pytest.skip("some rows were left out, and others look at what those have made")
    assert comparison.stale == ()
