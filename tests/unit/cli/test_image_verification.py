"""`verify` tells what lies beside an image, what counts of it, and why; nothing else is verified."""

import sys
from pathlib import Path

import orjson
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "core" / "signatures"))

from signing import (
    REVIEW,
    Layer,
    MemoryRegistries,
    make_attestation,
    make_bundle,
    make_key,
    make_message,
    make_payload,
    make_signature,
    make_statement,
    pem_of,
    push_bundle,
    push_image,
    push_layers,
)

from lictor.cli.image_verification import Demand, list_statements, verify_images
from lictor.cli.verification_demands import VerifyFlags, read_demand
from lictor.core.errors import LoadError, UsageError
from lictor.core.report.image_verification import render_verification, verifications_to_json
from lictor.core.signatures.records import SignedImage
from lictor.images.registries import TrustingRegistries

IMAGE = "registry.test/app:v1"
POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: signed}
spec:
  rules:
  - name: other
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {message: never, deny: {}}
  - name: by-key
    match: {any: [{resources: {kinds: [Pod]}}]}
    verifyImages:
    - imageReferences: [%s]
      mutateDigest: false
      verifyDigest: false
      attestors:
      - entries:
        - keys:
            publicKeys: |-
%s
            rekor: {ignoreTlog: true}
