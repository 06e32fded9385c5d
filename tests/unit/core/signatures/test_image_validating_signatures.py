"""ImageValidatingPolicy with real signatures in a registry in memory."""

import json
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace
from private_sigstore import ALICE, ISSUER, PrivateSigstore
from signing import (
    REVIEW,
    MemoryRegistries,
    make_attestation,
    make_key,
    make_payload,
    make_signature,
    make_statement,
    pem_of,
    push_image,
    push_layers,
)
from stored_signatures import store_signature

from lictor.core.assembly import compile_documents
from lictor.core.engine import Engine
from lictor.core.families.kyverno_cel.autogen import describe_match
from lictor.core.load.policies import load_documents
from lictor.core.model.request import Operation, Request
from lictor.core.ports import NoLookups
from lictor.core.signatures.records import SignedImage

APP = "registry.test/app:v1"
OTHER = "registry.test/other:v1"
OFF = {"mutateDigest": False, "verifyDigest": False, "required": False}
SIGNED = "images.containers.all(i, verifyImageSignatures(i, [attestors.team]) > 0)"
ATTESTED = "images.containers.all(i, verifyAttestationSignatures(i, attestations.review, [attestors.team]) > 0)"
APPROVED = "images.containers.all(i, extractPayload(i, attestations.review).predicate.approved)"


@dataclass
class RegistryLookups(NoLookups):
    registry: MemoryRegistries = field(default_factory=MemoryRegistries)

    def registries(self) -> MemoryRegistries:
        return self.registry


@dataclass
class Scene:
    """Two images, one of them signed, and two keys."""

    registry: MemoryRegistries
    app: SignedImage
    other: SignedImage
    team: object
    stranger: object

    def policy(self, *expressions: str, **spec: object) -> dict[str, object]:
        return {
            "apiVersion": "policies.kyverno.io/v1",
            "kind": "ImageValidatingPolicy",
            "metadata": {"name": "p"},
            "spec": {
                "matchConstraints": {"resourceRules": [_PODS]},
                "matchImageReferences": [{"glob": "registry.test/*"}],
                "attestors": [self.attestor("team", self.team), self.attestor("stranger", self.stranger)],
                "attestations": [{"name": "review", "intoto": {"type": REVIEW}}],
                "validationConfigurations": OFF,
                "validations": [{"expression": text} for text in expressions],
                **spec,
            },
        }  # fmt: skip

    def attestor(self, name: str, signer: object, **cosign: object) -> dict[str, object]:
        log = {"insecureIgnoreTlog": True, "insecureIgnoreSCT": True}
        return {"name": name, "cosign": {"key": {"data": pem_of(signer)}, "ctlog": log, **cosign}}

    def compile(self, *documents: object) -> Engine:
        loaded = load_documents("\n---\n".join(map(json.dumps, documents)), "p.yaml")
        assert not loaded.problems
        return Engine(compile_documents(loaded.records, lookups=RegistryLookups(self.registry)))

    def judge(self, document: object, subject: object, *others: object):
        return self.compile(document, *others).evaluate(subject)

    def status(self, document: object, subject: object, *others: object) -> str:
        (result,) = self.judge(document, subject, *others).results
        return str(result.status)


_PODS = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["pods"],
}


@pytest.fixture
def scene() -> Scene:
    registry = MemoryRegistries()
    app = push_image(registry)
    other = push_image(registry, "registry.test/other", "two")
    team, stranger = make_key(), make_key()
    payload = make_payload(app, {"env": "prod"})
    push_layers(registry, app, [make_signature(team, payload)])
    return Scene(registry, app, other, team, stranger)


def pod(*images: str, **metadata: object) -> dict[str, object]:
    containers = [{"name": f"c{i}", "image": image} for i, image in enumerate(images)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", **metadata},
        "spec": {"containers": containers},
    }


