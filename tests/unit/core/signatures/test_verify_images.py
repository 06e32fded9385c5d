"""Which images does a rule with verifyImages name, and whose signatures let them pass?"""

import fnmatch

import orjson
import pytest
from image_rules import HOST, NO_LOG, ImageShop, by_key, make_pod, make_policy, signed_by
from signing import REVIEW, make_key, make_payload, make_signature, pem_of, push_image, push_layers

from lictor.core.evaluate.verify_images.annotations import ANNOTATION, SCOPED_ANNOTATION
from lictor.core.evaluate.verify_images.outcome_cache import OutcomeCache
from lictor.core.model.request import Operation
from lictor.core.model.result import Status

ALICE, BOB = make_key(), make_key()
PASSED, FAILED = ["pass", "pass"], ["fail", "fail"]
V1 = f"{HOST}/app:v1"


@pytest.fixture
def shop():
    return ImageShop()


def image_of(verdict, number=0):
    return verdict.patched["spec"]["containers"][number]["image"]


# --- which images


@pytest.mark.parametrize(
    ("pattern", "image", "is_named"),
    [
        ("*", "nginx", True),
        ("docker.io/*", "nginx", True),
        ("docker.io/library/*", "nginx", True),
        ("nginx*", "nginx", False),
        ("docker.io/nginx:latest", "nginx", True),
        ("docker.io/nginx", "nginx", False),
        ("ghcr.io/acme/*", "ghcr.io/acme/team/app:v1", True),
        ("ghcr.io/acme/ap?:v1", "ghcr.io/acme/app:v1", True),
        ("ghcr.io/acme/app:v1", f"ghcr.io/acme/app:v1@sha256:{'0' * 64}", True),
        ("ghcr.io/acme/app:v1", f"ghcr.io/acme/app@sha256:{'0' * 64}", False),
        ("*@sha256:*", f"ghcr.io/acme/app:v1@sha256:{'0' * 64}", True),
    ],
)
def test_patterns_name_images(shop, pattern, image, is_named):
    block = {"imageReferences": [pattern], "mutateDigest": False, "required": False}
    assert bool(shop.ask(make_policy(block), image)) is is_named
    assert not shop.registries.calls


def test_nobody_is_asked_about_other_images(shop):
    policy = make_policy({"attestors": signed_by(by_key(ALICE))})
    assert shop.ask(policy, "ghcr.io/acme/app:v1") == []
    assert not shop.registries.calls


def test_a_name_that_cannot_be_read_is_an_error(shop):
    policy = make_policy({"attestors": signed_by(by_key(ALICE))})
    assert shop.ask(policy, "Not An Image") == ["error", "error"]


@pytest.mark.parametrize("blank", ["", " "])
def test_a_blank_is_no_image(shop, blank):
    policy = make_policy({"imageReferences": ["*"], "attestors": signed_by(by_key(ALICE))})
    assert shop.ask(policy, blank) == []


def test_a_rule_that_cannot_be_used_says_nothing_of_other_images(shop):
    keys = {"secret": {"name": "k", "namespace": "other"}}
    policy = make_policy({"attestors": signed_by({"keys": keys})}, kind="Policy")
    assert shop.ask(policy, V1) == ["error", "error"]
    assert shop.ask(policy, "ghcr.io/acme/app:v1") == []


@pytest.mark.parametrize(
    ("extractor", "spec"),
    [
        ({"path": "/spec/steps/*/image"}, {"steps": [{"image": V1}]}),
        ({"path": "/spec/steps/*", "value": "image"}, {"steps": [{"image": V1}]}),
        ({"path": "/spec/steps/*", "value": "image"}, {"steps": {"a/b~c": {"image": V1}}}),
        ({"path": "/spec/image"}, {"image": V1}),
        ({"path": "/spec/image", "jmesPath": "trim_prefix(@, 'docker://')"}, {"image": f"docker://{V1}"}),
    ],
)  # fmt: skip
def test_extractors_find_images_of_any_kind(shop, extractor, spec):
    shop.push("app", ALICE)
    changes = "jmesPath" not in extractor
    block = {
        "attestors": signed_by(by_key(ALICE)),
        "mutateDigest": changes,
        "verifyDigest": changes,
    }
    match = {"any": [{"resources": {"kinds": ["example.com/v1/Task"]}}]}
    task = {
        "apiVersion": "example.com/v1",
        "kind": "Task",
        "metadata": {"name": "t"},
        "spec": spec,
    }
    policy = make_policy(block, match=match, imageExtractors={"Task": [extractor]})
    verdict = shop.judge(policy, task)
    assert [result.status for result in verdict.results] == [Status.PASS, Status.PASS]
    assert ("@sha256:" in orjson.dumps(verdict.patched["spec"]).decode()) is changes


