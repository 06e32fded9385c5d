"""Rules with verifyImages over images that are signed in the test, in a registry in memory."""

from base64 import b64encode
from dataclasses import dataclass, field
from typing import Any

import orjson
from signing import (
    MemoryRegistries,
    make_attestation,
    make_payload,
    make_signature,
    make_statement,
    pem_of,
    push_image,
    push_layers,
)

from lictor.core.assembly import compile_documents
from lictor.core.engine import Engine
from lictor.core.evaluate.verify_images.outcome_cache import OutcomeCache
from lictor.core.load.policies import load_documents
from lictor.core.model.request import Request
from lictor.core.model.result import Verdict
from lictor.core.ports import NoLookups
from lictor.core.raw import JsonObject
from lictor.core.signatures.records import SignedImage

HOST = "registry.test"
NO_LOG = {"rekor": {"url": "https://rekor.test", "ignoreTlog": True}}


def by_key(*keys: Any, **fields: Any) -> JsonObject:
    """An entry for signatures by these keys, without a log."""
    return {"keys": {"publicKeys": "".join(map(pem_of, keys)), **NO_LOG}, **fields}


def signed_by(*entries: JsonObject, **fields: Any) -> list[JsonObject]:
    return [{"entries": list(entries), **fields}]


def make_policy(*blocks: JsonObject, kind: str = "ClusterPolicy", **rule: Any) -> JsonObject:
    body = {
        "name": "signed",
        "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
        "verifyImages": [
            {"imageReferences": [f"{HOST}/*"], "failureAction": "Enforce", **each}
            for each in blocks
        ],
        **rule,
    }
    metadata = {"name": "images", **({"namespace": "shop"} if kind == "Policy" else {})}
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": kind,
        "metadata": metadata,
        "spec": {"background": False, "rules": [body]},
    }


def make_pod(*images: str, **metadata: Any) -> JsonObject:
    containers = [{"name": f"c{number}", "image": image} for number, image in enumerate(images)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", **metadata},
        "spec": {"containers": containers},
    }


class RegistryLookups(NoLookups):
    """The registry in memory, and Secrets by namespace and name."""

    def __init__(self, registries: MemoryRegistries) -> None:
        self._registries = registries
        self.secrets: dict[tuple[str, str], JsonObject] = {}

    def registries(self) -> MemoryRegistries:
        return self._registries

    def resource(self, api_version: str, kind: str, namespace: str, name: str) -> JsonObject | None:
        assert (api_version, kind) == ("v1", "Secret")
        return self.secrets.get((namespace, name))

    def keep_key(self, namespace: str, name: str, *keys: Any) -> None:
        text = b64encode("".join(map(pem_of, keys)).encode()).decode()
        self.secrets[namespace, name] = {"data": {"cosign.pub": text}}


@dataclass
class ImageShop:
    """Images with their signatures, and rules that judge them."""

    registries: MemoryRegistries = field(default_factory=MemoryRegistries)
    cache: OutcomeCache = field(default_factory=OutcomeCache)

    def __post_init__(self) -> None:
        self.lookups = RegistryLookups(self.registries)

    def push(self, name: str, *keys: Any, annotations: Any = None) -> SignedImage:
        """An image signed by these keys."""
        image = push_image(self.registries, f"{HOST}/{name}", name)
        self.sign(image, *keys, annotations=annotations)
        return image

    def sign(self, image: SignedImage, *keys: Any, annotations: Any = None) -> None:
        payload = make_payload(image, annotations)
        if keys:
            push_layers(self.registries, image, [make_signature(key, payload) for key in keys])

    def attest(self, image: SignedImage, *made: tuple[Any, Any, str]) -> None:
        """Push attestations: who, what, and of which type."""
        layers = [
            make_attestation(make_statement(image, predicate, type_), key)
            for key, predicate, type_ in made
        ]
        push_layers(self.registries, image, layers, suffix="att")

    def judge(self, policy: JsonObject, resource: JsonObject, **how: Any) -> Verdict:
        loaded = load_documents(orjson.dumps(policy), "test")
        programs = compile_documents(
            loaded.records, lookups=self.lookups, image_outcomes=self.cache
        )
        return Engine(programs).evaluate(Request.of(resource, **how))

    def ask(self, policy: JsonObject, *images: str, **how: Any) -> list[str]:
        """The statuses of all results about a Pod with these images."""
        verdict = self.judge(policy, make_pod(*images), **how)
        return sorted(str(result.status) for result in verdict.results)