# --- signatures


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        ([APP], "pass"),
        ([OTHER], "fail"),
        ([APP, OTHER], "fail"),
        # Not what the policy is about.
        (["elsewhere.test/x:1"], "pass"),
        (["registry.test/missing:v1"], "error"),
    ],
)
def test_signatures_by_a_key(scene, images, expected):
    assert scene.status(scene.policy(SIGNED), pod(*images)) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("images.containers.all(i, verifyImageSignatures(i, [attestors.stranger]) > 0)", "fail"),
        ("images.containers.all(i, verifyImageSignatures(i, [attestors.team, attestors.stranger]) == 1)", "pass"),
        ("images.containers.all(i, verifyImageSignatures(i, []) == 0)", "pass"),
        ("images.containers.all(i, verifyImageSignatures(i, [{'name': 'nobody'}]) > 0)", "error"),
        ("images.containers.all(i, verifyImageSignatures(i, ['team']) > 0)", "error"),
    ],
)  # fmt: skip
def test_attestors_are_those_of_the_policy(scene, expression, expected):
    assert scene.status(scene.policy(expression), pod(APP)) == expected


def test_conditions_do_not_verify(scene):
    condition = {"name": "c", "expression": SIGNED.replace("images.containers", f"['{APP}']")}
    condition["expression"] = condition["expression"].replace("attestors.team", "{'name': 'team'}")
    (result,) = scene.judge(scene.policy("true", matchConditions=[condition]), pod(APP)).results
    assert str(result.status) == "error"
    assert "verified in validations" in result.message


def test_a_key_may_come_from_an_expression(scene):
    attestor = {"name": "team", "cosign": scene.attestor("team", scene.team)["cosign"]}
    attestor["cosign"]["key"] = {"expression": "variables.key"}
    variables = [{"name": "key", "expression": json.dumps(pem_of(scene.team))}]
    document = scene.policy(SIGNED, attestors=[attestor], variables=variables)
    assert scene.status(document, pod(APP)) == "pass"


@pytest.mark.parametrize(("wanted", "expected"), [("prod", "pass"), ("test", "fail")])
def test_annotations_are_those_that_were_signed(scene, wanted, expected):
    attestor = scene.attestor("team", scene.team, annotations={"env": wanted})
    document = scene.policy(SIGNED, attestors=[attestor])
    assert scene.status(document, pod(APP)) == expected


def test_signatures_in_another_repository(scene):
    place = "registry.test/signatures"
    payload = make_payload(scene.other)
    push_layers(
        scene.registry, scene.other, [make_signature(scene.team, payload)], repository=place
    )
    attestor = scene.attestor("team", scene.team, source={"repository": place})
    document = scene.policy(SIGNED, attestors=[attestor])
    assert scene.status(document, pod(OTHER)) == "pass"
    assert scene.status(document, pod(APP)) == "fail"


def test_a_failure_says_why_signatures_do_not_count(scene):
    (result,) = scene.judge(scene.policy(SIGNED), pod(OTHER)).results
    assert result.message == (
        f"CEL expression validation failed at index 0: {OTHER}, team: no signatures found"
    )
    assert result.properties == {f"verify {OTHER}, team": "no signatures found"}


def test_the_words_of_the_author_are_kept(scene):
    validation = {"expression": SIGNED, "message": "sign it"}
    (result,) = scene.judge(scene.policy(validations=[validation]), pod(OTHER)).results
    assert result.message == "sign it"
    assert result.properties == {f"verify {OTHER}, team": "no signatures found"}


def test_a_registry_that_is_down_is_an_error(scene):
    scene.registry.down = True
    (result,) = scene.judge(scene.policy(SIGNED), pod(APP)).results
    assert (str(result.status), result.rule) == ("error", "evaluation")
    assert "does not answer" in result.message


def test_one_evaluation_asks_for_the_same_thing_once(scene):
    scene.judge(scene.policy(SIGNED, SIGNED), pod(APP))
    assert len(scene.registry.calls) == len(set(scene.registry.calls))


# --- attestations


