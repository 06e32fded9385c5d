"""Every function with arguments of every type, optionals included: no process dies of it.

All of this runs in child processes, and only errors of lictor may come out of an evaluation.
"""

import json
import os
import re
import signal
from itertools import product

import pytest

from lictor.core.errors import LictorError
from lictor.core.lang.cel.expression import (
    NO_VARIABLES,
    compile_expression,
    declare_variable,
    make_activation,
)
from lictor.core.lang.cel.host import AuthorizerDecision, HostFunctions
from lictor.core.lang.cel.kubernetes import kubernetes_environment
from lictor.core.lang.cel.kyverno import authorization_environment, kyverno_environment

KUBERNETES = (kubernetes_environment(has_patches=True),)
KYVERNO = tuple(
    kyverno_environment(profile, is_namespaced=is_namespaced)
    for profile in ("validating", "mutating", "generating", "deleting", "image")
    for is_namespaced in (False, True)
)
WEB = (authorization_environment("Envoy"), authorization_environment("HTTP"))
OBJECT = {"s": "x", "n": 1, "l": [1, 2], "m": {"a": {"b": 1}}, "none": None}
LARGE = {**OBJECT, "l": list(range(600)), "m": {f"k{n}": n for n in range(600)}}
HOST = HostFunctions(
    get_resource=lambda *_: OBJECT,
    list_resources=lambda *_: {"items": [OBJECT]},
    post_resource=lambda *_: OBJECT,
    find_resource=lambda *_: ("", "v1", "pods"),
    global_context=lambda *_: OBJECT,
    image_data=lambda _: OBJECT,
    http=lambda _: (200, OBJECT),
    generate=lambda *_: None,
    verify_signatures=lambda *_: 1,
    verify_attestations=lambda *_: 1,
    attestation_payload=lambda *_: OBJECT,
    authorize=lambda _: AuthorizerDecision(allowed=True),
)
# Words of the interpreter or of the engine's bindings: an exception of theirs has come through.
LEAK = re.compile(r"exception set|SystemError|Traceback|object at 0x|Python type")

