"""Which kinds of policies are there, and what does everything else need to know of a kind?

Each family declares its kinds as `PolicyKind`s. Packages of others add families by entry points of
the group `lictor.families`. What is heavy is named as text ("package.module:name") and imported
when it is first used.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cache
from importlib import import_module
from typing import Any, TypeAlias

import msgspec

from lictor.core.errors import LoadError
from lictor.core.families.built_in import FAMILIES, import_name
from lictor.core.model.constraints import MatchResources, ResourceRule
from lictor.core.model.matching import MatchCondition
from lictor.core.model.metadata import LabelSelector, PolicyRecord
from lictor.core.model.program import Phase
from lictor.core.model.result import PolicyRef
from lictor.core.raw import JsonObject

ENTRY_POINTS = "lictor.families"
# Something to call or to use, or where it is: "package.module:name".
Reference: TypeAlias = "str | Callable[..., Any]"
# Fields that a record has for the sake of other versions.
AbsentFields: TypeAlias = Mapping[type[msgspec.Struct], frozenset[str]]

# What the prefixes of unique names end with where policies are groups of others.
_OF_GROUPS = "-group"


AGE_COLUMN = "AGE | date | .metadata.creationTimestamp"
READY_COLUMNS = f"""
{AGE_COLUMN}
READY | string | .status.conditionStatus.ready
"""


class Role(StrEnum):
    """What documents of a kind are for."""

    # Is asked about requests.
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
    """What the CustomResourceDefinition of a kind says; the schema follows from its record."""

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
    """On which paths the API server asks about policies of a kind."""

    # What paths begin with, before the names of policies. Empty: the kinds that have none share
    # /validate and /mutate, sorted by failure policy.
    segment: str = ""
    mutating: bool = False
    validating: bool = True
    # Policies with a webhook configuration and a path each, /validate/<unique name>, on the server
    # that they name: what unique names begin with. A controller of their own keeps these, and their
    # statuses.
    policy_prefix: str = ""
    # The server of policies that name none; our own webhook may stand for it.
    default_server: str = ""

    @property
    def per_policy(self) -> bool:
        """Has each policy a path, a webhook configuration and a server of its own?"""
        return bool(self.policy_prefix)

    @property
    def is_shared(self) -> bool:
        """Are policies of all such kinds asked on the same paths?"""
        return not self.segment and not self.per_policy

    def name_policy(self, namespace: str, name: str) -> str:
        """The unique name of a policy that has a path of its own.

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
        """Do paths say whether objects are changed or checked?"""
        return bool(self.segment) and self.mutating and self.validating


class WebhookMatch(msgspec.Struct, frozen=True):
    """What a policy asks of the webhook that serves it."""

    constraints: MatchResources
    conditions: tuple[MatchCondition, ...] = ()
    # The same for kinds that the policy also covers: name, constraints and conditions.
    variants: "tuple[tuple[str, MatchResources, tuple[MatchCondition, ...]], ...]" = ()
    timeout_seconds: int | None = None
    is_reinvoked: bool = False
    # Is it asked about every operation, whatever the constraints say?
    every_operation: bool = False


class SharedWebhookMatch(msgspec.Struct, frozen=True):
    """What a policy asks of a webhook that it shares with others."""

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


class PolicyKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of policy, or of what belongs to policies: everything others ask about it."""

    family: str
    group: str
    kind: str
    plural: str
    namespaced: bool
    # Those that a document may have.
    versions: tuple[str, ...]
    # The one in which the API server is asked for objects.
    preferred_version: str
    role: Role = Role.POLICY
    short_name: str = ""
    # Does the API server evaluate such policies itself?
    is_native: bool = False

    # Is it counted and watched together with the policies that are asked about requests?
    is_listed: bool = True
    # The work that its rules may do.
    phases: tuple[Phase, ...] = ()
    # Kyverno's policies in CEL: which functions and variables expressions have.
    cel_profile: str = ""
    # Have rules names that their authors gave them?
    has_named_rules: bool = False

    # --- load: the record type; and (version) -> AbsentFields
    record: "str | type[msgspec.Struct]"
    absent_fields: Reference = ""
    # (record, folder of its file) -> the record, with the files that it names found from there
    locate_files: Reference = ""
    # (document, folder of its file) -> the same for a document
    locate_files_of_document: Reference = ""

    # --- compile: (record, CompileContext) -> Program, or a CleanupProgram for a deletion; and the
    # same for a policy that may not be compiled: (record, error, CompileContext) -> Program
    compile: Reference = ""
    compile_failing: Reference = ""

    # --- the CustomResourceDefinition that an installation brings; None for Kubernetes' own kinds
    crd: CrdShape | None = None

    # --- webhooks: where such policies are served; for a kind with a path of its own, (record) ->
    # WebhookMatch or None; (record, mutating) -> is it asked there?; the failure policy of all
    path: WebhookPath | None = None
    webhook_match: Reference = ""
    is_asked: Reference = ""
    failure_policy: str = ""
    # --- for a kind that shares its paths: (record, mutating) -> SharedWebhookMatch; the patterns
    # of namespaces that it names; and (program, record) -> the program as it is asked there
    shared_webhook: Reference = ""
    list_named_namespaces: Reference = ""
    limit_program: Reference = ""

    # --- metrics: the histogram of seconds, where it is one of its own; (record) -> the mode
    duration_metric: str = ""
    read_mode: Reference = ""

    # --- status: (record or None, kind, old status, PolicyFacts, now) -> status
    build_status: Reference = "lictor.core.report.policy_status:build_condition_status"

    # --- changes: (document, the one before) -> what is wrong with the change
    review_change: Reference = ""

    # --- exceptions: (exception, PolicyKind, key of a policy) -> does it name the policy?
    excepts: Reference = ""
    # (exception) -> the policies that it is from, each with patterns of its rules; no rules: all
    list_excepted: Reference = ""
    # Exceptions: the webhook configuration, and the path, on which changes of them are reviewed.
    review_path: tuple[str, str] | None = None

    # --- lint: (document, LintContext) -> findings
    lint: Reference = ""

    # --- generate: (record) -> GenerationSettings of each rule that generates
    list_generations: Reference = ""
    # (record) -> names of rules that are also set off by what lictor itself makes and changes
    list_chained_rules: Reference = ""

    # --- delete: (record) -> DeletionTargets
    list_deletion_targets: Reference = ""

    # --- mutate existing: (record) -> names of the rules that change objects which are there
    # already when the policy comes or changes; (record) -> is it never asked by a scan?
    list_existing_mutations: Reference = ""
    skips_scan: Reference = ""

    # --- admission policies of Kubernetes that do the same: (record, NativeRequest) -> both objects
    build_native: Reference = ""

    # --- convert: (record, target, resource names, groups) -> the same policy in another family
    convert: Reference = ""

    # --- test: (record) -> the kinds of work that a test expects an answer about, also where the
    # policy has nothing to say
    expected_work: Reference = ""

    # --- explain: (record, bindings, what was heard, results) -> an explanation of each rule
    explain: Reference = "lictor.core.report.explanation:explain_results"

    # --- uninstall: what keeps objects of the kind until a controller lets go of them; of a server,
    # the label of the objects that run it, and the Secret of its authority
    finalizer: str = ""
    parts_label: str = ""
    authority_secret: str = ""

    # A small policy of this kind: compiling it loads what most policies need.
    sample: JsonObject | None = None

    # Who reports in results; and (record, PolicyRef) -> what else results say of a policy.
    report_source: str = "kyverno"
    refer_to: Reference = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.group, self.kind

    def load_record(self) -> type[msgspec.Struct]:
        """The type that documents of this kind become."""
        found: type[msgspec.Struct] = resolve(self.record)
        return found

    def refer(self, record: PolicyRecord) -> PolicyRef:
        """The policy as results name it; without a namespace, a namespaced one is in `default`."""
        metadata = record.metadata
        made = PolicyRef(
            name=metadata.name,
            namespace=(metadata.namespace or "default") if self.namespaced else "",
            kind=record.kind,
            api_version=record.api_version,
            annotations=metadata.annotations,
            labels=metadata.labels,
            source=self.report_source,
        )
        if not self.refer_to:
            return made
        found: PolicyRef = resolve(self.refer_to)(record, made)
        return found

    def find_absent(self, version: str) -> AbsentFields:
        """The fields of the record that documents of a version do not have."""
        found: AbsentFields = resolve(self.absent_fields)(version) if self.absent_fields else {}
        return found


def resolve(reference: Reference) -> Any:
    """What a reference stands for."""
    return import_name(reference) if isinstance(reference, str) else reference


class Registry:
    """The kinds of all families, in the order in which their policies are asked."""

    def __init__(self) -> None:
        self._built_in: dict[tuple[str, str], PolicyKind] = {}
        self._all: dict[tuple[str, str], PolicyKind] | None = None
        self._registered: list[PolicyKind] = []
        self._families: list[str] = []
        for module in FAMILIES.values():
            _add(self._built_in, import_module(module).KINDS, module)

    @property
    def kinds(self) -> tuple[PolicyKind, ...]:
        """Every kind."""
        return tuple(self._load().values())

    def with_role(self, *roles: Role) -> tuple[PolicyKind, ...]:
        """The kinds that are for one of these purposes."""
        return tuple(kind for kind in self.kinds if kind.role in roles)

    def find(self, group: str, kind: str) -> PolicyKind | None:
        """The declaration of a kind; None where it is no kind of policy."""
        # Most documents are of our own kinds: families of others are looked for after those.
        return self._built_in.get((group, kind)) or self._load().get((group, kind))

    def get(self, group: str, kind: str) -> PolicyKind:
        """The declaration of a kind; LoadError where it is no kind of policy."""
        found = self.find(group, kind)
        if found is None:
            raise LoadError(f"{kind} of {group or 'the core group'} is no kind of policy")
        return found

    def of(self, record: PolicyRecord) -> PolicyKind:
        """The declaration of the kind that a record is of."""
        return self.get(record.api_version.rpartition("/")[0], record.kind)

    def of_result(self, policy: PolicyRef) -> PolicyKind:
        """The declaration of the kind of a policy that results speak of."""
        return self.get(policy.api_version.rpartition("/")[0], policy.kind)

    def order(self, record: PolicyRecord) -> int:
        """A number to sort policies by: those of one family are asked before those of the next."""
        family = self.of(record).family
        if not self._families:
            # Built-in families come first: to sort those, no others need be looked for.
            self._families = list(dict.fromkeys(each.family for each in self._built_in.values()))
        if family not in self._families:
            self._families = list(dict.fromkeys(each.family for each in self.kinds))
        return self._families.index(family)

    def register(self, *kinds: PolicyKind) -> None:
        """Add kinds for as long as the process lives; packages use entry points instead."""
        self._registered += kinds
        self._all = None
        self._load()

    def _load(self) -> dict[tuple[str, str], PolicyKind]:
        if self._all is None:
            found = dict(self._built_in)
            for name, kinds in _load_outside():
                _add(found, kinds, name)
            _add(found, self._registered, "register")
            self._all = found
        return self._all


def _add(found: dict[tuple[str, str], PolicyKind], kinds: Iterable[PolicyKind], name: str) -> None:
    for kind in kinds:
        if kind.key in found:
            taken = found[kind.key].family
            message = f"policy family {name}: {kind.kind} of {kind.group} is declared by {taken}"
            raise LoadError(message)
        found[kind.key] = kind


def _load_outside() -> Iterator[tuple[str, tuple[PolicyKind, ...]]]:
    """The families that installed packages bring. One that cannot be loaded is an error: its
    policies would be taken for plain resources, and everything they forbid would be allowed.
    """
    from importlib.metadata import entry_points

    for entry in entry_points(group=ENTRY_POINTS):
        package = entry.dist.name if entry.dist is not None else "an unknown package"
        where = f"policy family {entry.name} of {package}"
        try:
            kinds = tuple(entry.load())
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
            hint = "repair the package or uninstall it"
            raise LoadError(f"{where} cannot be loaded ({told}): {hint}") from error
        for kind in kinds:
            if not isinstance(kind, PolicyKind):
                raise LoadError(f"{where} declares {type(kind).__name__}, not PolicyKind")
        yield entry.name, kinds


@cache
def registry() -> Registry:
    """The registry of this process."""
    return Registry()


def refer(record: PolicyRecord) -> PolicyRef:
    """A policy as results name it."""
    return registry().of(record).refer(record)
