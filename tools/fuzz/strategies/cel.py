"""CEL by its grammar, and the kinds of policies that are written in it."""

import json

from lictor.core.raw import Json
from strategies.json_values import MEANINGFUL, text
from strategies.source import Source

_ROOTS = (
    "object", "object.metadata", "object.metadata.name", "object.metadata.labels", "object.spec",
    "object.spec.containers", "object.spec.containers[0].image", "oldObject", "request",
    "request.operation", "request.userInfo.username", "namespaceObject", "variables.a", "params", "nothing",
)  # fmt: skip
_UNARY = (
    "has({}.metadata)", "size({})", "!({})", "-({})", "string({})", "int({})", "double({})", "type({})",
    "bool({})", "timestamp({})", "duration({})", "bytes({})", "quantity({})", "isQuantity({})", "ip({})",
    "isIP({})", "cidr({})", "url({})", "isURL({})", "semver({})", "isSemver({})", "dyn({})", "[{}]",
    "{{'k': {}}}", "({}).orValue('x')", "optional.of({}).hasValue()", "({}).exists(c, c == 1)", "({}).all(c, has(c.name))",
    "({}).map(c, c)", "({}).filter(c, c != null)", "({}).size()", "({}).lowerAscii()", "({}).trim()",
    "({}).split('')", "({}).find('[a-z]+')", "({}).findAll('.')", "({}).isSorted()", "({}).sum()", "({}).min()",
    "({}).distinct()", "({}).flatten()", "({}).reverse()", "({}).format(['a'])", "base64.encode({})",
    "math.abs({})", "({}).getHours()", "json.unmarshal({})", "yaml.parse({})", "sha256({})", "random({})",
    "parseImageReference({})", "image({}).registry()", "resource.Get('v1', 'configmaps', 'ns', {})",
    "globalContext.Get({}, '')", "http.Get({})", "x509.decode({})", "time.now() > {}", "toList({})",
)  # fmt: skip
_BINARY = (
    "{} == {}", "{} != {}", "{} < {}", "{} >= {}", "{} && {}", "{} || {}", "{} + {}", "{} - {}", "{} * {}",
    "{} / {}", "{} % {}", "{} in {}", "{}[{}]", "({}).startsWith({})", "({}).matches({})", "({}).contains({})",
    "({}).replace({}, 'x')", "({}).indexOf({})", "({}).join({})", "{} ? {} : true", "math.greatest({}, {})",
    "quantity({}).add(quantity({}))", "({}).isGreaterThan({})", "listObjToMap({}, {}, 'a', 'b')", "sets.contains({}, {})",
)  # fmt: skip
_LITERALS = (
    "1", "0", "-1", "9223372036854775807", "18446744073709551615u", "1.5", "1e308", "'a'", "''", "true", "null",
    "[]", "[1, 2]", "{}", "{'a': 1}", "b'x'", "r'\\d'", "1u", "'\\u00e4'", "duration('1h')", "type(1)",
)  # fmt: skip
_BITS = (
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ".",
    ",",
    "'",
    '"',
    "?",
    ":",
    "&&",
    "\\",
    "\0",
    "\u00e4",
    "`",
    "a.b.",
    "/*",
)


def _fill(form: str, *parts: str) -> str:
    for part in parts:
        form = form.replace("{}", part, 1)
    return form.replace("{{", "{").replace("}}", "}")


def cel(source: Source, depth: int = 3) -> str:
    """An expression by the grammar."""
    dice = source.random()
    if depth <= 0 or dice < 0.3:
        return source.pick(_ROOTS[:10] if source.chance(85) else _ROOTS)
    if dice < 0.4:
        return source.pick(_LITERALS)
    if dice < 0.5:
        return json.dumps(source.pick(MEANINGFUL))
    if dice < 0.75:
        return _fill(source.pick(_UNARY), cel(source, depth - 1))
    return _fill(source.pick(_BINARY), cel(source, depth - 1), cel(source, depth - 1))


