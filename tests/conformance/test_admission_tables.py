"""What real Kyverno's webhook answers, asked of `lictor serve` in front of an embedded cluster."""

import importlib.util
import json
from collections.abc import Iterator
from types import ModuleType

import pytest
from admission_site import AdmissionSite, read_documents
from shared_cases import CASES, SHARED

TABLES = CASES / "golden" / "admission"
JUDGE = SHARED / "tools" / "admission_check.py"
# Parts whose policies may be there at the same time.
GROUPS = (("requests", "updates"), ("vpol", "mutate", "warnings"))
WANTED = 0.997
# Where Kyverno refuses and we do not, each with a line in docs/differences.md that says why: absent
# objects are null to expressions, and nobody's labels are tested; what is deleted is not changed.
KNOWN = {
    "cond-01", "cond-02", "val-01", "val-21", "valall-1", "valall-2", "auto-9", "objsel-1",
    "mpvar-3", "mpobj-10", "mpsel-4",
}  # fmt: skip


@pytest.fixture(scope="module")
def judge() -> ModuleType:
    spec = importlib.util.spec_from_file_location("admission_check", JUDGE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The judge leaves files and connections open.
calm = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(scope="module", params=GROUPS, ids="+".join)
def site(request: pytest.FixtureRequest) -> Iterator[tuple[AdmissionSite, tuple[str, ...]]]:
    with AdmissionSite(TABLES / "setup.yaml") as made:
        for part in request.param:
            made.load(read_documents(TABLES / f"{part}-policies.yaml"))
        made.serve()
        yield made, request.param


@calm
def test_answers_as_kyverno_does(site: tuple[AdmissionSite, tuple[str, ...]], judge: ModuleType):
    served, parts = site
    peculiar = json.loads((TABLES / "peculiar.json").read_text())
    for part in parts:
        total, wrong, opened, first = _judge_part(judge, part, served.url)
        known = peculiar.get(part, {})
        told = {name: first[name] for name in wrong if name not in known}
        bad = sum(wrong[name] for name in told)
        assert (total - bad) / total >= WANTED, f"{part}: {bad} of {total} wrong: {told}"
        softer = {name: first[name] for name, count in opened.items() if count}
        assert softer.keys() <= KNOWN, f"{part}: {softer}"


def _judge_part(judge: ModuleType, part: str, url: str):
    policies = read_documents(TABLES / f"{part}-policies.yaml")
    reviews = (TABLES / f"{part}-reviews.jsonl").read_text().splitlines()
    by_policy = part in ("mutate", "warnings")
    compare = judge.judge_policies if by_policy else judge.judge_rows
    total, wrong, opened, first, *_ = compare(part, policies, reviews, str(TABLES), url)
    return total, wrong, opened, first
