"""Documents in, verdicts out, with a cluster made of a list of objects."""

import json
from collections.abc import Callable

import pytest

from lictor.core.assembly import compile_documents
from lictor.core.engine import Engine
from lictor.core.load.policies import load_documents
from lictor.core.model.request import Request
from lictor.core.model.result import Verdict
from lictor.core.ports import NoLookups


class Cluster(NoLookups):
    """Answers from a list of objects."""

    def __init__(self, *objects) -> None:
        self._objects = objects

    def resources(self, api_version, kind, namespace):
        return [
            each
            for each in self._objects
            if (each["apiVersion"], each["kind"]) == (api_version, kind)
            and namespace in ("", each["metadata"].get("namespace", ""))
        ]

    def resource(self, api_version, kind, namespace, name):
        found = self.resources(api_version, kind, namespace)
        return next((each for each in found if each["metadata"]["name"] == name), None)


@pytest.fixture
def cluster() -> type[Cluster]:
    return Cluster


@pytest.fixture
def load() -> Callable[..., tuple]:
    """The records of documents."""

    def load(documents):
        text = "\n---\n".join(json.dumps(document) for document in documents)
        loaded = load_documents(text, "policy.yaml")
        assert not loaded.problems
        return loaded.records

    return load


@pytest.fixture
def evaluate(load) -> Callable[..., Verdict]:
    """What the documents say of a resource or a request."""

    def evaluate(documents, subject, **options):
        request = subject if isinstance(subject, Request) else Request.of(subject)
        return Engine(compile_documents(load(documents), **options)).evaluate(request)

    return evaluate
