"""Cleanup policies: their documents, the collections they scan, their permissions."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import msgspec
import orjson

from lictor.core.assembly import compile_cleanups
from lictor.core.errors import LoadError
from lictor.core.facts.resource_names import ResourceNames
from lictor.core.families.kind_facts import DeletionTargets, Role
from lictor.core.families.registry import registry
from lictor.core.lang.kind_selector import KindSelector, compile_kind_selector, parse_kind_selector
from lictor.core.lang.wildcard import has_wildcard
from lictor.core.load.policies import Loaded, has_errors, load_documents
from lictor.core.model.constraints import ResourceRule
from lictor.core.model.finding import Severity
from lictor.core.model.metadata import LabelSelector, PolicyRecord
from lictor.core.model.program import CleanupProgram
from lictor.core.ports import HttpLimits, Lookups
from lictor.core.raw import JsonObject
from lictor.kubernetes.client import Client
from lictor.kubernetes.discovery import Collection
from lictor.kubernetes.rbac import Access, AccessCheck
from lictor.kubernetes.resource import Resource, find_resource

CleanupRecord: TypeAlias = PolicyRecord

_NEEDED = frozenset(("list", "delete"))


class CleanupTarget(msgspec.Struct, frozen=True):
    """A collection to scan: all of it, or one namespace, and only these labels."""

    resource: Resource
    namespace: str = ""
    labels: str = ""


class CleanupTargets(msgspec.Struct, frozen=True):
    """The collections of a policy, and problems with those that it cannot use."""

    found: tuple[CleanupTarget, ...]
    problems: tuple[str, ...] = ()


def find_targets(record: CleanupRecord, served: Sequence[Collection]) -> CleanupTargets:
    """The collections of a policy, each once, in the order in which the policy names them."""
    usable = [each for each in served if each.verbs >= _NEEDED]
    namespace = record.metadata.namespace if registry().of(record).namespaced else ""
    targets = _list_targets(record)
    labels = ",".join(_write_requirements(targets.selector)) if targets.selector else ""
    found: dict[CleanupTarget, None] = {}
    problems: dict[str, None] = {}
    for name, choose in (*_list_kinds(targets), *_list_rules(targets)):
        chosen = choose(usable)
        if not chosen:
            problems[f"{name} cannot be deleted here: no such kind, or none that can be"] = None
        for resource in chosen:
            if namespace and not resource.namespaced:
                problems[f"{name} is cluster-scoped: a namespaced policy cannot use it"] = None
            else:
                found[CleanupTarget(resource, namespace, labels)] = None
    return CleanupTargets(tuple(found), tuple(problems))


_Choose: TypeAlias = Callable[[Sequence[Collection]], list[Resource]]


def _list_targets(record: CleanupRecord) -> DeletionTargets:
    return registry().of(record).family.list_deletion_targets(record)


# --- by kinds


def _list_kinds(targets: DeletionTargets) -> Iterator[tuple[str, _Choose]]:
    for kind in dict.fromkeys(kind for kind, _ in targets.kinds):
        yield f"kind {kind}", _choose_kind(parse_kind_selector(kind))


def _choose_kind(selector: KindSelector) -> _Choose:
    fits = compile_kind_selector(selector)
    any_version = has_wildcard(selector.version)

    def choose(served: Sequence[Collection]) -> list[Resource]:
        found = [
            each.resource
            for each in served
            if (each.preferred or not any_version)
            and fits(each.resource.group, each.resource.version, each.resource.kind, "")
        ]
        if selector.group == "*" and not has_wildcard(selector.kind):
            # Other groups may have a kind of this name, which the author did not mean.
            return [resource for resource in found if resource.group == found[0].group]
        return found

    return choose


# --- by resource rules


def _list_rules(targets: DeletionTargets) -> Iterator[tuple[str, _Choose]]:
    for rule in targets.rules:
        for resource in rule.resources:
            # Subresources are not separate objects: only `pods` remains of `pods/*`.
            name, _, part = resource.partition("/")
            if part in ("", "*"):
                yield f"resource {resource}", _choose_resource(rule, name)


def _choose_resource(rule: ResourceRule, name: str) -> _Choose:
    def choose(served: Sequence[Collection]) -> list[Resource]:
        return [
            each.resource
            for each in served
            if name in ("*", each.resource.plural)
            and _names(rule.api_groups, each.resource.group)
            and _takes_version(rule.api_versions, each)
            and _takes_scope(rule.scope, each.resource)
        ]

    return choose


def _names(patterns: Iterable[str], text: str) -> bool:
    return any(pattern in ("*", text) for pattern in patterns)


def _takes_version(versions: Sequence[str], served: Collection) -> bool:
    # One version of each is enough: the objects are the same in all.
    return served.preferred if "*" in versions else served.resource.version in versions


def _takes_scope(scope: str, resource: Resource) -> bool:
    return scope == "*" or (scope == "Namespaced") == resource.namespaced


def _write_requirements(selector: LabelSelector) -> Iterator[str]:
    """The required labels, in the syntax of the API server's selector."""
    for key, value in selector.match_labels.items():
        yield f"{key}={value}"
    for each in selector.match_expressions:
        values = ",".join(each.values)
        match each.operator:
            case "In":
                yield f"{each.key} in ({values})"
            case "NotIn":
                yield f"{each.key} notin ({values})"
            case "Exists":
                yield each.key
            case "DoesNotExist":
                yield f"!{each.key}"
            case _:
                # The policy does not compile, which is reported elsewhere.
                continue


