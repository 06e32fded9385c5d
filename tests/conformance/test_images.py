"""Signed images: what policies say of them is what real Kyverno says, or a listed difference."""

from pathlib import Path

import pytest
from image_rows import Comparison, NoRegistryError, compare, served_corpus
from shared_cases import CASES, SHARED

IMAGES = CASES / "images"
DIFFERENCES = Path(__file__).parents[2] / "scripts" / "differences.txt"
# Rows that agree, or are listed as safer by intent.
_RIGHT = 0.99


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    if not IMAGES.is_dir():
        pytest.skip(f"no signed images at {IMAGES}: nothing to compare with")
    patch = pytest.MonkeyPatch()
    # Where the comparison keeps the trust root; put back afterwards.
    patch.setenv("TUF_ROOT", "")
    try:
        with served_corpus(IMAGES, SHARED / "tools" / "serve_registry.py"):
            return compare(IMAGES, DIFFERENCES, tmp_path_factory.mktemp("images"))
    except NoRegistryError as error:
        pytest.skip(str(error))
    finally:
        patch.undo()


def test_nothing_passes_that_kyverno_refuses(comparison: Comparison) -> None:
    assert [str(each) for each in comparison.unlisted if each.is_softer] == []


def test_verdicts_are_those_of_kyverno(comparison: Comparison) -> None:
    wrong = "\n".join(str(each) for each in comparison.unlisted)
    assert comparison.rate >= _RIGHT, wrong