"""


class Site:
    """A registry with one image, keys in files, and someone who signs."""

    def __init__(self, folder: Path) -> None:
        self.registries = MemoryRegistries()
        self.image = push_image(self.registries)
        self.key, self.stranger = make_key(), make_key()
        self.folder = folder
        self.write("key.pub", pem_of(self.key))

    def write(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def sign(self, *keys, annotations=None) -> None:
        payload = make_payload(self.image, annotations)
        push_layers(self.registries, self.image, [make_signature(key, payload) for key in keys])

    def attest(self, key, predicate) -> None:
        layer = make_attestation(make_statement(self.image, predicate), key)
        push_layers(self.registries, self.image, [layer], suffix="att")

    def demand(self, **flags) -> Demand:
        key = str(self.folder / "key.pub")
        return read_demand(VerifyFlags(**{"key": key, "insecure_ignore_tlog": True, **flags}))

    def verify(self, demand: Demand | None = None, policy: str = "", rule: str = ""):
        wanted = self.demand() if demand is None else demand
        [told] = verify_images([IMAGE], wanted, self.registries, (policy,) if policy else (), rule)
        return told

    def write_policy(self, key, references: str = "'registry.test/*'") -> str:
        lines = "\n".join(f"              {line}" for line in pem_of(key).splitlines())
        return self.write("policy.yaml", POLICY % (references, lines))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_signature_by_the_key_counts_and_a_strangers_does_not(site: Site) -> None:
    site.sign(site.stranger, site.key)
    told = site.verify()
    assert told.is_verified
    assert [claim.is_accepted for claim in told.claims] == [False, True]
    text = "\n".join(render_verification(told))
    assert text.splitlines()[0] == f"{IMAGE} is {site.image.digest}"
    assert "it was not made by this key" in text
    assert "no transparency log was checked: --insecure-ignore-tlog" in text
    assert text.splitlines()[-1] == "verified: 1 of 2 signatures count"


@pytest.mark.parametrize(
    ("prepare", "summary"),
    [
        (lambda site: None, "there are no signatures"),
        (lambda site: site.sign(site.stranger), "none of 1 signatures counts"),
        (lambda site: setattr(site.registries, "down", True), "the registry does not answer"),
        (lambda site: site.registries.manifests.clear(), "registry.test/app has no v1"),
    ],
    ids=["unsigned", "stranger", "down", "absent"],
)
def test_what_is_not_proved_is_not_verified(site: Site, prepare, summary: str) -> None:
    prepare(site)
    told = site.verify()
    assert not told.is_verified
    assert told.summary == summary


def test_without_anyone_to_trust_all_is_listed_and_nothing_verified(site: Site) -> None:
    site.sign(site.key, annotations={"env": "prod"})
    site.attest(site.key, {"score": 3})
    told = site.verify(Demand())
    assert not told.is_verified
    assert "no trusted signer was given" in told.summary
    assert [(claim.kind, claim.verdicts) for claim in told.claims] == [
        ("signature", ()),
        ("attestation", ()),
    ]
    lines = list(render_verification(told))
    assert any("claims: annotation env=prod" in line for line in lines)
    assert any(f"claims: predicate type {REVIEW}" in line for line in lines)


def test_annotations_must_be_signed(site: Site) -> None:
    site.sign(site.key, annotations={"env": "prod"})
    assert site.verify(site.demand(annotations=("env=prod",))).is_verified
    refused = site.verify(site.demand(annotations=("env=test",)))
    assert not refused.is_verified
    assert "'test' is required" in refused.claims[0].verdicts[0].refused


def test_an_attestation_is_no_signature_nor_the_other_way_round(site: Site) -> None:
    site.attest(site.key, {"score": 3})
    assert not site.verify().is_verified
    demand = site.demand(attestation_type=REVIEW)
    told = site.verify(demand)
    assert told.is_verified
    [line] = list_statements(told, demand)
    assert b'"score":3' in line
    other = site.verify(site.demand(attestation_type="spdx"))
    assert not other.is_verified
    assert other.summary == "there are no attestations of type https://spdx.dev/Document"


def test_who_signed_the_sbom_has_not_signed_the_image(site: Site) -> None:
    digest = push_layers(
        site.registries, site.image, [Layer(b"{}", media_type="text/spdx+json")], suffix="sbom"
    )
    sbom = SignedImage(site.image.repository, digest)
    push_layers(site.registries, sbom, [make_signature(site.key, make_payload(sbom))])
    told = site.verify()
    assert [(claim.kind, claim.is_accepted) for claim in told.claims] == [
        ("SBOM", False),
        ("signature of the SBOM", True),
    ]
    assert (told.is_verified, told.summary) == (False, "there are no signatures")


def test_an_impossible_time_is_told_as_it_is(site: Site) -> None:
    payload = {"body": "", "integratedTime": 2**62, "logIndex": 0, "logID": ""}
    entry = orjson.dumps({"SignedEntryTimestamp": "", "Payload": payload}).decode()
    layer = make_signature(site.key, make_payload(site.image))
    layer.annotations["dev.sigstore.cosign/bundle"] = entry
    push_layers(site.registries, site.image, [layer])
    assert f"{2**62} seconds after 1970" in "\n".join(render_verification(site.verify()))


def test_a_signed_manifest_says_what_it_is_about(site: Site) -> None:
    manifest = site.registries.manifests[site.image.repository, site.image.digest].content
    push_bundle(site.registries, site.image, make_bundle(make_message(site.key, manifest)))
    told = site.verify()
    assert told.is_verified
    assert told.claims[0].about == (site.image.digest,)


def test_a_statement_of_a_stranger_is_not_printed(site: Site) -> None:
    site.attest(site.stranger, {"score": 3})
    demand = site.demand(attestation_type=REVIEW)
    told = site.verify(demand)
    assert not told.is_verified
    assert list(list_statements(told, demand)) == []


def test_json_tells_the_same(site: Site) -> None:
    site.sign(site.key)
    [made] = verifications_to_json([site.verify()])
    assert made["verified"] is True
    assert made["digest"] == site.image.digest
    [claim] = made["claims"]
    assert claim["accepted"] is True
    assert claim["says"]["about"] == [site.image.digest]
    assert "policies" not in made


def test_a_policy_says_why(site: Site) -> None:
    site.sign(site.key)
    told = site.verify(Demand(), site.write_policy(site.key))
    assert told.is_verified
    assert told.summary == "accepted by signed"
    [rule] = told.explanations[0].rules
    assert rule.rule == "by-key"
    [signer] = rule.signers
    assert signer.path == "attestors[0].entries[0].keys"
    assert site.image.digest.replace(":", "-") in signer.proved[0]
    refused = site.verify(Demand(), site.write_policy(site.stranger))
    assert not refused.is_verified
    assert refused.summary == "refused by signed"
    assert any(
        "✗ attestors[0].entries[0].keys: no matching signatures" in line
        for line in render_verification(refused)
    )


def test_a_policy_about_other_images_proves_nothing(site: Site) -> None:
    site.sign(site.key)
    told = site.verify(Demand(), site.write_policy(site.key, "'registry.test/other*'"))
    assert not told.is_verified
    assert told.summary == "no policy is about this image"


_NOTHING = {
    "expressions that verify nothing": """
