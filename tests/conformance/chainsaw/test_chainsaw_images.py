from base64 import b64decode, b64encode

import pytest
from chainsaw.signed_images import SignedImages

KEY = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"


@pytest.fixture(scope="module")
def images() -> SignedImages:
    made = SignedImages()
    made._address = "localhost:5000"
    return made


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ghcr.io/kyverno/zulu:v1", "localhost:5000/ghcr.io/kyverno/zulu:v1"),
        ("ghcr.io/*", "localhost:5000/ghcr.io/*"),
        ('{"ghcr.io/a@b":"pass"}', '{"localhost:5000/ghcr.io/a@b":"pass"}'),
        ("public.ecr.aws/docker/nginx", "localhost:5000/public.ecr.aws/docker/nginx"),
        # Other names, and those that have an address already.
        ("docker.io/library/nginx", "docker.io/library/nginx"),
        ("localhost:5000/ghcr.io/a", "localhost:5000/ghcr.io/a"),
        ("notghcr.io/a", "notghcr.io/a"),
    ],
)
def test_names_lead_to_our_registry(images: SignedImages, text: str, expected: str) -> None:
    assert images.rewrite({"image": [text]}) == {"image": [expected]}


def test_keys_certificates_and_secrets_are_ours(images: SignedImages) -> None:
    policy = images.rewrite({"key": f"a {KEY}", "cert": CERTIFICATE, "tsaCertChain": CERTIFICATE})
    assert "AAAA" not in str(policy)
    assert policy["key"].startswith("a -----BEGIN PUBLIC KEY-----")
    assert policy["tsaCertChain"] != policy["cert"]
    secret = images.rewrite({"kind": "Secret", "data": {"cosign.pub": b64encode(KEY.encode())}})
    assert b"AAAA" not in b64decode(secret["data"]["cosign.pub"])


def test_what_is_no_text_stays(images: SignedImages) -> None:
    body = {"kind": "Secret", "data": {"raw": "//79"}, "number": 3, "nothing": None}
    assert images.rewrite(body) == body