OPTIONALS = (
    "object.?x", "object.?s", "object.l[?9]", "object.l[?0]", "object.m[?'a'].?b", "optional.none()",
    "optional.of(1)", "optional.of(optional.of(1))", "optional.ofNonZeroValue('')", "[1].first()",
    "optional.of({'a': 1})", "object.?s.optMap(v, v)", "object.?x.or(object.?s)",
)  # fmt: skip
PLAIN = (
    "null", "true", "1", "-9223372036854775807", "2u", "1.5", "0.0 / 0.0", "'a'", "'1'", "''", "b'a'", "b'\\x00\\xff'",
    "timestamp('2024-01-02T03:04:05Z')", "duration('1h')", "int", "optional_type", "[]", "[1]", "['a']", "[[1]]", "{}",
    "{'a': 1}", "{1: 'a'}", "{'a': {'b': [1]}}", "quantity('1')", "semver('1.2.3')", "url('https://a/b')", "ip('::1')",
    "cidr('10.0.0.0/8')", "format.dns1123Label()", "object", "object.none", "object.l", "object.nothing",
)  # fmt: skip
HOLDERS = ("[{}]", "{{'a': {}}}", "{{'a': {{'b': [{}]}}}}", "[[{}]]", "{{'k': 1}}.map(k, {})")
HELD = tuple(holder.format(optional) for holder, optional in product(HOLDERS, OPTIONALS[:7]))
# One good value of each declared type, so that a call fails only for the argument in question.
GOOD = {
    "bool": "true", "int": "1", "uint": "1u", "double": "1.5", "string": "'a'", "bytes": "b'a'", "dyn": "dyn('a')",
    "timestamp": "timestamp('2024-01-02T03:04:05Z')", "duration": "duration('1h')", "list": "[]", "map": "{}",
    "kubernetes.Quantity": "quantity('1')", "kubernetes.Semver": "semver('1.2.3')", "net.IP": "ip('::1')",
    "kubernetes.URL": "url('https://a/b')", "net.CIDR": "cidr('10.0.0.0/8')",
    "kubernetes.NamedFormat": "format.dns1123Label()", "kyverno.image": "image('nginx:1')", "http.Context": "http.Client('')",
    "kubernetes.authorization.Authorizer": "authorizer", "kubernetes.authorization.PathCheck": "authorizer.path('/a')",
    "kubernetes.authorization.GroupCheck": "authorizer.group('')",
    "kubernetes.authorization.ResourceCheck": "authorizer.group('').resource('pods')",
    "kubernetes.authorization.Decision": "authorizer.path('/a').check('get')", "Object": "Object{a: 1}",
    "JSONPatch": "JSONPatch{op: 'add'}", "schema.GroupVersionResource": "resource.ToGVR('v1', 'Pod')",
}  # fmt: skip
# The engine's own functions and operators; the braces are arguments of any type.
NATIVE = (
    "size({0})", "type({0})", "string({0})", "int({0})", "uint({0})", "double({0})", "bool({0})", "bytes({0})", "dyn({0})",
    "timestamp({0})", "duration({0})", "{0} == {1}", "{0} != {1}", "{0} in {1}", "{0} < {1}", "{0} + {1}", "{0} - {1}",
    "{0} * {1}", "{0} / {1}", "{0} % {1}", "!{0}", "-{0}", "{0} && {1}", "{0} || {1}", "{0} ? {1} : {1}", "{0}[{1}]",
    "{0}[?{1}]", "{0}.f", "{0}.?f", "has({0}.f)", "{0}.value()", "{0}.hasValue()", "{0}.or({1})", "{0}.orValue({1})",
    "{0}.optMap(v, v)", "{0}.optFlatMap(v, v)", "optional.of({0})", "optional.ofNonZeroValue({0})", "{0}.contains({1})",
    "{0}.startsWith({1})", "{0}.endsWith({1})", "{0}.matches({1})", "{0}.split({1})", "{0}.join({1})", "{0}.join()",
    "{0}.replace({1}, 'x')", "{0}.substring({1})", "{0}.charAt({1})", "{0}.trim()", "{0}.lowerAscii()", "{0}.upperAscii()",
    "{0}.reverse()", "{0}.format({1})", "'%s %v'.format([{0}, {1}])", "'%s'.format([{0}])", "'%d'.format([{0}])",
    "strings.quote({0})", "{0}.flatten()", "{0}.flatten({1})", "{0}.distinct()", "{0}.sort()", "{0}.sortBy(v, v)",
    "{0}.slice({1}, 1)", "{0}.first()", "{0}.last()", "lists.range({0})", "sets.contains({0}, {1})",
    "sets.equivalent({0}, {1})", "sets.intersects({0}, {1})", "math.greatest({0}, {1})", "math.least({0})", "math.abs({0})",
    "math.ceil({0})", "math.isNaN({0})", "math.bitOr({0}, {1})", "math.sign({0})", "math.sqrt({0})", "base64.encode({0})",
    "base64.decode({0})", "{0}.getFullYear()", "{0}.getHours({1})", "{0}.getMilliseconds()", "{0}.all(v, v == {1})",
    "{0}.exists(v, v == {1})", "{0}.exists_one(v, v == {1})", "{0}.map(v, {1})", "{0}.map(v, v, {1})", "{0}.filter(v, {1})",
    "{0}.all(k, v, v == {1})", "{0}.exists(k, v, v == {1})", "{0}.existsOne(k, v, v == {1})", "{0}.transformList(k, v, {1})",
    "{0}.transformList(k, v, v)", "{0}.transformMap(k, v, {1})", "{0}.transformMap(k, v, v)", "{0}.transformMapEntry(k, v, {1})",
    "{0}.transformMapEntry(k, v, {{k: v}})", "cel.bind(b, {0}, b == {1})", "[{0}, {1}]", "[?{0}, {1}]", "{{'a': {0}, 'b': {1}}}",
    "{{?'a': {0}}}", "{{{0}: {1}}}", "variables.v == {0}",
)  # fmt: skip
# Ways that a value takes, after which it is the same value, or what is inside it.
ROUTES = (
    "{0}", "dyn({0})", "[{0}][0]", "{{'a': {0}}}.a", "[{0}].map(v, v)[0]", "[{0}].filter(v, true)[0]", "[1].map(v, {0})[0]",
    "(object.n == 1 ? dyn({0}) : dyn(1))", "[[{0}]].flatten()[0]", "([{0}] + [{0}])[0]", "[{0}].slice(0, 1)[0]",
    "[{0}].distinct()[0]", "[{0}].reverse()[0]", "optional.of({0}).value()", "optional.of({0}).orValue(dyn(1))", "dyn({0}).orValue(dyn(1))",
    "dyn({0}).or(optional.of(dyn(1)))", "optional.of([{0}]).value()[0]", "{{'a': {0}}}[?'a'].value()", "{{'a': {0}}}.?a.value()",
    "[{0}].first().value()", "[1].transformList(i, v, {0})[0]", "{{'a': 1}}.transformMap(k, v, {0}).a", "cel.bind(b, {0}, b)",
    "optional.of(1).optMap(v, {0}).value()", "optional.of(1).optFlatMap(v, optional.of({0})).value()", "variables.held.a", "variables.held.map(k, variables.held[k])[0]",
    "dyn([{0}]).orValue(optional.none()).orValue([dyn(0)])[0]", "optional.none().orValue({0})", "object.x.orValue({0})", "optional.of({0})",
    "{{'a': {0}}}.map(k, {{'a': {0}}}[k])[0]", "object.m.map(k, {0})[0]", "object.m.transformList(k, v, {0})[0]", "{{'a': {0}}}.transformList(k, v, v)[0]",
    "object.l.map(v, {0})[0]", "[?optional.of({0})][0]", "{{?'a': optional.of({0})}}.a", "[[{0}]].map(v, v.map(w, w)[0])[0]",
)  # fmt: skip
CROSSINGS = (
    "{0}", "[1].indexOf(dyn({0}))", "[dyn({0})].isSorted()", "dyn([{0}]).sum()", "object.l.lastIndexOf({0})", "[{0}]", "{{'a': {0}}}",
    "{0}.find('a')", "dyn({0}) == {0}", "has({0}.a)",
)  # fmt: skip
KYVERNO_CROSSINGS = (
    "json.marshal({0})", "json.unmarshal(dyn({0}))", "gzip.compress({0})", "http.Post('http://x', {{'a': dyn({0})}})",
    "listObjToMap([{{'a': dyn({0})}}], [{{'b': 1}}], 'a', 'b')", "resource.Post('v1', 'pods', 'ns', {{'a': dyn({0})}})",
)  # fmt: skip


