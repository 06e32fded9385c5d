"""A family of policies and its kinds: what lictor needs to know of them.

Facts are data, because all commands read them. What takes code is a method of `Family`, which
imports its modules when it is called: start-up pays for nothing that is not used.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import msgspec

from lictor.core.families.kind_facts import (
    CrdShape,
    DeletionTargets,
    GenerationSettings,
    Role,
    SharedWebhookMatch,
    WebhookMatch,
    WebhookPath,
)
from lictor.core.model.metadata import PolicyRecord
from lictor.core.model.program import Phase
from lictor.core.model.result import PolicyRef, Result, RuleType
from lictor.core.raw import Json, JsonObject

if TYPE_CHECKING:
    from lictor.core.compile.context import CompileContext
    from lictor.core.errors import LictorError
    from lictor.core.families.explanation import RuleExplanation
    from lictor.core.families.policy_status import PolicyFacts
    from lictor.core.lang.wasm_module import Modules
    from lictor.core.lang.watch import ClosureAnswer
    from lictor.core.model.finding import Finding
    from lictor.core.model.program import CleanupProgram, Program

_Record = TypeVar("_Record")
# Fields that a record has for the sake of other versions.
AbsentFields: TypeAlias = Mapping[type[msgspec.Struct], frozenset[str]]


class PolicyKind(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about one kind of policies, or of objects that belong to policies."""

    family: "Family"
    group: str
    kind: str
    plural: str
    namespaced: bool
    # The versions that a document may have.
    versions: tuple[str, ...]
    # The version that is requested from the API server.
    preferred_version: str
    role: Role = Role.POLICY
    short_name: str = ""
    # Does the API server evaluate such policies itself?
    is_native: bool = False
    # Is it counted and watched together with the policies that are evaluated for requests?
    is_listed: bool = True
    # The phases in which its rules may run.
    phases: tuple[Phase, ...] = ()
    # Kyverno's policies in CEL: which functions and variables expressions have.
    cel_profile: str = ""
    # Have rules names that their authors gave them?
    has_named_rules: bool = False
    # Can rules change existing objects when the policy is created or changed?
    mutates_existing: bool = False
    # Can an admission policy of Kubernetes be generated from it?
    has_native_form: bool = False
    # The CustomResourceDefinition that an installation brings; None for Kubernetes' own kinds.
    crd: CrdShape | None = None
    # Where the webhook serves such policies, and the failure policy of all of them.
    path: WebhookPath | None = None
    failure_policy: str = ""
    # Exceptions: the webhook configuration, and the path, on which changes of them are reviewed.
    review_path: tuple[str, str] | None = None
    # The histogram of evaluation times, if it is not the common one.
    duration_metric: str = ""
    # Uninstall: the finalizer that a controller removes; of a server, the label of the objects
    # that run it, and the Secret of its certificate authority.
    finalizer: str = ""
    parts_label: str = ""
    authority_secret: str = ""
    # A small policy of this kind: compiling it loads what most policies need.
    sample: JsonObject | None = None
    # The source of results in reports.
    report_source: str = "kyverno"
    # The kinds in CEL that Kyverno 1.19 names in its place; empty: the kind is not deprecated.
    successors: str = ""

    def describe_deprecation(self, version: str) -> str:
        """Kyverno's warning about the kind; empty if it is not deprecated."""
        if not self.successors:
            return ""
        return (
            f"{self.group}/{version} {self.kind} is deprecated and will be removed in a future "
            f"release; migrate to {self.successors} (policies.kyverno.io), see "
            "https://kyverno.io/docs/guides/migration-to-cel/"
        )

    @property
    def key(self) -> tuple[str, str]:
        return self.group, self.kind

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
        return self.family.complete_reference(record, made)


def expect_record(record: PolicyRecord, record_type: type[_Record]) -> _Record:
    """The record as one of its family; TypeError for a record of another family."""
    if not isinstance(record, record_type):
        raise TypeError(f"internal error: {record_type} expected, not {type(record).__name__}")
    return record