@pytest.mark.parametrize(
    ("expressions", "expected"),
    [
        ([ATTESTED], "pass"),
        ([ATTESTED, APPROVED], "pass"),
        # Nothing is read that was not verified.
        ([APPROVED], "error"),
        ([SIGNED, APPROVED], "error"),
        ([ATTESTED.replace("review", "nothing")], "error"),
    ],
)
def test_attestations(scene, expressions, expected):
    statement = make_statement(scene.app, {"approved": True})
    push_layers(scene.registry, scene.app, [make_attestation(statement, scene.team)], suffix="att")
    assert scene.status(scene.policy(*expressions), pod(APP)) == expected


@pytest.mark.parametrize("change", ["key", "type", "subject", "answer"])
def test_attestations_that_do_not_count(scene, change):
    about = scene.other if change == "subject" else scene.app
    kind = "https://example.com/other" if change == "type" else REVIEW
    statement = make_statement(about, {"approved": change != "answer"}, kind)
    key = scene.stranger if change == "key" else scene.team
    push_layers(scene.registry, scene.app, [make_attestation(statement, key)], suffix="att")
    assert scene.status(scene.policy(ATTESTED, APPROVED), pod(APP)) == "fail"


# --- what is done with every image


def test_digests_are_written_and_nothing_is_told_of_it(scene):
    verdict = scene.judge(scene.policy(SIGNED, validationConfigurations={}), pod(APP))
    assert [str(result.status) for result in verdict.results] == ["pass"]
    assert verdict.patched["spec"]["containers"][0]["image"] == f"{APP}@{scene.app.digest}"


def test_only_fields_of_images_get_digests(scene):
    subject = pod(APP, labels={"image": APP})
    subject["spec"]["containers"][0]["env"] = [{"name": "IMAGE", "value": APP}]
    patched = scene.judge(scene.policy(SIGNED, validationConfigurations={}), subject).patched
    assert patched["metadata"] == subject["metadata"]
    assert patched["spec"]["containers"][0]["env"] == [{"name": "IMAGE", "value": APP}]


@pytest.mark.parametrize(
    ("configuration", "expression", "expected"),
    [
        ({"mutateDigest": False}, SIGNED, "fail"),
        ({"mutateDigest": False, "verifyDigest": False}, SIGNED, "pass"),
        ({"mutateDigest": True, "verifyDigest": True}, SIGNED, "pass"),
        ({}, "true", "fail"),
        ({"required": False}, "true", "pass"),
        # Asked for, and not granted.
        ({}, "images.containers.all(i, verifyImageSignatures(i, [attestors.stranger]) == 0)", "fail"),
    ],
)  # fmt: skip
def test_validation_configurations(scene, configuration, expression, expected):
    document = scene.policy(expression, validationConfigurations=configuration)
    assert scene.status(document, pod(APP)) == expected


@pytest.mark.parametrize(
    ("configuration", "expression", "message"),
    [
        # Before any expression.
        ({"mutateDigest": False}, "1 / 0 == 1", f"image {APP} does not have a digest"),
        ({"verifyDigest": False, "mutateDigest": False}, "true", f"image {APP} is not verified: no policy performed a signature or attestation check on it; "),
        ({"verifyDigest": False, "mutateDigest": False}, "images.containers.all(i, verifyImageSignatures(i, [attestors.stranger]) == 0)", f"image {APP} failed signature or attestation verification"),
    ],
)  # fmt: skip
def test_images_that_are_not_verified_get_the_texts_of_kyverno(
    scene, configuration, expression, message
):
    document = scene.policy(expression, validationConfigurations=configuration)
    (result,) = scene.judge(document, pod(APP)).results
    assert str(result.status) == "fail"
    assert result.message.startswith(message)


# --- keyless signatures, with a trust root in the policy


def _by_alice(**keyless: object) -> dict[str, object]:
    return {"keyless": {"identities": [{"issuer": ISSUER, "subject": ALICE}], **keyless}}


def _root(text: str) -> dict[str, object]:
    return {"trustedRoot": {"value": text}}


EXPRESSION = {"issuer": ISSUER, "subjectExpression": "object.metadata.annotations.signer"}


