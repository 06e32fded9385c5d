import pytest
from shared_cases import CASES


def test_cases_lie_beside_the_project():
    if not CASES.is_dir():
        pytest.skip(f"no conformance cases at {CASES}: nothing to compare with")
    assert (CASES / "index.jsonl").exists()
