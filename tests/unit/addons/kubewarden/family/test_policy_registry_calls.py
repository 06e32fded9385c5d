"""Kubewarden's policies ask a registry on loopback; those of namespaces may not reach inside."""

from base64 import b64encode
from collections.abc import Iterator

import orjson
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from registry_server import RegistryServer

from lictor.addons.kubewarden.family.entries import MemberEntry
from lictor.addons.kubewarden.family.host_calls import PolicyHost
from lictor.core.errors import HostCallError
from lictor.core.ports import NoLookups
from lictor.core.raw import Json
from lictor.http.addresses import AddressRules
from lictor.images.registries import RemoteRegistries
from lictor.images.settings import RegistrySettings

ENTRY = MemberEntry(module="m", host_capabilities=("oci/*",))


class Outside(NoLookups):
    def __init__(self) -> None:
        rules = AddressRules(blocked_for_objects=())
        self._registries = RemoteRegistries(RegistrySettings(addresses=rules))

    def registries(self):
        return self._registries


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as running:
        yield running


def ask(host: PolicyHost, operation: str, payload: Json) -> Json:
    return orjson.loads(host.call("oci", operation, orjson.dumps(payload)))


def sign(server: RegistryServer, repository: str, digest: str) -> str:
    """Sign an image as cosign does; answers with the public key."""
    key = ec.generate_private_key(ec.SECP256R1())
    critical = {
        "identity": {"docker-reference": repository},
        "image": {"docker-manifest-digest": digest},
        "type": "cosign container image signature",
    }
    payload = orjson.dumps({"critical": critical, "optional": {"env": "prod"}})
    signature = b64encode(key.sign(payload, ec.ECDSA(hashes.SHA256()))).decode()
    layer = {
        "mediaType": "application/vnd.dev.cosign.simplesigning.v1+json",
        "digest": server.put_blob(repository, payload),
        "size": len(payload),
        "annotations": {"dev.cosignproject.cosign/signature": signature},
    }
    config = {"mediaType": "application/vnd.oci.image.config.v1+json", "size": 2}
    config["digest"] = server.put_blob(repository, b"{}")
    manifest = {"schemaVersion": 2, "config": config, "layers": [layer]}
    server.put_manifest(repository, manifest, f"{digest.replace(':', '-')}.sig")
    form = PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(Encoding.PEM, form).decode()


def test_a_signed_image_of_a_registry(server):
    digest = server.put_image("team/app", "v1", {"os": "linux"})
    key = sign(server, "team/app", digest)
    image = f"{server.name}/team/app:v1"
    host = PolicyHost(Outside(), ENTRY)
    assert ask(host, "v1/manifest_digest", image) == {"digest": digest}
    assert ask(host, "v1/oci_manifest_config", image)["config"] == {"os": "linux"}
    wanted = {"type": "SigstorePubKeyVerify", "image": image, "pub_keys": [key]}
    told = ask(host, "v2/verify", {**wanted, "annotations": {"env": "prod"}})
    assert told == {"is_trusted": True, "digest": digest}
    with pytest.raises(HostCallError, match="annotations"):
        ask(host, "v2/verify", {**wanted, "annotations": {"env": "dev"}})
    asked = len(server.asked)
    ask(host, "v1/manifest_digest", image)
    assert len(server.asked) == asked


def test_a_tampered_manifest_proves_nothing(server):
    digest = server.put_image("team/app", "v1", {})
    server.contents[f"/v2/team/app/manifests/{digest}"] = b"{}"
    with pytest.raises(HostCallError, match="not sha256"):
        ask(PolicyHost(Outside(), ENTRY), "v1/oci_manifest", f"{server.name}/team/app@{digest}")


@pytest.mark.parametrize(
    ("operation", "wrap"),
    [
        ("v1/manifest_digest", lambda image: image),
        ("v1/oci_manifest", lambda image: image),
        ("v1/oci_manifest_config", lambda image: image),
        ("v1/verify", lambda image: {"SigstorePubKeyVerify": {"image": image, "pub_keys": ["-----BEGIN "]}}),
        ("v2/verify", lambda image: {"type": "SigstoreGithubActionsVerify", "image": image, "owner": "a"}),
    ],
)  # fmt: skip
def test_a_policy_of_a_namespace_does_not_reach_inside(server, operation, wrap):
    server.put_image("team/app", "v1", {})
    host = PolicyHost(Outside(), ENTRY, namespace="shop")
    for name in (server.name, f"127.0.0.1:{server.port}", f"[::1]:{server.port}"):
        with pytest.raises(HostCallError):
            ask(host, operation, wrap(f"{name}/team/app:v1"))
    assert server.asked == []
