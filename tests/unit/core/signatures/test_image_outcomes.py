"""What is known of images is kept for a while, and registries are left alone meanwhile."""

import pytest
from image_rules import HOST, ImageShop, by_key, make_pod, make_policy, signed_by
from signing import REVIEW, make_key, push_image

from lictor.core.evaluate.verify_images.outcome_cache import (
    ImageOutcome,
    OutcomeCache,
    OutcomeCacheSettings,
)
from lictor.core.model.result import Status

ALICE, BOB = make_key(), make_key()
V1 = f"{HOST}/app:v1"
GOOD, BAD = ImageOutcome(Status.PASS, "yes", "sha256:1"), ImageOutcome(Status.FAIL, "no")


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def shop(clock):
    return ImageShop(cache=OutcomeCache(clock=clock))


@pytest.mark.parametrize(
    ("outcome", "later", "is_known"),
    [
        (GOOD, 0, True),
        (GOOD, 3599, True),
        (GOOD, 3601, False),
        (BAD, 4, True),
        (BAD, 6, False),
    ],
)
def test_successes_are_kept_longer_than_failures(clock, outcome, later, is_known):
    cache = OutcomeCache(clock=clock)
    cache.keep("block", "image", outcome)
    clock.now = later
    assert (cache.find("block", "image") is outcome) is is_known
    assert cache.find("block", "other") is None
    assert cache.find("other", "image") is None


@pytest.mark.parametrize(
    "settings",
    [
        OutcomeCacheSettings(enabled=False),
        OutcomeCacheSettings(max_size=0),
        OutcomeCacheSettings(ttl=0),
    ],
)
def test_nothing_is_kept_where_nothing_shall_be(clock, settings):
    cache = OutcomeCache(settings, clock)
    cache.keep("block", "image", GOOD)
    assert cache.find("block", "image") is None


def calls_of(shop, policy, *images):
    before = len(shop.registries.calls)
    assert shop.judge(policy, make_pod(*images)).allowed
    return len(shop.registries.calls) - before


def test_a_verified_image_asks_nobody_again(shop, clock):
    image = shop.push("app", ALICE)
    policy = make_policy({"attestors": signed_by(by_key(ALICE))})
    assert calls_of(shop, policy, V1) > 0
    assert calls_of(shop, policy, V1) == 0
    assert calls_of(shop, policy, f"{V1}@{image.digest}") == 0
    assert calls_of(shop, policy, f"{HOST}/app@{image.digest}") == 0
    clock.now = 3601
    assert calls_of(shop, policy, V1) > 0


def test_one_request_asks_for_an_image_once(shop):
    """Both of its webhooks, also where the signature does not count."""
    shop.push("app", BOB)
    policy = make_policy({"attestors": signed_by(by_key(ALICE))})
    assert not shop.judge(policy, make_pod(V1, V1, V1)).allowed
    # The tag, the signatures' tag, the signature.
    assert len(shop.registries.calls) == 3


@pytest.mark.parametrize(
    "change",
    [
        {"attestors": signed_by(by_key(BOB))},
        {"attestors": signed_by(by_key(ALICE), by_key(BOB))},
        {"attestors": signed_by(by_key(ALICE, annotations={"env": "prod"}))},
        {"attestors": signed_by(by_key(ALICE)), "repository": f"{HOST}/elsewhere"},
        {"attestors": signed_by(by_key(ALICE)), "type": "SigstoreBundle"},
    ],
)
def test_what_one_policy_found_is_nothing_to_another(shop, change):
    shop.push("app", ALICE)
    assert calls_of(shop, make_policy({"attestors": signed_by(by_key(ALICE))}), V1) > 0
    assert not shop.judge(make_policy(change), make_pod(V1)).allowed


def test_use_cache_false_asks_every_time(shop):
    shop.push("app", ALICE)
    policy = make_policy({"attestors": signed_by(by_key(ALICE)), "useCache": False})
    assert calls_of(shop, policy, V1) == calls_of(shop, policy, V1) > 0


def test_a_tag_that_moves_is_seen_where_no_digest_is_written(shop):
    shop.push("app", ALICE)
    fields = {"mutateDigest": False, "verifyDigest": False}
    policy = make_policy({"attestors": signed_by(by_key(ALICE)), **fields})
    assert shop.judge(policy, make_pod(V1)).allowed
    push_image(shop.registries, f"{HOST}/app", "unsigned")
    assert not shop.judge(policy, make_pod(V1)).allowed


def test_a_tag_that_moves_still_runs_what_was_verified(shop):
    first = shop.push("app", ALICE)
    policy = make_policy({"attestors": signed_by(by_key(ALICE))})
    shop.judge(policy, make_pod(V1))
    push_image(shop.registries, f"{HOST}/app", "unsigned")
    verdict = shop.judge(policy, make_pod(V1))
    assert verdict.patched["spec"]["containers"][0]["image"] == f"{V1}@{first.digest}"


def test_a_signature_that_comes_later_counts_soon(shop, clock):
    image = shop.push("app")
    policy = make_policy({"attestors": signed_by(by_key(ALICE))})
    assert not shop.judge(policy, make_pod(V1)).allowed
    shop.sign(image, ALICE)
    clock.now = 6
    assert shop.judge(policy, make_pod(V1)).allowed


@pytest.mark.parametrize("name", ["request.object.metadata.name", "wanted"])
def test_what_depends_on_the_request_is_asked_for_each(shop, name):
    shop.attest(shop.push("app"), (ALICE, {"for": "web"}, REVIEW))
    conditions = [{"all": [{"key": "{{ for }}", "operator": "Equals", "value": f"{{{{ {name} }}}}"}]}]  # fmt: skip
    attestation = {
        "type": REVIEW,
        "attestors": signed_by(by_key(ALICE)),
        "conditions": conditions,
    }
    context = [{"name": "wanted", "variable": {"jmesPath": "request.object.metadata.name"}}]
    policy = make_policy({"attestations": [attestation]}, context=context)
    assert shop.judge(policy, make_pod(V1)).allowed
    other = make_pod(V1)
    other["metadata"]["name"] = "other"
    assert not shop.judge(policy, other).allowed