# --- whose signatures


@pytest.mark.parametrize(
    ("signers", "attestors", "expected"),
    [
        ([ALICE], signed_by(by_key(ALICE)), PASSED),
        ([BOB], signed_by(by_key(ALICE)), FAILED),
        ([], signed_by(by_key(ALICE)), FAILED),
        ([ALICE], signed_by(by_key(ALICE), by_key(BOB)), FAILED),
        ([ALICE, BOB], signed_by(by_key(ALICE), by_key(BOB)), PASSED),
        ([BOB], signed_by(by_key(ALICE), by_key(BOB), count=1), PASSED),
        ([BOB], signed_by(by_key(ALICE, BOB)), FAILED),
        ([BOB], signed_by(by_key(ALICE, BOB), count=1), PASSED),
        ([ALICE], [*signed_by(by_key(ALICE)), *signed_by(by_key(BOB))], FAILED),
        ([BOB], signed_by({"attestor": {"count": 1, "entries": [by_key(ALICE), by_key(BOB)]}}), PASSED),
        ([BOB], signed_by({"attestor": {"entries": [by_key(ALICE), by_key(BOB)]}}), FAILED),
        ([ALICE], signed_by({"keys": {"publicKeys": "no key", **NO_LOG}}), FAILED),
        ([ALICE], signed_by(by_key(ALICE), {"keys": {"kms": "awskms:///a", **NO_LOG}}), ["error", "fail"]),
        ([ALICE], signed_by(by_key(ALICE), {"keys": {"kms": "awskms:///a", **NO_LOG}}, count=1), PASSED),
    ],
)  # fmt: skip
def test_as_many_as_asked_must_have_signed(shop, signers, attestors, expected):
    shop.push("app", *signers)
    assert shop.ask(make_policy({"attestors": attestors}), V1) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"annotations": {"env": "prod"}}, PASSED),
        ({"annotations": {"env": "test"}}, FAILED),
        ({"annotations": {"env": "prod", "team": "red"}}, FAILED),
    ],
)
def test_annotations_are_those_that_were_signed(shop, fields, expected):
    shop.push("app", ALICE, annotations={"env": "prod"})
    policy = make_policy({"attestors": signed_by(by_key(ALICE, **fields))})
    assert shop.ask(policy, V1) == expected


def test_annotations_of_another_signature_do_not_count(shop):
    image = push_image(shop.registries, f"{HOST}/app", "app")
    payloads = [make_payload(image, {"env": "test"}), make_payload(image, {"env": "prod"})]
    layers = [make_signature(key, each) for key, each in zip((ALICE, BOB), payloads, strict=True)]
    push_layers(shop.registries, image, layers)
    policy = make_policy({"attestors": signed_by(by_key(ALICE, annotations={"env": "prod"}))})
    assert shop.ask(policy, V1) == FAILED


def test_signatures_may_lie_in_another_repository(shop):
    image = shop.push("app")
    layers = [make_signature(ALICE, make_payload(image))]
    push_layers(shop.registries, image, layers, repository=f"{HOST}/signatures")
    entry = by_key(ALICE, repository=f"{HOST}/signatures")
    assert shop.ask(make_policy({"attestors": signed_by(entry)}), V1) == PASSED
    assert shop.ask(make_policy({"attestors": signed_by(by_key(ALICE))}), V1) == FAILED


@pytest.mark.parametrize(
    ("kind", "secret", "expected"),
    [
        ("ClusterPolicy", {"name": "key", "namespace": "keys"}, PASSED),
        ("ClusterPolicy", {"name": "key", "namespace": "shop"}, ["error", "fail"]),
        ("Policy", {"name": "key", "namespace": "keys"}, ["error", "error"]),
    ],
)
def test_keys_of_secrets(shop, kind, secret, expected):
    shop.push("app", ALICE)
    shop.lookups.keep_key("keys", "key", ALICE)
    policy = make_policy(
        {"attestors": signed_by({"keys": {"secret": secret, **NO_LOG}})}, kind=kind
    )
    assert shop.ask(policy, V1) == expected


def test_keys_from_variables(shop):
    shop.push("app", ALICE)
    keys = {"publicKeys": "{{ trusted }}", **NO_LOG}
    context = [{"name": "trusted", "variable": {"value": pem_of(ALICE)}}]
    policy = make_policy({"attestors": signed_by({"keys": keys})}, context=context)
    assert shop.ask(policy, V1) == PASSED


