"""What real Kyverno's webhook answers, asked of `lictor serve` in front of an embedded cluster."""

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

import pytest
from admission_site import AdmissionSite, read_documents
from listed_differences import Listed
from shared_cases import CASES, SHARED

TABLES = CASES / "golden" / "admission"
# Parts whose policies may be there at the same time.
GROUPS = (("requests", "updates"), ("vpol", "mutate", "warnings"))
LISTED = Listed("Admission responses")


@dataclass(frozen=True)
class Answers:
    """How many answers there are in a part, and the first of each policy that is not Kyverno's."""

    part: str
    total: int
    wrong: dict[str, str]
    # Refused by Kyverno, and allowed here.
    softer: frozenset[str]


def judge_group(parts: tuple[str, ...]) -> Iterator[Answers]:
    judge = load_judge()
    with AdmissionSite(TABLES / "setup.yaml") as site:
        for part in parts:
            site.load(read_documents(TABLES / f"{part}-policies.yaml"))
        site.serve()
        for part in parts:
            yield judge_part(judge, part, site.url)


def load_judge() -> ModuleType:
    path = SHARED / "tools" / "admission_check.py"
    spec = importlib.util.spec_from_file_location("admission_check", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def judge_part(judge: ModuleType, part: str, url: str) -> Answers:
    policies = read_documents(TABLES / f"{part}-policies.yaml")
    reviews = (TABLES / f"{part}-reviews.jsonl").read_text().splitlines()
    by_policy = part in ("mutate", "warnings")
    compare = judge.judge_policies if by_policy else judge.judge_rows
    total, _, opened, first, _, said = compare(part, policies, reviews, str(TABLES), url)
    softer = frozenset(name for name, count in opened.items() if count)
    return Answers(part, total, {**said, **first}, softer)


# The judge leaves files and connections open.
@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.parametrize("parts", GROUPS, ids="+".join)
def test_answers_as_kyverno_does(parts: tuple[str, ...]):
    for found in judge_group(parts):
        assert found.total
        assert {name: why for name, why in found.wrong.items() if name not in LISTED} == {}
