"""Generate rules as GeneratingPolicies."""

from collections.abc import Iterator

from lictor.addons.convert.document import (
    RuleTrigger,
    find_trigger,
    fold,
    write_metadata,
    write_timeout,
)
from lictor.addons.convert.patching import write_json, write_leaf
from lictor.addons.convert.plan import ConversionContext
from lictor.addons.convert.validating import API_VERSION
from lictor.addons.convert.value import ExpressionScope
from lictor.addons.convert.writing import PolicyVariables, quote
from lictor.core.errors import CompileError
from lictor.core.facts.resource_names import ResourceNames
from lictor.core.model.policy import Clone, CloneList, Generate, Rule
from lictor.core.raw import JsonObject


def convert_to_generating(
    context: ConversionContext,
) -> tuple[tuple[JsonObject, ...], tuple[str, ...]]:
    """The documents and the notes."""
    documents: list[JsonObject] = []
    rules = [rule for rule in context.policy.spec.rules if rule.generate is not None]
    for rule in rules:
        try:
            made = _convert_rule(rule, context)
        except CompileError as error:
            raise CompileError(error.message, where=f"rule {rule.name}") from error
        same = next((each for each in documents if _agree(each, made)), None)
        if same is None:
            documents.append(made)
        else:
            same["spec"]["generate"] += made["spec"]["generate"]
    if len(documents) > 1:
        for document, rule in zip(documents, rules, strict=False):
            document["metadata"]["name"] += f"-{rule.name}".lower()
    return tuple(documents), ()


def _agree(one: JsonObject, other: JsonObject) -> bool:
    mine = {key: value for key, value in one["spec"].items() if key != "generate"}
    return mine == {key: value for key, value in other["spec"].items() if key != "generate"}


def _convert_rule(rule: Rule, context: ConversionContext) -> JsonObject:
    policy, generate = context.policy, rule.generate
    if generate is None:
        raise CompileError("not a generate rule")
    if policy.kind == "Policy":
        raise CompileError("a Policy that generates: it may only do so in its own namespace")
    trigger = find_trigger(rule, None, PolicyVariables(inline=True), context)
    spec: JsonObject = {"matchConstraints": trigger.constraints, **write_timeout(policy)}
    if trigger.conditions:
        spec["matchConditions"] = [
            {"name": name, "expression": fold(text)} for name, text in trigger.conditions
        ]
    evaluation = _evaluation(generate, context)
    if evaluation:
        spec["evaluation"] = evaluation
    expressions = _expressions(generate, trigger, context.names)
    spec["generate"] = [{"expression": text} for text in expressions]
    return {
        "apiVersion": API_VERSION,
        "kind": "GeneratingPolicy",
        "metadata": write_metadata(policy, policy.metadata.name),
        "spec": spec,
    }


def _evaluation(generate: Generate, context: ConversionContext) -> JsonObject:
    spec = context.policy.spec
    existing = generate.generate_existing
    if existing is None:
        existing = spec.generate_existing or bool(spec.generate_existing_on_policy_update)
    switches = {
        "synchronize": generate.synchronize,
        "generateExisting": existing,
        "orphanDownstreamOnPolicyDelete": generate.orphan_downstream_on_policy_delete,
    }
    return {name: {"enabled": True} for name, is_on in switches.items() if is_on}


def _expressions(generate: Generate, trigger: RuleTrigger, names: ResourceNames) -> Iterator[str]:
    if generate.foreach:
        raise CompileError("foreach in generate has no equivalent")
    namespace = write_leaf(generate.namespace, trigger.scope)
    if generate.clone != Clone():
        yield _apply(namespace, _clone(generate, trigger.scope, names))
    elif generate.clone_list != CloneList():
        for text in _clone_list(generate.clone_list, trigger.scope, names):
            yield _apply(namespace, text)
    else:
        yield _apply(namespace, _data(generate, trigger.scope))


def _apply(namespace: str, made: str) -> str:
    return f"generator.Apply({namespace}, [{made}])"


def _data(generate: Generate, scope: ExpressionScope) -> str:
    if not isinstance(generate.data, dict):
        raise CompileError("data that is no object")
    data = dict(generate.data)
    metadata = data.get("metadata")
    metadata = dict(metadata) if isinstance(metadata, dict) else {}
    metadata = {**metadata, "name": generate.name}
    # The namespace is passed separately.
    metadata.pop("namespace", None)
    identity = {"apiVersion": generate.api_version, "kind": generate.kind}
    return write_json({**identity, "metadata": metadata, **_without(data)}, scope)


def _without(data: JsonObject) -> JsonObject:
    return {k: v for k, v in data.items() if k not in ("apiVersion", "kind", "metadata")}


def _clone(generate: Generate, scope: ExpressionScope, names: ResourceNames) -> str:
    if generate.clone.name != generate.name:
        raise CompileError("a copy under another name: CEL cannot change a copy")
    resource = _resource(generate.api_version, generate.kind, names)
    place = [write_leaf(text, scope) for text in (generate.clone.namespace, generate.clone.name)]
    version = quote(generate.api_version)
    return f"resource.Get({version}, {quote(resource)}, {', '.join(place)})"


def _clone_list(cloned: CloneList, scope: ExpressionScope, names: ResourceNames) -> Iterator[str]:
    namespace = write_leaf(cloned.namespace, scope)
    labels = ""
    if cloned.selector is not None:
        if cloned.selector.match_expressions:
            raise CompileError("matchExpressions in a cloneList")
        labels = f", {write_json(dict(cloned.selector.match_labels), scope)}"
    for text in cloned.kinds:
        api_version, _, kind = text.rpartition("/")
        resource = quote(_resource(api_version, kind, names))
        yield f"resource.List({quote(api_version)}, {resource}, {namespace}{labels})"


def _resource(api_version: str, kind: str, names: ResourceNames) -> str:
    group, _, version = api_version.rpartition("/")
    return names.of_kind(group, version, kind).resource
