"""`generate`: the objects that a request generates."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from lictor.core.errors import CompileError, EvaluationError, NotProvidedError
from lictor.core.evaluate.conditions import compile_conditions, evaluate_conditions
from lictor.core.evaluate.context import compile_foreach_context
from lictor.core.evaluate.namespace_bounds import check_kind, check_namespace
from lictor.core.evaluate.rule_context import RuleContext, RuleOutcome
from lictor.core.evaluate.validate import ElementNames
from lictor.core.facts.resource_names import builtin_names
from lictor.core.lang.label_selector import compile_label_selector, read_requirements
from lictor.core.model.policy import ForEachGenerate, Generate
from lictor.core.model.program import Case, Check
from lictor.core.model.request import GroupVersionKind
from lictor.core.model.result import Result, SourceRef, Status
from lictor.core.raw import Json, JsonObject

# An object to generate, and its source.
Made: TypeAlias = tuple[JsonObject, SourceRef | None]
Make: TypeAlias = Callable[[Case], Iterator[Made]]

# Metadata that the API server or an owner added to a source is not copied.
_SERVER_FIELDS = ("uid", "selfLink", "creationTimestamp", "managedFields", "resourceVersion")


def compile_generate(generate: Generate, setting: RuleContext) -> Check:
    """The check of a generate rule; a pass means that its objects are to be generated."""
    make = (
        _compile_foreach(generate.foreach, setting)
        if generate.foreach
        else _compile_pattern(generate, setting)
    )

    def check(case: Case) -> tuple[Result, ...]:
        if case.request.object is None:
            return ()
        try:
            made = tuple(make(case))
        except NotProvidedError:
            made = ()  # the rule applies; only a cluster has the source
        except EvaluationError as error:
            return (setting.result(case, RuleOutcome(Status.ERROR, str(error))),)
        result = setting.result(case, RuleOutcome(Status.PASS))
        objects, sources = zip(*made, strict=True) if made else ((), ())
        return (replace(result, generated=objects, sources=sources),)

    return check


def _compile_foreach(blocks: Sequence[ForEachGenerate], setting: RuleContext) -> Make:
    loops = [
        _compile_loop(block, setting, f"generate.foreach[{index}].preconditions")
        for index, block in enumerate(blocks)
    ]

    def make(case: Case) -> Iterator[Made]:
        for loop in loops:
            yield from loop(case)

    return make


def _compile_loop(block: ForEachGenerate, setting: RuleContext, where: str) -> Make:
    elements_of = setting.expressions.query(block.list)
    enter = compile_foreach_context(block.context, setting)
    conditions = compile_conditions(
        block.preconditions, setting.expressions, watch=setting.watch, where=where
    )
    make = _compile_pattern(block, setting)

    def loop(case: Case) -> Iterator[Made]:
        found = elements_of(case.scope)
        for index, element in enumerate(found if isinstance(found, list) else [found]):
            if element is None:
                continue
            scope = case.scope.child(**ElementNames.at(0).bind(element, index))
            scope = enter(scope) if enter is not None else scope
            if (
                conditions is None
                or evaluate_conditions(conditions, scope, "failed to evaluate preconditions")[0]
            ):
                yield from make(case.with_scope(scope))

    return loop


def _compile_pattern(body: Generate | ForEachGenerate, setting: RuleContext) -> Make:
    selector = body.clone_list.selector
    if not body.kind and not body.clone_list.kinds:
        raise CompileError("generate: expected kind or cloneList.kinds, found neither")
    document = setting.expressions.document(
        {
            "apiVersion": body.api_version,
            "kind": body.kind,
            "namespace": body.namespace,
            "name": body.name,
            "data": body.data,
            "clone": {"namespace": body.clone.namespace, "name": body.clone.name},
            "cloneList": {
                "namespace": body.clone_list.namespace,
                "kinds": list(body.clone_list.kinds),
                "matchLabels": {} if selector is None else dict(selector.match_labels),
                "matchExpressions": []
                if selector is None
                else [
                    {"key": e.key, "operator": e.operator, "values": list(e.values)}
                    for e in selector.match_expressions
                ],
            },
        }
    ).fill

    check_places = _compile_places(body, setting.policy.namespace)

    def make(case: Case) -> Iterator[Made]:
        wanted = document(case.scope)
        check_places(wanted)
        for found, source in _sources(wanted, setting):
            yield _label(found, case, setting), source

    return make


def _compile_places(body: Generate | ForEachGenerate, own: str) -> Callable[[JsonObject], None]:
    """Check the namespaces of target and source, which variables may have determined."""
    written = (body.namespace, body.clone.namespace, body.clone_list.namespace)

    def check(wanted: JsonObject) -> None:
        cloned = wanted["cloneList"]
        found = (wanted["namespace"], wanted["clone"]["namespace"], cloned["namespace"])
        if own:
            _check_own(wanted, own)
        elif any(text and not name for text, name in zip(written, found, strict=True)):
            _check_empty(wanted)

    return check


def _check_own(wanted: JsonObject, own: str) -> None:
    check_namespace(wanted["namespace"], own, "what is generated")
    if wanted["clone"]["name"]:
        check_namespace(wanted["clone"]["namespace"], own, "what is copied")
    kinds = [str(text).rpartition("/") for text in wanted["cloneList"]["kinds"]]
    if kinds:
        check_namespace(wanted["cloneList"]["namespace"], own, "what is copied")
    data = _object(wanted["data"])
    # The kind in the data overrides that of the rule.
    version = wanted["apiVersion"] or data.get("apiVersion")
    check_kind(str(version), str(data.get("kind") or wanted["kind"]), own)
    for api_version, _, kind in kinds:
        check_kind(api_version, kind, own)


def _check_empty(wanted: JsonObject) -> None:
    """An empty variable for a namespace must not mean all namespaces or `default`."""
    group, _, version = str(wanted["apiVersion"]).rpartition("/")
    if builtin_names().of_kind(group, version, str(wanted["kind"])).namespaced is not False:
        raise EvaluationError("a variable for a namespace became empty: nothing is generated")


def _sources(wanted: JsonObject, setting: RuleContext) -> Iterator[Made]:
    if wanted["clone"]["name"]:
        yield from _clone(wanted, setting)
    elif wanted["cloneList"]["kinds"]:
        yield from _clone_list(wanted, setting)
    elif wanted["name"]:
        # Without data, such as a ServiceAccount.
        yield _named(_object(wanted["data"]), wanted, str(wanted["name"])), None


def _clone(wanted: JsonObject, setting: RuleContext) -> Iterator[Made]:
    source = wanted["clone"]
    if source["namespace"] == wanted["namespace"] and source["name"] == wanted["name"]:
        return  # an object is not copied onto itself
    found = setting.lookups.resource(
        wanted["apiVersion"], wanted["kind"], source["namespace"], source["name"]
    )
    if found is None:
        raise EvaluationError(
            f"source resource {wanted['apiVersion']} {wanted['kind']} "
            f"{source['namespace']}/{source['name']} not found"
        )
    yield _named(_without_server_fields(found), wanted, str(wanted["name"])), read_source(found)


def _clone_list(wanted: JsonObject, setting: RuleContext) -> Iterator[Made]:
    cloned = wanted["cloneList"]
    if cloned["namespace"] == wanted["namespace"]:
        return
    fits = compile_label_selector(
        cloned["matchLabels"], read_requirements(cloned["matchExpressions"])
    )
    for text in cloned["kinds"]:
        api_version, _, kind = str(text).rpartition("/")
        for found in setting.lookups.resources(api_version, kind, cloned["namespace"]):
            metadata = _object(found.get("metadata"))
            if fits(_object(metadata.get("labels"))):
                target = {**wanted, "apiVersion": found.get("apiVersion"), "kind": kind}
                made = _named(_without_server_fields(found), target, str(metadata.get("name", "")))
                yield made, read_source(found)


def read_source(found: JsonObject) -> SourceRef:
    """An object of the cluster as the source of a copy."""
    metadata = _object(found.get("metadata"))
    names = ("namespace", "name", "uid")
    places = (str(metadata.get(name) or "") for name in names)
    return SourceRef(str(found.get("apiVersion") or ""), str(found.get("kind") or ""), *places)


def _named(body: JsonObject, wanted: JsonObject, name: str) -> JsonObject:
    metadata = {**_object(body.get("metadata")), "name": name}
    if wanted["namespace"]:
        metadata["namespace"] = wanted["namespace"]
    else:
        metadata.pop("namespace", None)
    made = {**body, "kind": body.get("kind") or wanted["kind"], "metadata": metadata}
    if wanted["apiVersion"]:
        made["apiVersion"] = wanted["apiVersion"]
    return made


def _without_server_fields(source: JsonObject) -> JsonObject:
    metadata = _object(source.get("metadata"))
    dropped = (*_SERVER_FIELDS, "ownerReferences")
    return {**source, "metadata": {k: v for k, v in metadata.items() if k not in dropped}}


def _label(made: JsonObject, case: Case, setting: RuleContext) -> JsonObject:
    trigger = case.request.resource
    about = _object(trigger.get("metadata"))
    kind = GroupVersionKind.of(str(trigger.get("apiVersion", "")), str(trigger.get("kind", "")))
    prefix = "generate.kyverno.io"
    labels = {
        **_object(_object(made["metadata"]).get("labels")),
        "app.kubernetes.io/managed-by": "kyverno",
        f"{prefix}/policy-name": setting.policy.name,
        f"{prefix}/policy-namespace": setting.policy.namespace,
        f"{prefix}/rule-name": setting.rule,
        f"{prefix}/trigger-version": kind.version,
        f"{prefix}/trigger-group": kind.group,
        f"{prefix}/trigger-kind": kind.kind,
        f"{prefix}/trigger-namespace": str(about.get("namespace", "")),
        f"{prefix}/trigger-uid": str(about.get("uid", "")),
    }
    return {**made, "metadata": {**made["metadata"], "labels": labels}}


def _object(value: Json) -> JsonObject:
    return value if isinstance(value, dict) else {}