def broken_cel(source: Source) -> str:
    """An expression, or what is left of one."""
    made = cel(source)
    if source.chance(10):
        at = source.randrange(len(made) + 1)
        made = made[:at] + source.pick(_BITS) + made[at + source.count(2) :]
    return made


def _statement(source: Source) -> str:
    """An expression that is true or false, if it is anything."""
    made = broken_cel(source)
    forms = (
        f"dyn({made}) != null",
        f"dyn({made}) == dyn({cel(source)})",
        f"has({made}.name)",
        made,
    )
    return source.pick(forms)


def _parts(source: Source) -> dict[str, Json]:
    made: dict[str, Json] = {}
    if source.chance(40):
        made["variables"] = [{"name": "a", "expression": broken_cel(source)}]
    if source.chance(20):
        made["matchConditions"] = [{"name": "m", "expression": _statement(source)}]
    return made


def _validations(source: Source) -> list[Json]:
    made: list[Json] = []
    for _ in range(1 + source.count(2)):
        each: dict[str, Json] = {"expression": _statement(source)}
        if source.chance(30):
            each["messageExpression"] = f"'a' + string({broken_cel(source)})"
        if source.chance(30):
            each["message"] = text(source)
        made.append(each)
    return made


_RULES: dict[str, Json] = {
    "resourceRules": [
        {
            "apiGroups": ["*"],
            "apiVersions": ["*"],
            "operations": ["CREATE", "UPDATE", "DELETE"],
            "resources": ["*"],
        }
    ]
}


def _validating(source: Source) -> list[Json]:
    spec = {**_parts(source), "matchConstraints": _RULES, "validations": _validations(source)}
    if source.chance(30):
        spec["validationActions"] = [source.pick(("Deny", "Audit", "Warn"))]
    return [_document("policies.kyverno.io/v1", "ValidatingPolicy", spec)]


def _admission(source: Source) -> list[Json]:
    spec = {**_parts(source), "matchConstraints": _RULES, "validations": _validations(source)}
    if source.chance(20):
        spec["auditAnnotations"] = [{"key": "a", "valueExpression": broken_cel(source)}]
    binding = {"policyName": "p", "validationActions": ["Deny"]}
    group = "admissionregistration.k8s.io/v1"
    return [
        _document(group, "ValidatingAdmissionPolicy", spec),
        _document(group, "ValidatingAdmissionPolicyBinding", binding),
    ]


def _mutating(source: Source) -> list[Json]:
    inner = broken_cel(source)
    patch: dict[str, Json] = {
        "patchType": "ApplyConfiguration",
        "applyConfiguration": {
            "expression": source.pick(
                (f"Object{{metadata: Object.metadata{{labels: {inner}}}}}", inner)
            )
        },
    }
    if source.chance(50):
        operation = f"[JSONPatch{{op: 'add', path: '/metadata/labels', value: {inner}}}]"
        patch = {
            "patchType": "JSONPatch",
            "jsonPatch": {"expression": source.pick((operation, inner))},
        }
    spec = {**_parts(source), "matchConstraints": _RULES, "mutations": [patch]}
    return [_document("policies.kyverno.io/v1", "MutatingPolicy", spec)]


def _generating(source: Source) -> list[Json]:
    made = source.pick((f"generator.Apply('ns', [{broken_cel(source)}])", broken_cel(source)))
    spec = {**_parts(source), "matchConstraints": _RULES, "generate": [{"expression": made}]}
    return [_document("policies.kyverno.io/v1", "GeneratingPolicy", spec)]


def _classic(source: Source) -> list[Json]:
    checks = {"expressions": _validations(source)}
    rule = {
        "name": "r0",
        "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
        "validate": {"cel": checks},
    }
    return [_document("kyverno.io/v1", "ClusterPolicy", {"rules": [rule]})]


def _document(api_version: str, kind: str, spec: dict[str, Json]) -> Json:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "p"}, "spec": spec}


def cel_policies(source: Source) -> list[Json]:
    """The documents of one policy in CEL."""
    return source.make((_validating, _validating, _admission, _mutating, _generating, _classic))
