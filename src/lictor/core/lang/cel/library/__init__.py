"""The function libraries of Kubernetes and Kyverno: tables of overloads, by environment.

Nothing here does I/O: what is asked of the outside goes through `host.current_host`.
"""

from functools import lru_cache

from lictor.core.lang.cel.library.address import ADDRESS_OVERLOADS
from lictor.core.lang.cel.library.authorization import (
    AUTHORIZER_OVERLOADS,
    ENVOY_OVERLOADS,
    WEB_REQUEST_OVERLOADS,
)
from lictor.core.lang.cel.library.http import HTTP_OVERLOADS, TOKEN_OVERLOADS
from lictor.core.lang.cel.library.images import (
    IMAGE_DATA_OVERLOADS,
    IMAGE_OVERLOADS,
    VERIFICATION_OVERLOADS,
)
from lictor.core.lang.cel.library.kubernetes_texts import (
    FORMAT_OVERLOADS,
    REGEX_OVERLOADS,
    URL_OVERLOADS,
)
from lictor.core.lang.cel.library.kubernetes_values import (
    LIST_OVERLOADS,
    MILLISECOND_OVERLOADS,
    QUANTITY_OVERLOADS,
    RANGE_OVERLOADS,
    SEMVER_OVERLOADS,
)
from lictor.core.lang.cel.library.kyverno_values import (
    CERTIFICATE_OVERLOADS,
    DOCUMENT_OVERLOADS,
    GZIP_OVERLOADS,
    HASH_OVERLOADS,
    RANDOM_OVERLOADS,
    ROUND_OVERLOADS,
    TIME_OVERLOADS,
    TRANSFORM_OVERLOADS,
    USER_OVERLOADS,
)
from lictor.core.lang.cel.library.resources import (
    CLUSTER_OVERLOADS,
    GENERATOR_OVERLOADS,
    GLOBAL_CONTEXT_OVERLOADS,
    NAMESPACED_OVERLOADS,
    PATCH_OVERLOADS,
    RESOURCE_OVERLOADS,
)
from lictor.core.lang.cel.types import Overload

_KUBERNETES = (
    *URL_OVERLOADS, *REGEX_OVERLOADS, *LIST_OVERLOADS, *QUANTITY_OVERLOADS, *ADDRESS_OVERLOADS,
    *FORMAT_OVERLOADS, *SEMVER_OVERLOADS, *MILLISECOND_OVERLOADS, *RANGE_OVERLOADS,
)  # fmt: skip
_KYVERNO = (
    *GLOBAL_CONTEXT_OVERLOADS, *IMAGE_OVERLOADS, *IMAGE_DATA_OVERLOADS, *HASH_OVERLOADS,
    *ROUND_OVERLOADS, *DOCUMENT_OVERLOADS, *RANDOM_OVERLOADS, *TIME_OVERLOADS,
    *TRANSFORM_OVERLOADS, *GZIP_OVERLOADS, *HTTP_OVERLOADS,
)  # fmt: skip
_KYVERNO_MORE = {
    "validating": (*USER_OVERLOADS, *CERTIFICATE_OVERLOADS),
    "mutating": (
        *USER_OVERLOADS, *CERTIFICATE_OVERLOADS, *GENERATOR_OVERLOADS, *PATCH_OVERLOADS,
    ),
    "generating": (*CERTIFICATE_OVERLOADS, *GENERATOR_OVERLOADS),
    "deleting": CERTIFICATE_OVERLOADS,
    "image": (*USER_OVERLOADS, *VERIFICATION_OVERLOADS),
}  # fmt: skip


@lru_cache(maxsize=2)
def kubernetes_overloads(*, has_patches: bool = False) -> tuple[Overload, ...]:
    """What Kubernetes adds to CEL."""
    patches = PATCH_OVERLOADS if has_patches else ()
    return (*_KUBERNETES, *AUTHORIZER_OVERLOADS, *patches)


@lru_cache(maxsize=32)
def kyverno_overloads(profile: str, *, is_namespaced: bool = False) -> tuple[Overload, ...]:
    """What Kyverno adds, by what a policy does; `image reference` is the small set for those."""
    if profile == "image reference":
        return (*_KUBERNETES, *IMAGE_OVERLOADS)
    cluster = NAMESPACED_OVERLOADS if is_namespaced else CLUSTER_OVERLOADS
    more = _KYVERNO_MORE.get(profile, _KYVERNO_MORE["validating"])
    return (*_KUBERNETES, *_KYVERNO, *more, *cluster)


@lru_cache(maxsize=2)
def authorization_overloads(mode: str) -> tuple[Overload, ...]:
    """What policies on requests to Envoy (`Envoy`) or to web servers (`HTTP`) have."""
    return (
        *_KUBERNETES,
        *(ENVOY_OVERLOADS if mode == "Envoy" else WEB_REQUEST_OVERLOADS),
        *HTTP_OVERLOADS,
        *TOKEN_OVERLOADS,
        *DOCUMENT_OVERLOADS,
        *IMAGE_OVERLOADS,
        *IMAGE_DATA_OVERLOADS,
        *CLUSTER_OVERLOADS,
    )


@lru_cache(maxsize=1)
def runtime_overloads() -> tuple[Overload, ...]:
    """All of them."""
    return (
        *_KUBERNETES, *_KYVERNO, *USER_OVERLOADS, *CERTIFICATE_OVERLOADS, *GENERATOR_OVERLOADS,
        *PATCH_OVERLOADS, *AUTHORIZER_OVERLOADS, *RESOURCE_OVERLOADS, *VERIFICATION_OVERLOADS,
        *ENVOY_OVERLOADS, *WEB_REQUEST_OVERLOADS, *TOKEN_OVERLOADS,
    )  # fmt: skip


@lru_cache(maxsize=1)
def function_names() -> frozenset[str]:
    """The names of all functions that are written in Python."""
    return frozenset(overload.name for overload in runtime_overloads())
