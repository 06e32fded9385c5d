"""Credentials of Amazon's, Azure's and Google's registries, from a Pod's cloud identity."""

import hashlib
import hmac
import re
import ssl
import time
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlencode, urlsplit

import msgspec
import orjson

from lictor.core.errors import LookupFailedError
from lictor.core.lang.networks import METADATA
from lictor.core.raw import Json, JsonObject
from lictor.http.addresses import build_connection

_SECONDS = 5.0
_KEPT_SECONDS = 300.0
_MOST_KEPT = 256
_MOST_BYTES = 1024 * 1024
_FORM = {"content-type": "application/x-www-form-urlencoded"}
# Only the form of a region: `s3` is another service, whose host names anyone can get.
_REGION = r"[a-z]{2}(?:-[a-z]+)+-[0-9]{1,2}"
_ECR = re.compile(
    rf"[0-9]+\.dkr\.ecr(?P<fips>-fips)?\.(?P<region>{_REGION})\.(?P<domain>amazonaws\.com(?:\.cn)?)"
)
_ACR = re.compile(r"[a-z0-9-]+\.azurecr\.(?:io|cn|us|de)")
_GCR = re.compile(r"(?:[a-z0-9-]+\.)?gcr\.io|[a-z0-9-]+-docker\.pkg\.dev")
_AZURE_USER = "00000000-0000-0000-0000-000000000000"


class CloudRequest(msgspec.Struct, frozen=True):
    """A request to a cloud service."""

    method: str
    url: str
    headers: Mapping[str, str] = {}
    body: bytes = b""
    # Whether it is this machine's metadata service, from its environment.
    is_metadata: bool = False


# Sends a request; returns status and body. Raises OSError without a response.
Call: TypeAlias = Callable[[CloudRequest], tuple[int, bytes]]


class CloudLogin(msgspec.Struct, frozen=True):
    """Name and password for a registry, or a token to exchange."""

    username: str = ""
    password: str = ""
    identity_token: str = ""

    def __repr__(self) -> str:
        # Never in a message or a log.
        return "CloudLogin(...)"


