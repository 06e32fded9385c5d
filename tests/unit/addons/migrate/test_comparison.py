"""What the webhook of a comparison answers to whoever asks."""

import asyncio
import json
from http import HTTPStatus

import pytest

from lictor.addons.migrate.comparison import CompareOptions, LiveComparison
from lictor.http.messages import HttpRequest
from lictor.kubernetes.client import Client
from lictor.kubernetes.config import ClusterConfig
from lictor.kubernetes.names import Names

REVIEW = json.dumps({"apiVersion": "admission.k8s.io/v1", "request": {"uid": "1"}}).encode()
ROWS = [
    ("POST", "/validate/fail", REVIEW, HTTPStatus.OK, 1),
    # Paths become part of requests to the API server, with rights of ours.
    ("POST", "/validate/../../../../secrets", REVIEW, HTTPStatus.NOT_FOUND, 0),
    ("POST", "/vpol/other", REVIEW, HTTPStatus.NOT_FOUND, 0),
    ("GET", "/validate/fail", b"", HTTPStatus.NOT_FOUND, 0),
    ("POST", "/validate/fail", b"{", HTTPStatus.BAD_REQUEST, 0),
    ("POST", "/validate/fail", b"[]", HTTPStatus.BAD_REQUEST, 0),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "waiting"), ROWS)
def test_only_reviews_on_known_paths_are_asked_about(method, path, body, status, waiting):
    async def ask():
        client = Client(ClusterConfig("http://127.0.0.1:1"))
        made = LiveComparison(client, Names("kyverno", "kyverno"), CompareOptions(1, "a:1"))
        made._paths = frozenset(("/validate/fail",))
        try:
            answer = await made._answer(HttpRequest(method, path, b"", b"application/json", body))
            return answer, made._waiting.qsize()
        finally:
            await client.close()

    answer, asked = asyncio.run(ask())
    assert (answer.status, asked) == (status, waiting)
    if status is HTTPStatus.OK:
        assert json.loads(answer.body)["response"] == {"uid": "1", "allowed": True}
