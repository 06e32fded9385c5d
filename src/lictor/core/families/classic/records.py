"""Kyverno's CleanupPolicy and ClusterCleanupPolicy (kyverno.io/v2, v2beta1): what to delete."""

from typing import Literal

import msgspec

from lictor.core.model.matching import Conditions, ContextEntry, Match
from lictor.core.model.metadata import Metadata
from lictor.core.raw import Json


class CleanupSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is deleted, and its cron schedule."""

    schedule: str
    match: Match
    exclude: Match | None = None
    context: tuple[ContextEntry, ...] = ()
    conditions: Conditions = None
    deletion_propagation_policy: Literal["Foreground", "Background", "Orphan"] | None = None


class CleanupPolicy(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A cleanup of the whole cluster, or of one namespace."""

    api_version: str
    kind: Literal["CleanupPolicy", "ClusterCleanupPolicy"]
    metadata: Metadata
    spec: CleanupSpec
    status: Json = None