@pytest.mark.parametrize(
    ("cosign", "expected"),
    [
        (_by_alice(), "pass"),
        (_by_alice(additionalExtensions={"githubWorkflowName": "release"}), "fail"),
        (_by_alice(identities=[{"issuer": ISSUER, "subject": "mallory@example.test"}]), "fail"),
        (_by_alice(identities=[EXPRESSION]), "pass"),
        (_by_alice(identities=[{**EXPRESSION, "subjectExpression": "'mallory@example.test'"}]), "fail"),
        # Empty would accept every signer.
        (_by_alice(identities=[{**EXPRESSION, "subjectExpression": "''"}]), "error"),
        (_by_alice(identities=[{**EXPRESSION, "subject": ALICE}]), "error"),
        ({**_by_alice(), **_root(" ")}, "error"),
        ({**_by_alice(), **_root("no JSON")}, "error"),
        ({**_by_alice(), "trustedRoot": {"expression": "''"}}, "error"),
        ({**_by_alice(), **_root(" " * 1024 * 1024 + "{}")}, "error"),
    ],
)  # fmt: skip
def test_a_trust_root_of_the_policy(scene, cosign, expected):
    sigstore = PrivateSigstore()
    push_layers(
        scene.registry, scene.app, [store_signature(sigstore.sign(make_payload(scene.app)))]
    )
    attestor = {"name": "team", "cosign": {**_root(sigstore.trusted_root().decode()), **cosign}}
    document = scene.policy(SIGNED, attestors=[attestor])
    assert scene.status(document, pod(APP, annotations={"signer": ALICE})) == expected


def _update(before: dict[str, object], after: dict[str, object]) -> Request:
    return replace(Request.of(after), operation=Operation.UPDATE, old_object=before)


def test_a_pod_that_runs_is_not_started_anew_for_a_digest(scene):
    document = scene.policy(SIGNED, validationConfigurations={})
    labelled = pod(APP, labels={"a": "b"})
    verdict = scene.judge(document, _update(pod(APP), labelled))
    assert [str(result.status) for result in verdict.results] == ["pass"]
    assert verdict.patched == labelled
    # What runs must be signed all the same, and what is new gets its digest.
    assert scene.status(document, _update(pod(OTHER), pod(OTHER))) == "fail"
    changed = scene.judge(document, _update(pod(OTHER), pod(APP))).patched
    assert changed["spec"]["containers"][0]["image"] == f"{APP}@{scene.app.digest}"


def test_a_digest_does_not_get_around_a_reference_with_a_tag(scene):
    document = scene.policy(SIGNED, matchImageReferences=[{"glob": "*:v1"}])
    assert scene.status(document, pod(f"{OTHER}@{scene.other.digest}")) == "fail"


def test_the_digest_counts_and_not_where_the_tag_leads(scene):
    pinned = f"registry.test/app:latest@{scene.app.digest}"
    assert scene.status(scene.policy(SIGNED), pod(pinned)) == "pass"
    swapped = f"registry.test/app:v1@{scene.other.digest}"
    assert scene.status(scene.policy(SIGNED), pod(swapped)) == "fail"


def test_an_annotation_of_a_user_is_not_believed(scene):
    outcome = {"name": "p", "ruleType": "ImageVerify", "status": "pass"}
    annotations = {
        "kyverno.io/image-verification-outcomes": json.dumps({"p": outcome}),
        "kyverno.io/verify-images": json.dumps({OTHER: "pass"}),
    }
    document = scene.policy(SIGNED, validationConfigurations={})
    assert scene.status(document, pod(OTHER, annotations=annotations)) == "fail"


# --- what is remembered


def _statuses(engine: Engine, *images: str) -> list[str]:
    return [str(result.status) for result in engine.evaluate(pod(*images)).results]


def test_what_was_verified_is_not_asked_for_again(scene):
    engine = scene.compile(scene.policy(SIGNED, validationConfigurations={}))
    assert _statuses(engine, APP) == ["pass"]
    scene.registry.calls.clear()
    assert _statuses(engine, APP) == ["pass"]
    assert scene.registry.calls == []