SELF_SUBJECT_ACCESS_REVIEW = Resource(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    namespaced=False,
)
_AT_ONCE = 8


def ask_for_myself(client: Client) -> AccessCheck:
    """The API server's answer for the identity of this client, ignoring the named user."""

    async def allows(access: Access) -> bool:
        attributes = {
            name: value
            for name, value in msgspec.structs.asdict(access).items()
            if value and name != "user"
        }
        body = {"spec": {"resourceAttributes": attributes}}
        answer = await client.create(SELF_SUBJECT_ACCESS_REVIEW, body)
        return (answer.get("status") or {}).get("allowed") is True

    return allows


async def check_permissions(
    record: CleanupRecord, served: Sequence[Collection], allows: AccessCheck, user: str = ""
) -> tuple[str, ...]:
    """The missing permissions of the controller, which is this user; nothing if there are none."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def ask(target: CleanupTarget, verb: str, name: str) -> str:
        resource = target.resource
        access = Access(
            user,
            verb,
            resource.group,
            resource.plural,
            resource.version,
            namespace=target.namespace,
            name=name,
        )
        async with gate:
            if await allows(access):
                return ""
        what = f"{resource.kind} {name}" if name else resource.kind
        where = f" in namespace {target.namespace}" if target.namespace else ""
        return f"cleanup controller has no permission to {verb} kind {what}{where}"

    wanted = dict.fromkeys(_list_wanted(record, served))
    answers = await asyncio.gather(*(ask(*each) for each in wanted))
    return tuple(answer for answer in answers if answer)


def _list_wanted(
    record: CleanupRecord, served: Sequence[Collection]
) -> Iterator[tuple[CleanupTarget, str, str]]:
    for target in find_targets(record, served).found:
        yield target, "list", ""
        for name in _list_names(record, target.resource):
            yield target, "delete", name


def _list_names(record: CleanupRecord, resource: Resource) -> tuple[str, ...]:
    """The names of objects that a policy selects: a role may be limited to these."""
    names: list[str] = []
    for kind, given in _list_targets(record).kinds:
        if kind.rpartition("/")[2] != resource.kind:
            continue
        if not given or any(has_wildcard(name) for name in given):
            return ("",)
        names += given
    return tuple(names) or ("",)


CLEANUP_KINDS = tuple(map(find_resource, registry().with_role(Role.DELETION)))


def read_cleanup(document: JsonObject) -> CleanupRecord:
    """The record of a document; raises LoadError with all problems."""
    loaded = load_documents(orjson.dumps(document), str(document.get("kind")))
    records = list_cleanups(loaded)
    if has_errors(loaded.problems) or not records:
        texts = [
            f"{each.field}: {each.message}" if each.path else each.message
            for each in loaded.problems
            if each.severity is Severity.ERROR
        ]
        raise LoadError("; ".join(texts) or "not a policy that deletes")
    return records[0]


def list_cleanups(loaded: Loaded) -> tuple[CleanupRecord, ...]:
    """All policies that delete among what was loaded."""
    return tuple(each.record for each in loaded.with_role(Role.DELETION))


def compile_record(
    record: CleanupRecord,
    lookups: Lookups,
    *,
    exceptions: Iterable[PolicyRecord] = (),
    names: ResourceNames,
    http_limits: HttpLimits,
) -> CleanupProgram:
    """The program of a record; raises CompileError if it is invalid."""
    (program,) = compile_cleanups(
        (record, *exceptions),
        lookups=lookups,
        resource_names=names,
        http_limits=http_limits,
    )
    return program