def list_calls(overload):
    """Calls of a function with each of its arguments of every type, the others good."""
    good = [GOOD.get(kind.runtime_name, GOOD.get(kind.name, "dyn(1)")) for kind in overload.params]
    for place in range(len(good)):
        for given in (*PLAIN, *wrap_in_dyn((*OPTIONALS[:7], *HELD[::4], *PLAIN[::3]))):
            yield write_call(overload, [*good[:place], given, *good[place + 1 :]])
    yield write_call(overload, good)


def write_call(overload, given):
    if overload.is_member:
        return f"{given[0]}.{overload.name}({', '.join(given[1:])})"
    return f"{overload.name}({', '.join(given)})"


def list_function_cases(environments, before):
    """Each function of these environments once, without those of the ones before."""
    seen = {overload for environment in before for overload in environment.list_overloads()}
    for environment in environments:
        for overload in environment.list_overloads():
            if overload not in seen and overload.name[0].isalpha() and "@" not in overload.name:
                seen.add(overload)
                yield from ((environment, text, "1") for text in list_calls(overload))


def wrap_in_dyn(samples):
    """Values as they are, and such that the checker does not know their type."""
    for sample in samples:
        yield sample
        yield f"dyn({sample})"


def list_native_cases(environment):
    samples = (*PLAIN, *wrap_in_dyn((*OPTIONALS[:7], *HELD[::4], "'%s'.format([b'\\xff'])")))
    for template in NATIVE:
        others = ("1", "dyn(object.l[?9])")
        for one, other in product(samples, others if "{1}" in template else ("1",)):
            yield environment, template.format(one, other), other


def list_route_cases(environment, crossings):
    for route, crossing, value in product(ROUTES, crossings, OPTIONALS[1:9:2]):
        yield environment, crossing.format(route.format(value)), f"{{'a': {value}}}"


def answer(environment, text, held, values):
    """What is wrong with how an expression ends; empty if it has a value or an error of ours."""
    try:
        variables = declare_variable(NO_VARIABLES, "held", held, environment)
        variables = declare_variable(variables, "v", "object.?s", environment)
        json.dumps(compile_expression(text, environment, variables)(values, HOST))
    except LictorError as error:
        return str(error) if LEAK.search(str(error)) else ""
    except Exception as error:  # noqa: BLE001  (that is what is looked for)
        return repr(error)
    return ""


def find_deaths(cases, given):
    """The cases that end a process, or let an exception through, and how."""
    cases, found, start = list(cases), [], 0
    while start < len(cases):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            values = make_activation({"object": given})
            for number, (environment, text, held) in enumerate(cases[start:], start):
                os.write(writer, json.dumps([number, ""]).encode() + b"\n")
                wrong = answer(environment, text, held, values)
                if wrong:
                    os.write(writer, json.dumps([number, wrong[:200]]).encode() + b"\n")
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as lines:
            told = [json.loads(line) for line in lines]
        found += [(cases[number][1], wrong) for number, wrong in told if wrong]
        start = told[-1][0] + 1
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status < 0:
            found.append((cases[start - 1][1], signal.Signals(-status).name))
    return found


@pytest.mark.parametrize(
    ("environments", "before"),
    [(KUBERNETES, ()), (KYVERNO, ()), (WEB, KYVERNO)],
    ids=("kubernetes", "kyverno", "web"),
)
def test_our_functions_survive_every_type(environments, before):
    assert find_deaths(list_function_cases(environments, before), OBJECT) == []


@pytest.mark.parametrize("environment", [KUBERNETES[0], KYVERNO[0]], ids=("kubernetes", "kyverno"))
def test_functions_of_the_engine_survive_every_type(environment):
    assert find_deaths(list_native_cases(environment), OBJECT) == []


@pytest.mark.parametrize("given", [OBJECT, LARGE], ids=("small", "large"))
@pytest.mark.parametrize(
    ("environment", "crossings"),
    [(KUBERNETES[0], CROSSINGS), (KYVERNO[0], (*CROSSINGS[:3], *KYVERNO_CROSSINGS))],
    ids=("kubernetes", "kyverno"),
)
def test_an_optional_reaches_no_function_by_any_way(environment, crossings, given):
    assert find_deaths(list_route_cases(environment, crossings), given) == []
