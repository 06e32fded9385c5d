"""Documents in, answers out."""

import json
from collections.abc import Callable

import pytest

from lictor.core.assembly import compile_documents
from lictor.core.engine import Engine
from lictor.core.load.policies import load_documents
from lictor.core.model.request import Request
from lictor.core.model.result import Result


@pytest.fixture
def compile_all() -> Callable[..., Engine]:
    """An engine with the policies among the documents."""

    def compile_all(documents, **options):
        text = "\n---\n".join(json.dumps(document) for document in documents)
        loaded = load_documents(text, "policy.yaml")
        assert not loaded.problems
        return Engine(compile_documents(loaded.records, **options))

    return compile_all


@pytest.fixture
def judge(compile_all) -> Callable[..., tuple[Result, ...]]:
    """What the policies among the documents say of a resource or request."""

    def judge(documents, subject, **options):
        request = subject if isinstance(subject, Request) else Request.of(subject)
        return compile_all(documents, **options).evaluate(request).results

    return judge


@pytest.fixture
def summarize(judge) -> Callable[..., list[tuple[str, str, str]]]:
    """Rule, status and message of each answer."""

    def summarize(documents, subject, **options):
        return [(r.rule, str(r.status), r.message) for r in judge(documents, subject, **options)]

    return summarize
