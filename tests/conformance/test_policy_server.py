"""Policy servers: set-ups of the corpus are started, and answer as Kubewarden's do.

With LICTOR_ALL_SERVERS=1 all 134 of them, which takes minutes; else those with three rows at least.
"""

import os
from pathlib import Path

import pytest
from kubewarden_guests import CORPUS, build_guests
from policy_server_rows import Comparison, compare, iterate_differences

DIFFERENCES = Path(__file__).parents[2] / "scripts" / "differences.txt"
# Rows that agree, or are listed as different by intent.
_RIGHT = 0.97


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    if not os.environ.get("LICTOR_KUBEWARDEN_TESTS"):
        pytest.skip("make test-kubewarden runs these: their guests need Go")
    if not CORPUS.is_dir():
        pytest.skip(f"no answers of Kubewarden at {CORPUS}: nothing to compare with")
    least_rows = 0 if os.environ.get("LICTOR_ALL_SERVERS") else 3
    return compare(build_guests(), DIFFERENCES, tmp_path_factory.mktemp("servers"), least_rows)


def test_all_guests_are_there(comparison: Comparison) -> None:
    if comparison.skipped:
        pytest.skip(f"{len(comparison.skipped)} set-ups not asked: {'; '.join(comparison.skipped)}")


def test_nothing_is_accepted_that_kubewarden_refuses(comparison: Comparison) -> None:
    assert [str(each) for each in comparison.unlisted if each.is_softer] == []


def test_answers_are_those_of_kubewarden(comparison: Comparison) -> None:
    assert comparison.rate >= _RIGHT, "\n".join(iterate_differences(comparison))
