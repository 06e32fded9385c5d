"""Facts about kinds of policies: role, definition, webhooks, what they delete and generate."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from lictor.core.model.constraints import MatchResources, ResourceRule
from lictor.core.model.matching import MatchCondition
from lictor.core.model.metadata import LabelSelector

# What the prefixes of unique names end with where policies are groups of others.
_OF_GROUPS = "-group"


AGE_COLUMN = "AGE | date | .metadata.creationTimestamp"
READY_COLUMNS = f"""
{AGE_COLUMN}
READY | string | .status.conditionStatus.ready
"""


class Role(StrEnum):
    """What documents of a kind are for."""

    # Evaluated for requests.
    POLICY = "policy"
    # Chooses objects that are deleted on a schedule.
    DELETION = "deletion"
    # Frees resources from policies.
    EXCEPTION = "exception"
    # Puts a policy in force.
    BINDING = "binding"
    # Runs policies.
    SERVER = "server"


class CrdShape(msgspec.Struct, frozen=True):
    """The CustomResourceDefinition of a kind; the schema follows from its record."""

    # A word for each version: `*` is stored, `!` deprecated, `-` not served.
    versions: str
    description: str
    # A shape of install/shapes.txt; empty where there is no status.
    status: str = "CelStatus"
    # What `kubectl get` shows, a line for each column: name, type and path, and + for `-o wide`.
    columns: str = READY_COLUMNS
    # What `kubectl get` takes for all kinds of a project.
    category: str = "kyverno"


class WebhookPath(msgspec.Struct, frozen=True):
    """The paths on which the API server calls the webhook for policies of a kind."""

    # What paths begin with, before the names of policies. Empty: the kinds that have none share
    # /validate and /mutate, sorted by failure policy.
    segment: str = ""
    mutating: bool = False
    validating: bool = True
    # Policies with a webhook configuration and a path each, /validate/<unique name>, on the server
    # that they name: what unique names begin with. A separate controller keeps these, and their
    # statuses.
    policy_prefix: str = ""
    # The server of policies that name none; our own webhook may stand for it.
    default_server: str = ""

    @property
    def per_policy(self) -> bool:
        """Has each policy a separate path, webhook configuration and server?"""
        return bool(self.policy_prefix)

    @property
    def is_shared(self) -> bool:
        """Are policies of all such kinds served on the same paths?"""
        return not self.segment and not self.per_policy

    def name_policy(self, namespace: str, name: str) -> str:
        """The unique name of a policy that has a separate path.

        Kubewarden's, unless it could be another policy's there: a hyphen separates parts, and may
        be in each of them. Names of namespaces hold no dots: no two of these names are the same.
        """
        is_clear = "-" not in namespace
        if not self.policy_prefix.endswith(_OF_GROUPS):
            first = namespace or name
            is_clear &= namespace != "group" and not first.startswith(("group-", "group."))
        separator = "-" if is_clear else "."
        return separator.join(part for part in (self.policy_prefix, namespace, name) if part)

    @property
    def names_stage(self) -> bool:
        """Do paths contain whether objects are mutated or validated?"""
        return bool(self.segment) and self.mutating and self.validating


class WebhookMatch(msgspec.Struct, frozen=True):
    """The requests for which a policy needs its webhook."""

    constraints: MatchResources
    conditions: tuple[MatchCondition, ...] = ()
    # The same for kinds that the policy also covers: name, constraints and conditions.
    variants: "tuple[tuple[str, MatchResources, tuple[MatchCondition, ...]], ...]" = ()
    timeout_seconds: int | None = None
    is_reinvoked: bool = False
    # Is it called for every operation, also for others than those of the constraints?
    every_operation: bool = False


class SharedWebhookMatch(msgspec.Struct, frozen=True):
    """The requests for which a policy needs a webhook that it shares with others."""

    # Text of a kind selector -> operations.
    kinds: Mapping[str, frozenset[str]]
    # The namespaces that all of its rules are about; None where they differ.
    namespaces: LabelSelector | None = None
    conditions: tuple[MatchCondition, ...] = ()
    timeout_seconds: int | None = None


class DeletionTargets(msgspec.Struct, frozen=True):
    """Which objects a policy deletes: by kinds, or by resource rules and a selector."""

    # Text of a kind selector, and the names of the objects that it is about; no names: all.
    kinds: tuple[tuple[str, tuple[str, ...]], ...] = ()
    rules: tuple[ResourceRule, ...] = ()
    selector: LabelSelector | None = None


class GenerationSettings(msgspec.Struct, frozen=True):
    """How the objects that a rule generates are looked after."""

    # Empty for a policy whose rules have no names.
    rule: str
    synchronize: bool
    # Do they outlive their policy?
    outlives_policy: bool
    # Are they also made for triggers that are there already?
    for_existing: bool
    server_side: bool = False
    # Text that changes with what is generated where.
    target_hash: str = ""
    # Kinds of what it makes, where they are written without variables: apiVersion/Kind.
    target_kinds: tuple[str, ...] = ()