def test_older_fields_beside_attestors(shop):
    shop.push("app", ALICE)
    # Such a key always wants the log.
    shop.registries.trust_roots[""] = b"{}"
    policy = make_policy({"imageReferences": [], "image": f"{HOST}/*", "key": pem_of(ALICE)})
    assert "pass" not in shop.ask(policy, V1)


def test_a_dead_registry_is_an_error(shop):
    shop.registries.down = True
    policy = make_policy({"attestors": signed_by(by_key(ALICE))})
    assert shop.ask(policy, V1) == ["error", "error", "fail"]


# --- digests, and what is required


def test_the_verified_digest_is_written(shop):
    image = shop.push("app", ALICE)
    verdict = shop.judge(make_policy({"attestors": signed_by(by_key(ALICE))}), make_pod(V1))
    assert image_of(verdict) == f"{V1}@{image.digest}"
    told = orjson.loads(verdict.patched["metadata"]["annotations"][ANNOTATION])
    assert told == {f"{HOST}/app@{image.digest}": "pass"}


def test_an_image_without_digest_is_told_by_its_tag(shop):
    shop.push("app", ALICE)
    block = {"attestors": signed_by(by_key(ALICE)), "mutateDigest": False, "verifyDigest": False}
    verdict = shop.judge(make_policy(block), make_pod(V1))
    assert image_of(verdict) == V1
    told = orjson.loads(verdict.patched["metadata"]["annotations"][ANNOTATION])
    assert told == {V1: "pass"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"mutateDigest": False}, ["fail", "pass"]),
        ({"mutateDigest": False, "verifyDigest": False}, PASSED),
        ({"mutateDigest": False, "verifyDigest": False, "required": False}, ["pass"]),
        ({"skipImageReferences": ["*"]}, ["skip", "skip"]),
        ({"skipImageReferences": [f"{HOST}/app:v1"]}, ["skip", "skip"]),
        ({"attestors": []}, ["fail", "pass"]),
        ({"attestors": [], "required": False}, PASSED),
    ],
)
def test_digests_and_required(shop, fields, expected):
    shop.push("app", ALICE)
    policy = make_policy({"attestors": signed_by(by_key(ALICE)), **fields})
    assert shop.ask(policy, V1) == expected


def test_a_free_tag_does_not_free_another_digest(shop):
    shop.push("app", ALICE)
    evil = push_image(shop.registries, f"{HOST}/app", "evil")
    # The tag means the first image again.
    shop.push("app", ALICE)
    block = {"attestors": signed_by(by_key(ALICE)), "skipImageReferences": [f"{HOST}/app:v1"]}
    assert shop.ask(make_policy(block), f"{V1}@{evil.digest}") == FAILED


ALIASES = [
    ("ghcr.io/acme/*", "GHCR.IO/acme/app:v1"),
    ("ghcr.io/acme/*", "ghcr.io:443/acme/app:v1"),
    ("docker.io/acme/*", "acme/app:v1"),
    ("docker.io/acme/*", "index.docker.io/acme/app:v1"),
    ("index.docker.io/acme/*", "registry-1.docker.io/acme/app:v1"),
    ("docker.io/nginx*", "docker.io/library/nginx:1"),
    ("docker.io/library/*", "nginx:1"),
]


@pytest.mark.parametrize(("pattern", "image"), ALIASES)
def test_another_name_of_an_image_is_included_and_not_skipped(shop, pattern, image):
    block = {"attestors": signed_by(by_key(ALICE)), "imageReferences": [pattern]}
    refused = ["error", *FAILED]
    assert shop.ask(make_policy(block), image) == refused
    # Whoever writes the name another way must not get what is free by it.
    block |= {"imageReferences": ["*"], "skipImageReferences": [pattern]}
    written = image if "/" in image and "." in image.partition("/")[0] else f"docker.io/{image}"
    is_same = fnmatch.fnmatchcase(written, pattern)
    assert shop.ask(make_policy(block), image) == (
        ["error", "fail", "skip"] if is_same else refused
    )


@pytest.mark.parametrize("claim", ["pass", "skip", "fail"])
def test_what_a_user_claims_is_not_believed(shop, claim):
    image = shop.push("app", BOB)
    claims = orjson.dumps({V1: claim, f"{HOST}/app@{image.digest}": claim}).decode()
    pod = make_pod(V1, annotations={ANNOTATION: claims})
    for block in ({"attestors": signed_by(by_key(ALICE))}, {"verifyDigest": False}):
        verdict = shop.judge(make_policy(block), pod)
        assert verdict.results[-1].status is Status.FAIL
        assert not verdict.allowed


