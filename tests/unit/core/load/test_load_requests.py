"""AdmissionReviews and plain resources into requests."""

import json

import pytest

from lictor.core.errors import LoadError
from lictor.core.load.resources import build_request
from lictor.core.load.review import build_review, load_review
from lictor.core.model.request import Caller, GroupVersionKind, Operation

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}
ASKED = {
    "uid": "u-1",
    "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
    "operation": "UPDATE",
    "subResource": "scale",
    "userInfo": {"username": "jo", "uid": "7", "groups": ["a", "b"], "extra": {"k": ["v"]}},
    "object": POD,
    "oldObject": POD,
}
REVIEW = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": ASKED}


def test_review():
    review = load_review(json.dumps(REVIEW).encode(), namespace_labels={"team": "t"})
    request = review.request
    assert (review.uid, review.api_version) == ("u-1", "admission.k8s.io/v1")
    assert request.kind == GroupVersionKind("apps", "v1", "Deployment")
    assert request.operation is Operation.UPDATE
    assert request.subresource == "scale"
    assert request.caller == Caller("jo", "7", ("a", "b"), {"k": ["v"]})
    assert request.namespace_labels == {"team": "t"}
    assert request.object == POD
    assert request.old_object == POD
    assert request.admission == ASKED


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b"null",
        b'{"request": []}',
        b"[" * 500 + b"]" * 500,
        b"[" * 5000,
    ],
)
def test_broken_review(data):
    with pytest.raises(LoadError):
        load_review(data)


@pytest.mark.parametrize(
    "change",
    [
        {"operation": "PATCH"},
        {"operation": None},
        {"operation": ["CREATE"]},
        {"object": "text"},
        {"kind": []},
        {"kind": {"kind": 1}},
        {"userInfo": []},
        {"userInfo": {"groups": "a"}},
        {"userInfo": {"groups": [1]}},
        {"uid": 1},
    ],
)
def test_odd_review(change):
    with pytest.raises(LoadError):
        build_review({**REVIEW, "request": {**ASKED, **change}})


@pytest.mark.parametrize(
    ("operation", "old", "new_object", "old_object"),
    [
        (Operation.CREATE, None, POD, None),
        (Operation.UPDATE, {"kind": "Old"}, POD, {"kind": "Old"}),
        (Operation.DELETE, None, None, POD),
        (Operation.DELETE, {"kind": "Old"}, None, {"kind": "Old"}),
    ],
)
def test_request_of_a_resource(operation, old, new_object, old_object):
    request = build_request(POD, operation=operation, old=old)
    assert request.kind == GroupVersionKind("", "v1", "Pod")
    assert (request.object, request.old_object) == (new_object, old_object)
    assert request.caller is None


@pytest.mark.parametrize(
    "resource", [None, [], "x", {}, {"kind": "Pod"}, {"apiVersion": 1, "kind": "Pod"}]
)
def test_not_a_resource(resource):
    with pytest.raises(LoadError):
        build_request(resource)