class Family:
    """A family of policies: its kinds, and what can be done with documents of them.

    A family overrides the methods that its kinds need. Records are of the types that `get_record`
    returns. The lint rules of the families in `core` are in the package `lint`.
    """

    # Unique among all families.
    name: str
    # Whether records may name files; then `locate_files` resolves them.
    names_files = False

    def list_kinds(self) -> tuple[PolicyKind, ...]:
        """The kinds of the family."""
        raise NotImplementedError

    # --- load

    def get_record(self, kind: PolicyKind) -> type[msgspec.Struct]:
        """The type of the records of a kind."""
        raise NotImplementedError

    def find_absent_fields(self, kind: PolicyKind, version: str) -> AbsentFields:
        """The fields of the record that documents of a version do not have."""
        return {}

    def locate_files(self, record: PolicyRecord, folder: str) -> PolicyRecord:
        """The record with the files that it names resolved from the folder of its file."""
        return record

    def locate_document_files(self, document: JsonObject, folder: str) -> JsonObject:
        """The same for a document."""
        return document

    def complete_reference(self, record: PolicyRecord, ref: PolicyRef) -> PolicyRef:
        """The reference to a policy in results, with what the family adds."""
        return ref

    # --- compile

    def compile(self, record: PolicyRecord, context: "CompileContext") -> "Program":
        """Compile a policy; one that is invalid becomes a program that answers `error`."""
        raise NotImplementedError

    def compile_failing(
        self, record: PolicyRecord, error: "LictorError", context: "CompileContext"
    ) -> "Program":
        """A program that answers with the error for all requests that the policy matches."""
        raise NotImplementedError

    def compile_cleanup(self, record: PolicyRecord, context: "CompileContext") -> "CleanupProgram":
        """Compile a policy that deletes on a schedule."""
        raise NotImplementedError

    # --- webhooks

    def is_asked(self, kind: PolicyKind, record: PolicyRecord, *, mutating: bool) -> bool:
        """Is the policy evaluated when objects are changed, or when they are validated?"""
        path = kind.path
        return path is not None and (path.mutating if mutating else path.validating)

    def describe_webhook(self, record: PolicyRecord) -> WebhookMatch | None:
        """The requests for which the webhook of a policy is called; None: there is no webhook."""
        return None

    def describe_shared_webhook(
        self,
        record: PolicyRecord,
        *,
        mutating: bool,
    ) -> SharedWebhookMatch:
        """The same for a policy that shares its webhook with others."""
        return SharedWebhookMatch({})

    def list_named_namespaces(self, record: PolicyRecord) -> Sequence[str] | None:
        """Patterns of the namespaces that a policy names; None: see its match constraints."""
        return None

    def limit_program(self, program: "Program", record: PolicyRecord) -> "Program":
        """The program as it is evaluated on a path that many policies share."""
        return program

    def review_change(self, document: JsonObject, old: JsonObject) -> "Iterable[Finding]":
        """Reasons to deny the change of a policy."""
        return ()

    # --- exceptions

    def names_policy(self, exception: PolicyRecord, kind: PolicyKind, key: str) -> bool:
        """Does the exception name the policy with this kind and key?"""
        return False

    def list_excepted(self, exception: PolicyRecord) -> Iterable[tuple[str, tuple[str, ...]]]:
        """The names of the policies, each with patterns of its rules; no rules: all of them."""
        return ()

    # --- lint, test and explain

    def lint(self, kind: PolicyKind, document: Json) -> "Iterable[Finding]":
        """Mistakes in a document, beyond fields that its record does not have."""
        return ()

    def list_expected_work(self, record: PolicyRecord) -> frozenset[RuleType]:
        """The kinds of results that `lictor test` expects even if the policy returns none."""
        return frozenset()

    def explain(
        self,
        record: PolicyRecord,
        bindings: Sequence[PolicyRecord],
        recorded: "Sequence[ClosureAnswer]",
        results: Sequence[Result],
    ) -> "tuple[RuleExplanation, ...]":
        """Explain each rule, from the recorded answers of its closures."""
        from lictor.core.families.explanation import explain_results

        return explain_results(record, recorded, results)

    # --- metrics and statuses

    def read_mode(self, record: PolicyRecord) -> str:
        """The mode as metrics show it, such as `enforce`; empty: the family has no modes."""
        return ""

    def build_status(
        self,
        kind: PolicyKind,
        record: PolicyRecord | None,
        old: JsonObject,
        facts: "PolicyFacts",
        now: str,
    ) -> JsonObject:
        """The status that a policy should have; `old` is the one it has.

        `now` becomes the time of a transition only if a condition changes its status.
        """
        from lictor.core.families.policy_status import build_condition_status

        return build_condition_status(old, facts, now, has_native_form=kind.has_native_form)

    # --- background work

    def list_generations(self, record: PolicyRecord) -> Iterable[GenerationSettings]:
        """The settings of each rule that generates objects."""
        return ()

    def list_chained_rules(self, record: PolicyRecord) -> Iterable[str]:
        """The rules that also run for objects that lictor itself creates and changes."""
        return ()

    def list_existing_mutations(self, record: PolicyRecord) -> frozenset[str]:
        """The rules that change existing objects when the policy is created or changed."""
        return frozenset()

    def skips_scan(self, record: PolicyRecord) -> bool:
        """Is the policy left out of background scans?"""
        return False

    def list_deletion_targets(self, record: PolicyRecord) -> DeletionTargets:
        """The objects that a policy deletes on a schedule."""
        raise NotImplementedError

    # --- parts in higher tiers, which define their types and check them

    def find_services(self) -> Callable[..., object] | None:
        """Builds the `policies.family_services.FamilyServices` of the family, if it has any."""
        return None

    def find_controllers(self) -> object | None:
        """The `controllers.context.FamilyControllers` of the family, if it has any."""
        return None

    def open_modules(self) -> "Modules | None":
        """The source of the modules that commands run, as the environment configures it."""
        return None