def test_each_block_is_judged_by_its_own_outcome(shop):
    shop.push("app", ALICE)
    by_bob, by_alice = ({"attestors": signed_by(by_key(key))} for key in (BOB, ALICE))
    verdict = shop.judge(make_policy(by_bob, by_alice), make_pod(V1))
    assert verdict.results[-1].status is Status.FAIL


def test_all_blocks_mean_the_same_image_by_a_tag_that_moves(shop):
    first = shop.push("app", ALICE, BOB)
    blocks = [{"attestors": signed_by(by_key(key))} for key in (ALICE, BOB)]
    shop.ask(make_policy(blocks[0]), V1)  # known from now on, by its tag
    second = push_image(shop.registries, f"{HOST}/app", "moved")
    shop.sign(second, BOB)
    verdict = shop.judge(make_policy(*blocks), make_pod(V1))
    assert image_of(verdict) == f"{V1}@{first.digest}"
    assert verdict.allowed


# --- updates


PLAIN = {"attestors": signed_by(by_key(ALICE)), "verifyDigest": False, "mutateDigest": False}


def scoped(policy: str, rule: str, **images: str) -> dict[str, str]:
    whole = {"version": 1, "policies": {policy: {rule: images}}}
    return {SCOPED_ANNOTATION: orjson.dumps(whole).decode()}


@pytest.mark.parametrize(
    ("annotations", "allowed"),
    [
        ({}, False),
        ({ANNOTATION: orjson.dumps({V1: "pass"}).decode()}, False),
        (scoped("/images", "signed", **{V1: "pass"}), True),
        (scoped("/images", "signed", **{V1: "skip"}), True),
        (scoped("/images", "signed", **{V1: "fail"}), False),
        (scoped("/other", "signed", **{V1: "pass"}), False),
        (scoped("shop/images", "signed", **{V1: "pass"}), False),
        (scoped("/images", "other", **{V1: "pass"}), False),
        ({SCOPED_ANNOTATION: "no JSON"}, False),
        ({SCOPED_ANNOTATION: '{"version": 2, "policies": {"/images": {}}}'}, False),
    ],
)
def test_an_update_keeps_what_the_stored_object_was_accepted_with(shop, annotations, allowed):
    shop.push("app", BOB)
    policy, old = make_policy(PLAIN), make_pod(V1, annotations=annotations)
    verdict = shop.judge(policy, make_pod(V1), operation=Operation.UPDATE, old=old)
    assert verdict.allowed is allowed


def test_an_update_is_not_verified_again_after_its_own_annotation(shop):
    shop.push("app", ALICE)
    policy = make_policy({"attestors": signed_by(by_key(ALICE))})
    stored = shop.judge(policy, make_pod(V1)).patched
    shop.registries.manifests.clear()  # nothing can be looked up
    shop.cache = OutcomeCache()
    verdict = shop.judge(policy, stored, operation=Operation.UPDATE, old=stored)
    assert verdict.allowed


def test_an_object_on_its_way_out_can_be_changed(shop):
    shop.push("app", BOB)
    leaving = make_pod(V1)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    verdict = shop.judge(make_policy(PLAIN), leaving, operation=Operation.UPDATE, old=leaving)
    assert verdict.allowed


def test_a_changed_image_is_verified_on_update(shop):
    shop.push("app", BOB)
    policy = make_policy({"attestors": signed_by(by_key(ALICE))})
    old = make_pod("ghcr.io/acme/app:v1", annotations=scoped("/images", "signed", **{V1: "pass"}))
    verdict = shop.judge(policy, make_pod(V1), operation=Operation.UPDATE, old=old)
    assert not verdict.allowed


def test_an_annotation_is_no_way_around_on_update(shop):
    shop.push("app", BOB)
    policy = make_policy({"attestors": signed_by(by_key(ALICE))})
    claims = {ANNOTATION: orjson.dumps({V1: "pass"}).decode()}
    old = make_pod("ghcr.io/acme/app:v1", annotations=claims)
    verdict = shop.judge(
        policy, make_pod(V1, annotations=claims), operation=Operation.UPDATE, old=old
    )
    assert not verdict.allowed


# --- attestations


def attested(*entries, type_=REVIEW, **fields):
    return {"attestations": [{"type": type_, "attestors": signed_by(*entries), **fields}]}


APPROVED = [{"all": [{"key": "{{ approved }}", "operator": "Equals", "value": True}]}]


