"""The function libraries of Kubernetes and Kyverno: tables of overloads, one module each.

Nothing here does I/O: what touches the world goes through `world.current_world`.
"""

from collections.abc import Iterable
from functools import lru_cache
from types import ModuleType

from lictor.lang.cel.declaration import Overload
from lictor.lang.cel.library import (
    address,
    authorizer,
    certificates,
    clock,
    compression,
    envoy,
    formats,
    generator,
    global_context,
    hashes,
    http,
    image_data,
    images,
    lists,
    moments,
    patches,
    quantity,
    randomness,
    ranges,
    regex,
    resources,
    rounding,
    semver,
    texts,
    transform,
    url,
    users,
    verification,
    web_requests,
    web_tokens,
)

_KUBERNETES = (url, regex, lists, quantity, address, formats, semver, moments, ranges)
_KYVERNO = (
    global_context, images, image_data, hashes, rounding, texts, randomness, clock, transform,
    compression, http,
)  # fmt: skip
_KYVERNO_MORE: dict[str, tuple[ModuleType, ...]] = {
    "ValidatingPolicy": (users, certificates),
    "MutatingPolicy": (users, certificates, generator, patches),
    "GeneratingPolicy": (certificates, generator),
    "DeletingPolicy": (certificates,),
    "ImageValidatingPolicy": (users, verification),
}


@lru_cache(maxsize=2)
def kubernetes_overloads(*, has_patches: bool = False) -> tuple[Overload, ...]:
    """What Kubernetes adds to CEL."""
    return _collect((*_KUBERNETES, authorizer, *((patches,) if has_patches else ())))


@lru_cache(maxsize=32)
def kyverno_overloads(kind: str, *, is_namespaced: bool = False) -> tuple[Overload, ...]:
    """What one of Kyverno's kinds adds; `image` is the small set for image references."""
    if kind == "image":
        return _collect((*_KUBERNETES, images))
    cluster = resources.NAMESPACED_OVERLOADS if is_namespaced else resources.CLUSTER_OVERLOADS
    more = _KYVERNO_MORE.get(kind, _KYVERNO_MORE["ValidatingPolicy"])
    return (*_collect((*_KUBERNETES, *_KYVERNO, *more)), *cluster)


@lru_cache(maxsize=2)
def authorization_overloads(mode: str) -> tuple[Overload, ...]:
    """What policies on requests to Envoy (`Envoy`) or to web servers (`HTTP`) have."""
    own = envoy if mode == "Envoy" else web_requests
    modules = (*_KUBERNETES, own, http, web_tokens, texts, images, image_data)
    return (*_collect(modules), *resources.CLUSTER_OVERLOADS)


@lru_cache(maxsize=1)
def runtime_overloads() -> tuple[Overload, ...]:
    """All of them."""
    more = (
        users, certificates, generator, patches, authorizer, resources, verification, envoy,
        web_requests, web_tokens,
    )  # fmt: skip
    return _collect((*_KUBERNETES, *_KYVERNO, *more))


def _collect(modules: Iterable[ModuleType]) -> tuple[Overload, ...]:
    return tuple(overload for module in modules for overload in module.OVERLOADS)