apiVersion: policies.kyverno.io/v1
kind: ImageValidatingPolicy
metadata: {name: idle}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validationConfigurations: {required: false, verifyDigest: false, mutateDigest: false}
  attestors: [{name: a, cosign: {key: {data: unused}}}]
  validations: [{expression: "true"}]
""",
    "a block without attestors": """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: idle}
spec:
  rules:
  - name: idle
    match: {any: [{resources: {kinds: [Pod]}}]}
    verifyImages:
    - {imageReferences: ["*"], failureAction: Enforce, required: false, verifyDigest: false}
""",
}


@pytest.mark.parametrize("text", _NOTHING.values(), ids=_NOTHING)
def test_a_policy_that_verifies_nothing_does_not_accept(site: Site, text: str) -> None:
    told = site.verify(Demand(), site.write("idle.yaml", text))
    assert not told.is_verified
    assert told.summary == "refused by idle"
    words = ("unverified image", "is not verified: no policy performed")
    assert any(word in line for line in render_verification(told) for word in words)


def test_a_policy_in_cel_about_other_images_proves_nothing(site: Site) -> None:
    text = _NOTHING["expressions that verify nothing"]
    references = "  matchImageReferences: [{glob: 'registry.test/other*'}]\n"
    told = site.verify(Demand(), site.write("other.yaml", text + references))
    assert (told.is_verified, told.summary) == (False, "refused by idle")
    assert any("is not about this image" in line for line in render_verification(told))


@pytest.mark.parametrize("rule", ["other", "absent"])
def test_only_rules_that_verify_images_can_be_asked(site: Site, rule: str) -> None:
    with pytest.raises(UsageError, match="verifies images"):
        site.verify(Demand(), site.write_policy(site.key), rule)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"key": "a", "certificate": "b"}, "give one of --key"),
        ({"key": "a", "certificate_identity": "b"}, "give one of --key"),
        ({"certificate_identity": "me"}, "--certificate-oidc-issuer"),
        ({"certificate_oidc_issuer": "https://i.test"}, "--certificate-identity"),
        ({"annotations": ("env",)}, "NAME=VALUE"),
    ],
)
def test_contradictions_are_wrong_calls(flags, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_demand(VerifyFlags(**flags))


def test_several_keys_in_one_file_are_several_signers(site: Site) -> None:
    path = site.write("both.pub", pem_of(site.stranger) + pem_of(site.key))
    site.sign(site.key)
    told = site.verify(site.demand(key=path))
    assert told.is_verified
    assert [bool(verdict.refused) for verdict in told.claims[0].verdicts] == [True, False]


def test_a_file_that_is_no_text_is_named(site: Site) -> None:
    (site.folder / "key.der").write_bytes(b"\x30\x82\xff")
    with pytest.raises(LoadError, match=r"key\.der: is no text"):
        site.demand(key=str(site.folder / "key.der"))


def test_a_trust_root_in_a_file_stands_for_the_public_one(site: Site) -> None:
    assert TrustingRegistries(site.registries, b"mine").trusted_root("", b"") == b"mine"
