"""Credentials from clouds: what is sent to whom, and what is told where there are none."""

import json
from base64 import b64encode
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from registry_server import RegistryServer

from lictor.core.errors import LookupFailedError
from lictor.core.raw import Json
from lictor.images.cloud_providers import (
    AmazonKeys,
    CloudLogin,
    CloudProviders,
    CloudRequest,
    send,
    sign,
)

_ECR = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"


class _Cloud:
    """Answers in turn, and notes what it was asked."""

    def __init__(self, *answers: Json) -> None:
        self._answers = list(answers)
        self.asked: list[CloudRequest] = []

    def __call__(self, request: CloudRequest) -> tuple[int, bytes]:
        self.asked.append(request)
        return 200, json.dumps(self._answers.pop(0)).encode()


def test_amazons_signature_is_that_of_its_published_example() -> None:
    """The case `get-vanilla` of Amazon's test suite."""
    keys = AmazonKeys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
    request = CloudRequest("GET", "https://example.amazonaws.com/")
    moment = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)
    signed = sign(request, keys, "us-east-1", "service", moment)
    assert signed.headers["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        "SignedHeaders=host;x-amz-date, "
        "Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
    )
    assert "wJalr" not in repr(keys)


_TOKEN = {"authorizationData": [{"authorizationToken": b64encode(b"AWS:pass").decode()}]}


def test_amazon_with_keys() -> None:
    cloud = _Cloud(_TOKEN)
    environment = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key"}
    assert CloudProviders(environment, cloud).find("amazon", _ECR) == CloudLogin("AWS", "pass")
    (request,) = cloud.asked
    assert request.url == "https://api.ecr.eu-west-1.amazonaws.com/"
    assert request.headers["x-amz-target"].endswith(".GetAuthorizationToken")


def test_amazon_with_the_role_of_a_service_account(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("jwt\n")
    keys = {"AccessKeyId": "id", "SecretAccessKey": "key", "SessionToken": "session"}
    result = {"AssumeRoleWithWebIdentityResult": {"Credentials": keys}}
    cloud = _Cloud({"AssumeRoleWithWebIdentityResponse": result}, _TOKEN)
    environment = {"AWS_ROLE_ARN": "arn", "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token")}
    assert CloudProviders(environment, cloud).find("amazon", _ECR) == CloudLogin("AWS", "pass")
    assume, fetch = cloud.asked
    assert assume.url == "https://sts.eu-west-1.amazonaws.com/"
    assert parse_qs(assume.body.decode())["WebIdentityToken"] == ["jwt"]
    assert fetch.headers["x-amz-security-token"] == "session"


def test_azure_with_workload_identity(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("jwt")
    cloud = _Cloud({"access_token": "access"}, {"refresh_token": "refresh"})
    environment = {
        "AZURE_TENANT_ID": "tenant",
        "AZURE_CLIENT_ID": "client",
        "AZURE_FEDERATED_TOKEN_FILE": str(tmp_path / "token"),
    }
    found = CloudProviders(environment, cloud).find("azure", "team.azurecr.io")
    assert found is not None
    assert found.identity_token == "refresh"
    first, second = cloud.asked
    assert first.url == "https://login.microsoftonline.com/tenant/oauth2/v2.0/token"
    assert second.url == "https://team.azurecr.io/oauth2/exchange"
    assert parse_qs(second.body.decode())["access_token"] == ["access"]


def test_google_with_the_metadata_service() -> None:
    with RegistryServer() as metadata:
        path = "/computeMetadata/v1/instance/service-accounts/default/token"
        metadata.contents[path] = b'{"access_token": "secret"}'
        providers = CloudProviders({"GCE_METADATA_HOST": metadata.name}, send)
        found = providers.find("google", "europe-west1-docker.pkg.dev")
        assert found == CloudLogin("oauth2accesstoken", "secret")
        assert metadata.asked[0][1]["metadata-flavor"] == "Google"
        assert "secret" not in repr(found)
        providers.find("google", "europe-west1-docker.pkg.dev")
        assert len(metadata.asked) == 1


@pytest.mark.parametrize(
    ("provider", "registry", "helper"),
    [
        ("amazon", _ECR, "docker-credential-ecr-login"),
        ("azure", "team.azurecr.io", "docker-credential-acr-env"),
        ("google", "eu.gcr.io", "docker-credential-gcr"),
    ],
)
def test_a_provider_that_gives_nothing_says_what_to_do(
    provider: str, registry: str, helper: str
) -> None:
    cloud = _Cloud({}, {})
    providers = CloudProviders({}, cloud)
    for _ in range(2):
        with pytest.raises(LookupFailedError, match=f"imagePullSecrets.*{helper}"):
            providers.find(provider, registry)
    assert len(cloud.asked) <= 1


@pytest.mark.parametrize(
    "registry",
    [
        "evil.example",
        "x.azurecr.io.evil.example",
        "gcr.io.evil",
        "1.dkr.ecr.eu-west-1.evil.example",
        # Buckets of anyone's, not regions.
        "1.dkr.ecr.s3.amazonaws.com",
        "1.dkr.ecr.s3-eu-west-1.amazonaws.com",
    ],
)
@pytest.mark.parametrize("provider", ["amazon", "azure", "google"])
def test_other_registries_get_nothing(provider: str, registry: str) -> None:
    cloud = _Cloud()
    assert CloudProviders({}, cloud).find(provider, registry) is None
    assert not cloud.asked


def test_an_unknown_provider_is_told() -> None:
    with pytest.raises(LookupFailedError, match="unknown credential provider 'nobody'"):
        CloudProviders({}).find("nobody", "reg.example")
