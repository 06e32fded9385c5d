"""Kyverno's PolicyException (kyverno.io/v2, v2beta1): exemptions from rules."""

from typing import Literal

import msgspec

from lictor.core.model.matching import Conditions, Match
from lictor.core.model.metadata import Metadata
from lictor.core.model.policy import PodSecurityStandard
from lictor.core.raw import Json


class ExceptedRules(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Rules of one policy; names may contain wildcards. A namespaced policy is `namespace/name`."""

    policy_name: str
    rule_names: tuple[str, ...]


class ExceptionSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is exempt from which rules."""

    match: Match
    exceptions: tuple[ExceptedRules, ...]
    background: bool | None = None
    conditions: Conditions = None
    pod_security: tuple[PodSecurityStandard, ...] = ()


class PolicyException(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An exception from classic policies."""

    api_version: str
    kind: Literal["PolicyException"]
    metadata: Metadata
    spec: ExceptionSpec
    status: Json = None