class CloudProviders:
    """Requests credentials from clouds; thread-safe."""

    def __init__(self, environment: Mapping[str, str], call: "Call | None" = None) -> None:
        self._environment = environment
        self._call = call or send
        # Another cloud's metadata service fails each time, and takes long to do so.
        self._kept: dict[tuple[str, str], tuple[float, CloudLogin | LookupFailedError | None]] = {}

    def find(self, provider: str, registry: str) -> CloudLogin | None:
        """The login of a provider for a registry; None if it is another provider's registry."""
        until, found = self._kept.get((provider, registry), (0.0, None))
        if time.monotonic() >= until:
            try:
                found = self._find(provider, registry)
            except LookupFailedError as error:
                found = error
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[provider, registry] = time.monotonic() + _KEPT_SECONDS, found
        if isinstance(found, LookupFailedError):
            raise found
        return found

    def _find(self, provider: str, registry: str) -> CloudLogin | None:
        ask = {"amazon": self._ask_amazon, "azure": self._ask_azure, "google": self._ask_google}
        if provider not in ask:
            raise LookupFailedError(
                f"unknown credential provider {provider!r}: expected default, amazon, azure, "
                "google or github"
            )
        try:
            return ask[provider](registry)
        except (LookupFailedError, OSError, KeyError) as error:
            reason = f"{error.args[0]} is not set" if isinstance(error, KeyError) else str(error)
            raise LookupFailedError(
                f"no credentials for {registry} from {provider}: {reason}; set a Secret "
                "in imageRegistryCredentials.secrets or --imagePullSecrets, or put a credential "
                f"helper ({_HELPERS[provider]}) into Docker's configuration"
            ) from error

    # --- Google: the Pod's identity

    def _ask_google(self, registry: str) -> CloudLogin | None:
        if not _GCR.fullmatch(registry):
            return None
        host = self._environment.get("GCE_METADATA_HOST") or "metadata.google.internal"
        url = f"http://{host}/computeMetadata/v1/instance/service-accounts/default/token"
        found = self._ask(CloudRequest("GET", url, {"metadata-flavor": "Google"}, is_metadata=True))
        return CloudLogin("oauth2accesstoken", _text(found, "access_token"))

    # --- Azure: workload identity

    def _ask_azure(self, registry: str) -> CloudLogin | None:
        if not _ACR.fullmatch(registry):
            return None
        environment = self._environment
        tenant = environment["AZURE_TENANT_ID"]
        authority = environment.get("AZURE_AUTHORITY_HOST") or "https://login.microsoftonline.com"
        form = {
            "grant_type": "client_credentials",
            "client_id": environment["AZURE_CLIENT_ID"],
            "scope": "https://containerregistry.azure.net/.default",
            "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
            "client_assertion": _read(environment["AZURE_FEDERATED_TOKEN_FILE"]),
        }
        url = f"{authority.rstrip('/')}/{tenant}/oauth2/v2.0/token"
        token = _text(self._post(url, form), "access_token")
        form = {
            "grant_type": "access_token",
            "service": registry,
            "tenant": tenant,
            "access_token": token,
        }
        found = self._post(f"https://{registry}/oauth2/exchange", form)
        return CloudLogin(_AZURE_USER, identity_token=_text(found, "refresh_token"))

    # --- Amazon: keys, or a service account's role

    def _ask_amazon(self, registry: str) -> CloudLogin | None:
        found = _ECR.fullmatch(registry)
        if found is None:
            return None
        keys, region = self.find_keys(found["region"]), found["region"]
        service = "ecr-fips" if found["fips"] else "api.ecr"
        host = f"{service}.{region}.{found['domain']}"
        target = "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"
        headers = {"content-type": "application/x-amz-json-1.1", "x-amz-target": target}
        request = CloudRequest("POST", f"https://{host}/", headers, b"{}")
        answer = self._ask(sign(request, keys, region, "ecr", datetime.now(UTC)))
        return _read_ecr(answer)

    def find_keys(self, region: str) -> "AmazonKeys":
        """The keys from the environment, or from the Pod's identity.

        Raises KeyError if the environment has neither, LookupFailedError or OSError if there are
        none.
        """
        environment = self._environment
        if environment.get("AWS_ACCESS_KEY_ID"):
            return AmazonKeys(
                environment["AWS_ACCESS_KEY_ID"],
                environment["AWS_SECRET_ACCESS_KEY"],
                environment.get("AWS_SESSION_TOKEN", ""),
            )
        if environment.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"):
            return self._ask_pod_identity()
        return self._assume_role(region)

    def _ask_pod_identity(self) -> "AmazonKeys":
        environment = self._environment
        url = environment["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
        token = _read(environment["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"])
        found = self._ask(CloudRequest("GET", url, {"authorization": token}, is_metadata=True))
        return AmazonKeys(
            _text(found, "AccessKeyId"), _text(found, "SecretAccessKey"), _text(found, "Token")
        )

    def _assume_role(self, region: str) -> "AmazonKeys":
        form = {
            "Action": "AssumeRoleWithWebIdentity",
            "Version": "2011-06-15",
            "RoleArn": self._environment["AWS_ROLE_ARN"],
            "RoleSessionName": "lictor",
            "WebIdentityToken": _read(self._environment["AWS_WEB_IDENTITY_TOKEN_FILE"]),
        }
        domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
        headers = {**_FORM, "accept": "application/json"}
        url = f"https://sts.{region}.{domain}/"
        found: Json = self._ask(CloudRequest("POST", url, headers, urlencode(form).encode()))
        for key in ("AssumeRoleWithWebIdentityResponse", "AssumeRoleWithWebIdentityResult"):
            found = found.get(key) if isinstance(found, dict) else None
        keys = found.get("Credentials") if isinstance(found, dict) else None
        if not isinstance(keys, dict):
            raise LookupFailedError("the token service returned no keys")
        return AmazonKeys(
            _text(keys, "AccessKeyId"), _text(keys, "SecretAccessKey"), _text(keys, "SessionToken")
        )

    # --- HTTP

    def _post(self, url: str, form: Mapping[str, str]) -> JsonObject:
        return self._ask(CloudRequest("POST", url, _FORM, urlencode(form).encode()))

    def _ask(self, request: CloudRequest) -> JsonObject:
        status, body = self._call(request)
        host = urlsplit(request.url).netloc
        try:
            found = orjson.loads(body) if status == 200 else None
        except orjson.JSONDecodeError:
            found = None
        if not isinstance(found, dict):
            raise LookupFailedError(f"{host} returned HTTP {status} without credentials")
        return found


_HELPERS = {
    "amazon": "docker-credential-ecr-login",
    "azure": "docker-credential-acr-env",
    "google": "docker-credential-gcr",
}


def send(request: CloudRequest) -> tuple[int, bytes]:
    """One request without redirects, over HTTPS or to a metadata service."""
    from http.client import HTTPException

    url = urlsplit(request.url)
    context = ssl.create_default_context() if url.scheme == "https" else None
    connection = build_connection(
        url.hostname or "",
        url.port,
        _SECONDS,
        context=context,
        blocked=() if request.is_metadata else METADATA,
    )
    try:
        target = f"{url.path or '/'}?{url.query}" if url.query else url.path or "/"
        connection.request(request.method, target, request.body or None, dict(request.headers))
        answer = connection.getresponse()
        return answer.status, answer.read(_MOST_BYTES)
    except HTTPException as error:
        raise OSError(f"{url.netloc} did not answer with HTTP") from error
    finally:
        connection.close()


def _read(path: str) -> str:
    return Path(path).read_text(encoding="ascii").strip()


def _text(found: JsonObject, key: str) -> str:
    value = found.get(key)
    if not isinstance(value, str) or not value:
        raise LookupFailedError(f"the response has no {key}")
    return value


def _read_ecr(answer: JsonObject) -> CloudLogin:
    listed = answer.get("authorizationData")
    first = listed[0] if isinstance(listed, list) and listed else None
    token = first.get("authorizationToken") if isinstance(first, dict) else None
    try:
        pair = b64decode(token, validate=True).decode() if isinstance(token, str) else ""
    except (Base64Error, UnicodeDecodeError):
        pair = ""
    username, colon, password = pair.partition(":")
    if not colon:
        raise LookupFailedError("Amazon returned no token")
    return CloudLogin(username, password)


# --- Amazon's signature, version 4


class AmazonKeys(msgspec.Struct, frozen=True):
    """The keys that sign requests to Amazon."""

    identifier: str
    secret: str
    session: str = ""

    def __repr__(self) -> str:
        # Never in a message or a log.
        return "AmazonKeys(...)"


def sign(
    request: CloudRequest, keys: AmazonKeys, region: str, service: str, now: datetime
) -> CloudRequest:
    """The request with a signature header."""
    moment = now.strftime("%Y%m%dT%H%M%SZ")
    headers = {**request.headers, "host": urlsplit(request.url).netloc, "x-amz-date": moment}
    if keys.session:
        headers["x-amz-security-token"] = keys.session
    names = ";".join(sorted(headers))
    scope = f"{moment[:8]}/{region}/{service}/aws4_request"
    canonical = "\n".join(
        [
            request.method,
            urlsplit(request.url).path or "/",
            _sort_query(urlsplit(request.url).query),
            *(f"{name}:{headers[name].strip()}" for name in sorted(headers)),
            "",
            names,
            hashlib.sha256(request.body).hexdigest(),
        ]
    )
    summary = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{summary}"
    key = f"AWS4{keys.secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={keys.identifier}/{scope}, SignedHeaders={names}, "
        f"Signature={signature}"
    )
    return msgspec.structs.replace(request, headers=headers)


def _sort_query(query: str) -> str:
    """Sorted for signing, with `=` after a name without a value."""
    pairs = (pair.partition("=") for pair in query.split("&") if pair)
    return "&".join(f"{name}={value}" for name, _, value in sorted(pairs))