def test_payloads_are_remembered_with_what_was_verified(scene):
    statement = make_statement(scene.app, {"approved": True})
    push_layers(scene.registry, scene.app, [make_attestation(statement, scene.team)], suffix="att")
    engine = scene.compile(scene.policy(ATTESTED, APPROVED, validationConfigurations={}))
    assert _statuses(engine, APP) == ["pass"]
    scene.registry.down = True
    assert _statuses(engine, APP) == ["pass"]


def test_what_one_attestor_signed_says_nothing_of_another(scene):
    document = scene.policy(SIGNED, validationConfigurations={})
    swapped = scene.policy(
        SIGNED,
        attestors=[scene.attestor("team", scene.stranger)],
        validationConfigurations={},
    )
    swapped["metadata"] = {"name": "other"}
    assert _statuses(scene.compile(document, swapped), APP) == ["pass", "fail"]


def test_a_tag_that_moves_is_noticed_where_no_digest_is_written(scene):
    engine = scene.compile(scene.policy(SIGNED))
    assert _statuses(engine, APP) == ["pass"]
    moved = push_image(scene.registry, seed="another")
    assert moved.digest != scene.app.digest
    assert _statuses(engine, APP) == ["fail"]


# --- exceptions


def _exception(**spec: object) -> dict[str, object]:
    refs = [{"name": "p", "kind": "ImageValidatingPolicy"}]
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "PolicyException",
        "metadata": {"name": "e", "namespace": "default"},
        "spec": {"policyRefs": refs, **spec},
    }


ALLOWING = "images.containers.all(i, i in exceptions.allowedImages || verifyImageSignatures(i, [attestors.team]) > 0)"


@pytest.mark.parametrize(
    ("exception", "expected"),
    [
        (_exception(), "skip"),
        (_exception(images=[OTHER]), "pass"),
        (_exception(images=[APP]), "fail"),
        (_exception(images=[OTHER], matchConditions=[{"name": "c", "expression": "false"}]), "fail"),
    ],
)  # fmt: skip
def test_exceptions(scene, exception, expected):
    document = scene.policy(ALLOWING, validationConfigurations={"mutateDigest": False})
    subject = pod(f"{APP}@{scene.app.digest}", OTHER)
    assert scene.status(document, subject, exception) == expected


# --- what is wrong with a policy


@pytest.mark.parametrize(
    ("attestor", "message"),
    [
        ({"cosign": {}}, "expected exactly one of key, keyless, certificate, found none"),
        ({}, "either cosign or notary must be set"),
        ({"cosign": {"key": {}}}, "expected one of data, kms, expression"),
        ({"cosign": {"keyless": {"identities": [{}]}}}, "would accept everyone"),
        ({"cosign": {"keyless": {"identities": []}}}, "would accept everyone"),
        ({"cosign": {"certificate": {}}}, "cert or certChain is missing"),
        ({"cosign": {"key": {"data": "k"}, "tuf": {"root": {"path": "/root.json"}}}}, "put the root metadata into root.data"),
        ({"cosign": {"key": {"data": "k"}, "tuf": {"root": {"data": "?"}}}}, "expected JSON, or JSON in base64"),
        ({"notary": {}}, "certs are missing"),
        ({"notary": {"certs": {}}}, "either value or expression must be set"),
    ],
)  # fmt: skip
def test_attestors_that_say_nothing(scene, attestor, message):
    document = scene.policy(SIGNED, attestors=[{"name": "team", **attestor}])
    (result,) = scene.judge(document, pod(APP)).results
    assert str(result.status) == "error"
    assert message in result.message


def test_an_empty_identity_is_enough_with_an_authority_of_ones_own(scene):
    keyless = {"identities": [{}], "roots": "rubbish"}
    attestor = {"name": "team", "cosign": {"keyless": keyless}}
    (result,) = scene.judge(scene.policy(SIGNED, attestors=[attestor]), pod(APP)).results
    assert "would accept everyone" not in result.message
    assert str(result.status) in ("fail", "error")


