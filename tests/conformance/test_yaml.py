"""YAML texts and how kubectl and Kyverno read them: the same values here, or an error."""

import base64
import json
import math
from collections import Counter
from itertools import starmap

import pytest
from shared_cases import CASES

from lictor.core.errors import LoadError
from lictor.core.load.yaml import read_documents

FOLDER = CASES / "yaml"
# Of texts that both references read alike, so many may be refused.
MOST_REFUSED = 20


def load_cases():
    with (FOLDER / "cases.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def is_same(value, other):
    """With types: 1 is not 1.0."""
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(is_same(value[k], other[k]) for k in value)
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(starmap(is_same, zip(value, other, strict=True)))
    if isinstance(value, float) and isinstance(other, float) and math.isnan(value):
        return math.isnan(other)
    return type(value) is type(other) and value == other


def classify(wanted, read):
    """What kind of difference is worse than an error."""
    if read is None:
        return "refused"
    if "error" in wanted:
        return "looser"
    return "same" if is_same(wanted["documents"], read) else "another value"


def read_case(case):
    data = case["text"].encode() if "text" in case else base64.b64decode(case["base64"])
    found = list(read_documents(data, "case.yaml"))
    if any(isinstance(each, LoadError) for each in found):
        return None
    return [each.body for each in found]


def drop_empty(answer):
    return {
        **answer,
        "documents": [each for each in answer.get("documents", ()) if each is not None],
    }


@pytest.mark.skipif(not FOLDER.is_dir(), reason="the shared YAML cases are missing")
def test_every_text_is_read_as_by_kubectl_and_kyverno_or_refused():
    counted, refused, wrong = Counter(), [], []
    for case in load_cases():
        read = read_case(case)
        wanted = [drop_empty(case[name]) for name in ("kubectl", "kyverno")]
        kinds = {classify(each, read) for each in wanted}
        if kinds & {"looser", "another value"}:
            wrong.append(case["id"])
        are_alike = not any("error" in each for each in wanted) and is_same(
            *(each["documents"] for each in wanted)
        )
        counted[are_alike] += 1
        if are_alike and read is None:
            refused.append(case["id"])
    assert counted[True] > 7000
    assert wrong == []
    assert len(refused) <= MOST_REFUSED, refused
    assert not [name for name in refused if name.startswith("kyaml/")]
