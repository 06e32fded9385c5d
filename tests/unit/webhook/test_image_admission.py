"""verifyImages through both webhooks: what is verified is what is stored, and nobody is believed."""

import sys
from base64 import b64decode
from pathlib import Path

import orjson
import pytest
from serving import Bench, make_review, write_policies

sys.path.insert(0, str(Path(__file__).parents[1] / "core" / "signatures"))

from image_rules import HOST, ImageShop, by_key, make_pod, make_policy, signed_by
from signing import make_key, push_image

from lictor.core.assembly import compile_documents
from lictor.core.evaluate.verify_images.annotations import ANNOTATION, SCOPED_ANNOTATION
from lictor.core.evaluate.verify_images.outcome_cache import OutcomeCache
from lictor.core.lang.patch import compile_json_patch, parse_json_patch
from lictor.core.report.events import EventOptions, build_events
from lictor.kubernetes.metrics import METRICS
from lictor.webhook.counters import read_tables
from lictor.webhook.file_policies import FilePolicies
from lictor.webhook.guarded_lookups import GuardedLookups

ALICE, BOB = make_key(), make_key()
V1 = f"{HOST}/app:v1"


class ImagePolicies(FilePolicies):
    """Policies that may ask registries."""

    def __init__(self, folder, lookups, cache):
        super().__init__(folder)
        self._lookups, self._cache = lookups, cache

    def programs(self, policy):
        return compile_documents([policy.record], lookups=self._lookups, image_outcomes=self._cache)


class Worker:
    """One process of the webhook, with what it knows of images."""

    def __init__(self, folder, shop, **block):
        fields = {"attestors": signed_by(by_key(ALICE)), **block}
        write_policies(folder, make_policy(fields))
        guard = GuardedLookups(shop.lookups)
        self.bench = Bench(ImagePolicies(folder, guard, OutcomeCache()), guard=guard)

    def mutate(self, pod, **how):
        return self.bench.ask("/mutate/fail", make_image_review(pod, **how))

    def validate(self, pod, **how):
        return self.bench.ask("/validate/fail", make_image_review(pod, **how))


def make_image_review(pod, old=None):
    review = make_review(operation="UPDATE" if old else "CREATE")
    review["request"] |= {"object": pod, "oldObject": old}
    return review


def apply_patch(pod, response):
    return compile_json_patch(parse_json_patch(b64decode(response["patch"]).decode()))(pod)


@pytest.fixture
def shop():
    return ImageShop()


@pytest.fixture
def worker(tmp_path, shop):
    return Worker(tmp_path, shop)


def test_a_signed_image_gets_its_digest_and_is_stored(worker, shop):
    image = shop.push("app", ALICE)
    response = worker.mutate(make_pod(V1))
    assert response["allowed"]
    stored = apply_patch(make_pod(V1), response)
    assert stored["spec"]["containers"][0]["image"] == f"{V1}@{image.digest}"
    outcomes = orjson.loads(stored["metadata"]["annotations"][ANNOTATION])
    assert outcomes == {f"{HOST}/app@{image.digest}": "pass"}
    asked = len(shop.registries.calls)
    assert worker.validate(stored)["allowed"]
    assert len(shop.registries.calls) == asked


def test_another_worker_verifies_for_itself(tmp_path, worker, shop):
    shop.push("app", ALICE)
    stored = apply_patch(make_pod(V1), worker.mutate(make_pod(V1)))
    (tmp_path / "other").mkdir()
    asked = len(shop.registries.calls)
    assert Worker(tmp_path / "other", shop).validate(stored)["allowed"]
    assert len(shop.registries.calls) > asked


@pytest.mark.parametrize("signer", [BOB, None])
def test_an_image_that_nobody_trusted_signed_is_refused(worker, shop, signer):
    shop.push("app", *([signer] if signer else []))
    response = worker.mutate(make_pod(V1))
    assert not response["allowed"]
    assert "failed to verify image" in response["status"]["message"].replace("\n    ", " ")


