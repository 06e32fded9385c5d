"""What is logged of requests when someone asks for it."""

import logging

import orjson
import pytest
from serving import make_review

from lictor.core.load.review import load_review
from lictor.core.report.admission_response import AdmissionAnswer
from lictor.webhook.payload_log import build_payload_log

SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "s", "annotations": {"last": '{"data":{"a":"c2VzYW1l"}}'}},
    "data": {"a": "c2VzYW1l"},
}


def _ask(caplog: pytest.LogCaptureFixture, document: object, *, kind: str) -> str:
    body = make_review()
    body["request"]["object"] = document
    body["request"]["kind"] = {"group": "", "version": "v1", "kind": kind}
    payload_log = build_payload_log(payload=True, patches=True)
    assert payload_log is not None
    answer = AdmissionAnswer(patch=({"op": "add", "path": "/data/b", "value": "c2VzYW1l"},))
    with caplog.at_level(logging.INFO):
        payload_log.write(load_review(orjson.dumps(body)), answer)
    return "".join(str(vars(record)) for record in caplog.records)


def test_requests_and_patches_are_shown_whole(caplog: pytest.LogCaptureFixture) -> None:
    text = _ask(caplog, {"kind": "ConfigMap", "data": {"a": "here"}}, kind="ConfigMap")
    assert "here" in text
    assert "/data/b" in text


def test_what_a_secret_holds_is_not(caplog: pytest.LogCaptureFixture) -> None:
    text = _ask(caplog, SECRET, kind="Secret")
    assert "c2VzYW1l" not in text
    assert "REDACTED" in text


def test_nobody_asked() -> None:
    assert build_payload_log(payload=False, patches=False) is None
