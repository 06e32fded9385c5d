"""Which variables and functions an expression may use, and the values of one request for them.

The versions are parameters; a policy for an older release compiles as that release has it:

    kubernetes_environment(version=(1, 34), binary=(1, 37))
    kyverno_environment("validating", version=(1, 18))
"""

import time
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any

from lictor.core.lang.cel import kubernetes, kyverno
from lictor.core.lang.cel.kubernetes import Version, build_kubernetes
from lictor.core.lang.cel.library.plain import admit
from lictor.core.lang.cel.program import Environment
from lictor.core.lang.cel.state import CALL_LIMIT, State
from lictor.core.lang.cel.types import DYN, CelType, opaque_type
from lictor.core.lang.cel.values import Opaque, Value
from lictor.core.raw import Json

# The releases whose language is the default.
KUBERNETES: Version = kubernetes.LATEST
KYVERNO: Version = (1, 18)

_ADMISSION = ("object", "oldObject", "request", "namespaceObject")
_AUTHORIZER: dict[str, CelType] = {
    "authorizer": opaque_type("kubernetes.authorization.Authorizer"),
    "authorizer.requestResource": opaque_type("kubernetes.authorization.ResourceCheck"),
}


class Activation:
    """Values by variable name, for the expressions of one request.

    `deadline` is when they must have ended, by `time.monotonic`; `variables` and `computed` have
    the variables of the policies that ask, and what was computed of them.
    """

    __slots__ = ("computed", "shared", "state", "variables")

    def __init__(self, values: Mapping[str, Value], deadline: float | None = None) -> None:
        self.state = State(values, CALL_LIMIT, deadline, time.monotonic)
        self.variables: dict[Any, Any] = {}
        self.shared: dict[int, Value] = {}
        self.computed: dict[tuple[int, int], dict[int, Value]] = {}

    def keep_variables(self, before: "Activation") -> None:
        """Take over the variables that were computed, although other values have changed."""
        self.computed, self.shared = before.computed, before.shared


def make_activation(values: Mapping[str, Json], deadline: float | None = None) -> Activation:
    """`object`, `request`, `params` and so on, as Kubernetes reads JSON."""
    admitted = {
        name: value if isinstance(value, Opaque) else admit(value) for name, value in values.items()
    }
    return Activation(admitted, deadline)


@lru_cache(maxsize=64)
def kubernetes_environment(
    *,
    has_params: bool = True,
    has_authorizer: bool = True,
    has_patches: bool = False,
    version: Version = KUBERNETES,
    binary: Version = KUBERNETES,
    is_kyverno: bool = False,
) -> Environment:
    """That of Kubernetes' admission policies; `has_patches`: of those that mutate.

    `version` is the compatibility version, `binary` the release of the server. `is_kyverno`: for
    expressions in Kyverno's classic policies.
    """
    variables: dict[str, CelType] = dict.fromkeys(_ADMISSION, DYN)
    if has_params:
        variables["params"] = DYN
    if has_authorizer:
        variables |= _AUTHORIZER
    build = partial(build_kubernetes, has_patches=has_patches, is_kyverno=is_kyverno)
    return build(version, binary=binary).extend(variables)


@lru_cache(maxsize=4)
def rule_environment(version: Version = KUBERNETES, binary: Version = KUBERNETES) -> Environment:
    """That of the rules in a custom kind's schema: `self` and `oldSelf`."""
    return build_kubernetes(version, binary=binary).extend({"self": DYN, "oldSelf": DYN})


def kyverno_environment(
    profile: str, *, is_namespaced: bool = False, version: Version = KYVERNO
) -> Environment:
    """That of Kyverno's policies that are validating, mutating, generating, deleting or image."""
    return kyverno.build_kyverno(profile, is_namespaced=is_namespaced, version=version)


def image_environment(version: Version = KYVERNO) -> Environment:
    """That of `matchImageReferences`: only `ref`, the image's text."""
    return kyverno.build_image_references(version)


def authorization_environment(mode: str, version: Version = KYVERNO) -> Environment:
    """That of policies on requests to a service: mode `Envoy` or `HTTP`; they see only `object`."""
    return kyverno.build_authorization(mode, version)