def test_an_identity_can_be_shown_to_expressions(scene):
    identity = {"issuer": "https://a", "subject": "b"}
    attestor = {"name": "team", "cosign": {"keyless": {"identities": [identity]}}}
    expression = "attestors.team.cosign.keyless.identities[0].subject == 'b'"
    document = scene.policy(expression, attestors=[attestor])
    assert scene.status(document, pod(APP)) == "pass"


def test_a_key_that_is_none_vouches_for_nothing(scene):
    attestor = scene.attestor("team", scene.team, key={"data": "rubbish"})
    (result,) = scene.judge(scene.policy(SIGNED, attestors=[attestor]), pod(APP)).results
    assert str(result.status) == "fail"


@pytest.mark.parametrize(
    ("reference", "image"),
    [
        ({"glob": "ghcr.io/acme/*"}, "GHCR.IO/acme/app:v1"),
        ({"glob": "ghcr.io/acme/*"}, "ghcr.io:443/acme/app:v1"),
        ({"glob": "docker.io/*"}, "nginx:1"),
        ({"glob": "docker.io/library/*"}, "index.docker.io/nginx:1"),
        ({"expression": "ref.startsWith('ghcr.io/')"}, "ghcr.IO/acme/app:v1"),
        ({"expression": "ref.startsWith('docker.io/')"}, "registry-1.docker.io/acme/app:v1"),
    ],
)
def test_another_name_of_an_image_is_included(scene: Scene, reference, image: str) -> None:
    expression = "images.containers.size() == 0"
    policy = scene.policy(expression, matchImageReferences=[reference])
    assert scene.status(policy, pod(image)) == "fail"


def test_an_expression_may_leave_images_out(scene: Scene) -> None:
    reference = {"expression": "!ref.startsWith('docker.io/')"}
    policy = scene.policy("images.containers.size() == 0", matchImageReferences=[reference])
    assert scene.status(policy, pod("docker.io/acme/app:v1")) == "pass"


@pytest.mark.parametrize("operations", [["CREATE"], ["CREATE", "UPDATE"], ["*"]])
@pytest.mark.parametrize(("image", "allowed"), [(APP, True), (OTHER, False)])
def test_debug_containers_are_verified(scene: Scene, operations, image: str, *, allowed) -> None:
    rule = {**_PODS, "operations": operations}
    constraints = {"resourceRules": [rule]}
    policy = scene.policy(
        "images.containers.all(i, verifyImageSignatures(i, [attestors.team]) > 0) && "
        "images.ephemeralContainers.all(i, verifyImageSignatures(i, [attestors.team]) > 0)",
        matchConstraints=constraints,
        validationActions=["Deny"],
    )
    before = pod(APP)
    debugged = {**before, "spec": {**before["spec"], "ephemeralContainers": [{"image": image}]}}
    update = Request.of(debugged, operation="UPDATE", old=before)
    verdict = scene.judge(policy, replace(update, subresource="ephemeralcontainers"))
    assert verdict.results
    assert verdict.allowed is allowed
    # Other subresources are none of its business.
    assert not scene.judge(policy, replace(update, subresource="status")).results


def test_debug_containers_of_pods_that_are_left_out(scene: Scene) -> None:
    left_out = {**_PODS, "resourceNames": ["p"]}
    constraints = {"resourceRules": [_PODS], "excludeResourceRules": [left_out]}
    policy = scene.policy("false", matchConstraints=constraints)
    before = pod(APP)
    before["metadata"]["name"] = "p"
    update = Request.of(before, operation="UPDATE", old=before)
    assert not scene.judge(policy, replace(update, subresource="ephemeralcontainers")).results


def test_the_webhook_hears_of_debug_containers(scene: Scene) -> None:
    loaded = load_documents(json.dumps(scene.policy("true")), "p.yaml")
    match = describe_match(loaded.records[0])
    assert [(each.operations, each.resources) for each in match.constraints.resource_rules] == [
        (("CREATE", "UPDATE"), ("pods",)),
        (("UPDATE",), ("pods/ephemeralcontainers",)),
    ]