@pytest.mark.parametrize(
    ("made", "block", "expected"),
    [
        ([(ALICE, {}, REVIEW)], attested(by_key(ALICE)), PASSED),
        ([(BOB, {}, REVIEW)], attested(by_key(ALICE)), FAILED),
        ([], attested(by_key(ALICE)), FAILED),
        ([(ALICE, {}, "https://example.com/other")], attested(by_key(ALICE)), FAILED),
        ([(ALICE, {"approved": True}, REVIEW)], attested(by_key(ALICE), conditions=APPROVED), PASSED),
        ([(ALICE, {"approved": False}, REVIEW)], attested(by_key(ALICE), conditions=APPROVED), FAILED),
        ([(ALICE, {}, REVIEW)], attested(by_key(ALICE), conditions=APPROVED), FAILED),
        ([(ALICE, {"self": 1, "approved": True, "values": 2, "a b": 3}, REVIEW)],
         attested(by_key(ALICE), conditions=APPROVED), PASSED),
        ([(ALICE, {"self": 1, "approved": False}, REVIEW)],
         attested(by_key(ALICE), conditions=APPROVED), FAILED),
        ([(ALICE, {"approved": True}, REVIEW)],
         attested(by_key(ALICE), conditions=APPROVED, name="self"), PASSED),
        ([(ALICE, {"approved": True}, REVIEW), (ALICE, {"approved": False}, REVIEW)],
         attested(by_key(ALICE), conditions=APPROVED), FAILED),
        ([(ALICE, {"approved": True}, REVIEW), (BOB, {"approved": False}, REVIEW)],
         attested(by_key(ALICE), conditions=APPROVED), PASSED),
        ([(BOB, {}, REVIEW)], {"attestations": [{"type": REVIEW, "attestors": signed_by(by_key(ALICE, BOB), count=1)}]}, PASSED),
        ([(BOB, {}, REVIEW)], attested(by_key(ALICE, BOB)), FAILED),
        ([(BOB, {}, REVIEW)], attested({"attestor": {"count": 1, "entries": [by_key(ALICE), by_key(BOB)]}}), PASSED),
        ([(BOB, {}, REVIEW)], attested({"attestor": {"entries": [by_key(ALICE)]}}), FAILED),
        ([(ALICE, {}, REVIEW)], attested(by_key(ALICE, annotations={"env": "prod"})), FAILED),
        ([(ALICE, {}, REVIEW)], {"attestations": [{"type": REVIEW}]}, FAILED),
        ([(ALICE, {}, REVIEW)], {"attestations": [{"predicateType": REVIEW, "attestors": signed_by(by_key(ALICE))}]}, PASSED),
    ],
)  # fmt: skip
def test_attestations(shop, made, block, expected):
    shop.attest(shop.push("app"), *made)
    assert shop.ask(make_policy(block), V1) == expected


SCAN = "https://example.com/scan/v1"


def test_names_of_attestations_hold_the_attestation_of_their_type(shop):
    image = shop.push("app")
    shop.attest(image, (ALICE, {"approved": True}, REVIEW), (ALICE, {"high": 0}, SCAN))
    later = [{"all": [{"key": "{{ review.approved }}", "operator": "Equals", "value": True}]}]
    attestations = [
        {"type": REVIEW, "name": "review", "attestors": signed_by(by_key(ALICE))},
        {"type": SCAN, "name": "scan", "attestors": signed_by(by_key(ALICE)), "conditions": later},
    ]
    high = {"key": "{{ scan.high }}", "operator": "GreaterThan", "value": 0}
    deny = {"message": "no", "deny": {"conditions": {"any": [high]}}}
    policy = make_policy({"attestations": attestations, "validate": deny})
    assert shop.ask(policy, V1) == PASSED
    shop.attest(image, (ALICE, {"approved": True}, REVIEW), (ALICE, {"high": 3}, SCAN))
    shop.cache = type(shop.cache)()
    assert shop.ask(policy, V1) == FAILED


@pytest.mark.parametrize(("name", "expected"), [("web", FAILED), ("other", PASSED)])
def test_validate_is_asked_also_without_attestations(shop, name, expected):
    shop.push("app", ALICE)
    asked = {"key": "{{ request.object.metadata.name }}", "operator": "Equals", "value": name}
    validate = {"message": "no", "deny": {"conditions": {"any": [asked]}}}
    block = {"attestors": signed_by(by_key(ALICE)), "validate": validate}
    assert shop.ask(make_policy(block), V1) == expected
