"""`lictor verify` on what real cosign and notation made."""

import json

import pytest
from image_tools.scene import Scene

REVIEW = "https://example.com/review/v1"


@pytest.mark.parametrize("bundle", [False, True], ids=["tags", "bundle"])
def test_signatures_and_attestations_of_cosign(scene: Scene, *, bundle: bool) -> None:
    cosign, trusted = scene.signers.cosign, scene.signers.trusted
    cosign.sign(scene.image, trusted, "-a", "env=prod", bundle=bundle)
    cosign.sign(scene.image, scene.signers.stranger, bundle=bundle)
    cosign.attest(scene.image, trusted, REVIEW, {"score": 3}, bundle=bundle)
    key = ["--key", scene.write("key.pub", trusted.public), "--insecure-ignore-tlog"]
    code, printed = scene.verify(*key, "-a", "env=prod")
    assert (code, printed.splitlines()[-1]) == (0, "verified: 1 of 2 signatures count")
    code, printed = scene.verify(*key, "--attestation-type", REVIEW, "--format", "payload")
    assert code == 0
    assert json.loads(printed)["predicate"] == {"score": 3}
    code, printed = scene.verify(*key, "-a", "env=test", "--format", "json")
    assert code == 1
    assert [claim["accepted"] for claim in json.loads(printed)[0]["claims"]].count(True) == 1


@pytest.mark.parametrize("form", ["jws", "cose"])
def test_signatures_of_notation(scene: Scene, form: str) -> None:
    scene.signers.notation.sign(scene.image, "alice", form)
    root = scene.write("root.pem", scene.signers.authority.pem)
    other = scene.write("other.pem", scene.signers.mallory.chain)
    code, printed = scene.verify("--notary-certificate", root)
    assert code == 0
    assert "CN=alice" in printed
    code, printed = scene.verify("--notary-certificate", other)
    assert code == 1
    assert "does not lead to a trusted certificate" in printed


def test_nobody_trusted_is_nothing_verified(scene: Scene) -> None:
    scene.signers.cosign.sign(scene.image, scene.signers.trusted)
    code, printed = scene.verify()
    assert code == 1
    assert printed.splitlines()[-1].startswith("not verified: no trusted signer was given")