def test_a_forged_annotation_is_refused_by_both(worker, shop):
    image = shop.push("app", BOB)
    pinned = f"{V1}@{image.digest}"
    claims = orjson.dumps({f"{HOST}/app@{image.digest}": "pass", V1: "pass"}).decode()
    forged = make_pod(pinned, annotations={ANNOTATION: claims})
    assert not worker.mutate(forged)["allowed"]
    # As if the mutating webhook had not been asked at all.
    assert not worker.validate(forged)["allowed"]
    old = make_pod("ghcr.io/acme/app:v1", annotations={ANNOTATION: claims})
    assert not worker.validate(forged, old=old)["allowed"]


def test_what_a_user_wrote_does_not_stay_beside_what_was_verified(worker, shop):
    image = shop.push("app", ALICE)
    claims = orjson.dumps({f"{HOST}/evil:v1": "pass"}).decode()
    pod = make_pod(V1, annotations={ANNOTATION: claims})
    stored = apply_patch(pod, worker.mutate(pod))
    outcomes = orjson.loads(stored["metadata"]["annotations"][ANNOTATION])
    assert outcomes == {f"{HOST}/app@{image.digest}": "pass"}


def test_a_scoped_outcome_that_a_user_wrote_is_removed(worker, shop):
    image = shop.push("app", ALICE)
    claims = {"version": 1, "policies": {"/images": {"signed": {f"{HOST}/evil:v1": "pass"}}}}
    pod = make_pod(V1, annotations={SCOPED_ANNOTATION: orjson.dumps(claims).decode()})
    stored = apply_patch(pod, worker.mutate(pod))
    expected = {f"{HOST}/app@{image.digest}": "pass"}
    outcomes = orjson.loads(stored["metadata"]["annotations"][SCOPED_ANNOTATION])
    assert outcomes == {"version": 1, "policies": {"/images": {"signed": expected}}}


def test_a_digest_that_was_changed_on_the_way_is_refused(worker, shop):
    shop.push("app", ALICE)
    stored = apply_patch(make_pod(V1), worker.mutate(make_pod(V1)))
    evil = push_image(shop.registries, f"{HOST}/app", "evil")
    stored["spec"]["containers"][0]["image"] = f"{V1}@{evil.digest}"
    assert not worker.validate(stored)["allowed"]


def test_a_tag_that_moved_in_between_is_refused_where_no_digest_is_written(tmp_path, shop):
    worker = Worker(tmp_path, shop, mutateDigest=False, verifyDigest=False)
    shop.push("app", ALICE)
    assert worker.mutate(make_pod(V1))["allowed"]
    push_image(shop.registries, f"{HOST}/app", "evil")
    assert not worker.validate(make_pod(V1))["allowed"]


def test_nothing_is_asked_about_other_images(worker, shop):
    shop.registries.down = True
    assert worker.mutate(make_pod("ghcr.io/acme/app:v1"))["allowed"]
    assert worker.validate(make_pod("ghcr.io/acme/app:v1"))["allowed"]
    assert not shop.registries.calls


def test_verifications_are_counted(worker, shop):
    shop.push("app", ALICE)
    assert worker.mutate(make_pod(V1))["allowed"]
    shop.push("other", BOB)
    assert not worker.mutate(make_pod(f"{HOST}/other:v1"))["allowed"]
    found = read_tables(worker.bench.counters.dump())
    assert found is not None
    results = {
        dict(zip(METRICS[name].labels, labels, strict=True))["rule_result"]
        for name, labels, _ in found.histograms
        if "imageVerify" in labels
    }
    assert results == {"pass", "fail"}


def test_a_refused_image_is_an_event_of_the_policy(shop):
    shop.push("app", BOB)
    verdict = shop.judge(make_policy({"attestors": signed_by(by_key(ALICE))}), make_pod(V1))
    events = build_events(verdict, EventOptions(blocked=True))
    assert {(event.reason, event.about.kind) for event in events} == {
        ("PolicyViolation", "ClusterPolicy")
    }
    assert any(f"failed to verify image {V1}" in event.message for event in events)
