"""Requests are signed as in Amazon's published examples."""

import hashlib
from datetime import UTC, datetime

import pytest

from lictor.images.cloud_providers import AmazonKeys, CloudRequest, sign

# The keys of the published examples.
IDENTIFIER, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"


@pytest.mark.parametrize(
    ("method", "target", "headers", "body", "signature"),
    [
        pytest.param(
            "GET", "/test.txt", {"range": "bytes=0-9"}, b"",
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41", id="GET Object",
        ),
        pytest.param(
            "PUT", "/test%24file.text",
            {"date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY"},
            b"Welcome to Amazon S3.",
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd", id="PUT Object",
        ),
        pytest.param(
            "GET", "/?lifecycle", {}, b"",
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543", id="GET Lifecycle",
        ),
        pytest.param(
            "GET", "/?prefix=J&max-keys=2", {}, b"",
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7", id="List Objects",
        ),
    ],
)  # fmt: skip
def test_amazons_published_examples(
    method: str, target: str, headers: dict[str, str], body: bytes, signature: str
) -> None:
    digest = hashlib.sha256(body).hexdigest()
    request = CloudRequest(
        method,
        f"https://examplebucket.s3.amazonaws.com{target}",
        {**headers, "x-amz-content-sha256": digest},
        body,
    )
    moment = datetime(2013, 5, 24, tzinfo=UTC)
    signed = sign(request, AmazonKeys(IDENTIFIER, SECRET), "us-east-1", "s3", moment)
    assert signed.headers["authorization"].endswith(f"Signature={signature}")
