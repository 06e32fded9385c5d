"""The functions of Kubernetes and Kyverno, and since which version they exist."""

import pytest
from cel_rows import FAILS, KYVERNO, REFUSED, evaluate

from lictor.core.lang.cel.host import AuthorizerDecision, HostFunctions, current_host
from lictor.core.lang.cel.kubernetes import build_kubernetes as kubernetes_environment
from lictor.core.lang.cel.kyverno import LATEST, kyverno_environment
from lictor.core.lang.cel.library.host import make_authorizer
from lictor.core.lang.cel.library.structs import to_json
from lictor.core.lang.cel.types import DYN, opaque_type
from lictor.core.lang.cel.values import Optional, TypeValue


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'abc'.substring(0, 3)", "abc"),
        ("'abc'.substring(2, 1)", FAILS),
        ("'abc'.indexOf('', 9)", 3),
        ("'abcabc'.lastIndexOf('c', 3)", 2),
        ("''.split('')", []),
        ("'a,b,c'.split(',', 2)", ["a", "b,c"]),
        ("['a', 'b'].join('-')", "a-b"),
        ("' x\\u00a0'.trim()", "x"),
        ("'aXa'.replace('a', 'b', 1)", "bXa"),
        ("'%s %d %.1f %x %b %o'.format(['a', 1, 2.5, 255, 5, 8])", "a 1 2.5 ff 101 10"),
        ("'%s'.format([[1, 'a', {'k': 1.5}]])", '[1, "a", {"k":1.500000}]'),
        ("'%.1f'.format([1234567.0])", "1,234,567.0"),
        ("'%d'.format([dyn(1.5)])", FAILS),
        ("'hello'.find('l+')", "ll"),
        ("'a1b22'.findAll('[0-9]+')", ["1", "22"]),
        ("[3, 1, 2].isSorted() || [1, 2].sum() == 3", True),
        ("[dyn(1.5), 2].max()", REFUSED),
        ("[].max()", FAILS),
        ("[1, 2, 2].indexOf(2) + [1, 2, 2].lastIndexOf(2)", 3),
        ("dyn(1).includes(1.0) && ['a'].includes('a')", True),
        ("[[[1]], [[2]]].flatten()", [[1], [2]]),
        ("[1, 1.0, true].distinct()", REFUSED),
        ("dyn([1, 2, 1]).distinct()", [1, 2]),
        ("lists.range(-1)", FAILS),
        ("[1, 2, 3].slice(1, 2)", [2]),
        ("sets.contains([1, 2], [2]) && sets.equivalent([1, 1], [1]) && !sets.intersects([1], [2])", True),
        ("ip('::1').isLoopback() && !isIP('::ffff:1.2.3.4')", True),
        ("cidr('10.0.0.0/8').containsIP('10.1.2.3') && cidr('10.0.0.0/8').containsCIDR(cidr('10.1.0.0/16'))", True),
        ("quantity('1.5Gi').isInteger()", False),
        ("quantity('1500m').add(quantity('500m')).compareTo(quantity('2'))", 0),
        ("quantity('1').add(0) == quantity('1')", True),
        ("quantity('1') == quantity('1').add(0)", FAILS),
        ("quantity('1') == quantity('1').add(quantity('0.1'))", FAILS),
        ("semver('v1.2', true).minor()", 2),
        ("semver('1.2.3').isLessThan(semver('1.10.0'))", True),
        ("url('https://h:80/p?a=1&a=2').getQuery()", {"a": ["1", "2"]}),
        ("url('http://h:').getHostname()", "h"),
        ("format.named('dns1123Label').value().validate('A').hasValue()", True),
        ("format.dns1123Label().validate('a-b')", Optional()),
        ("timestamp('2023-01-12T10:20:30Z').getHours('+02:30')", 12),
        ("timestamp('2023-06-12T10:20:30Z').getHours('Europe/Berlin')", 12),
        ("timestamp('2023-01-12T10:20:30Z').getHours('nowhere')", FAILS),
        ("string(timestamp('2023-01-12T10:20:30.5+02:00'))", "2023-01-12T10:20:30.5+02:00"),
        ("string(duration('90m'))", "5400s"),
        ("int('1_0')", REFUSED),
        ("string(1e21) + string(0.1)", "1e+210.1"),
        ("bool('t')", True),
        ("uint(-1)", REFUSED),
        ("google.protobuf.Int32Value{value: 3} == 3", True),
        ("math.abs(1)", REFUSED),
        ("jsonpatch.escapeKey('a')", REFUSED),
    ],
)  # fmt: skip
def test_kubernetes_functions(text, value):
    found = evaluate(text)
    if isinstance(value, Optional):
        assert value.equals(found)
    else:
        assert found is value if value in (REFUSED, FAILS) else found == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("math.greatest(1, 2.5)", 2.5),
        ("math.least([3, 1])", 1),
        ("math.round(2.345, 2)", 2.35),
        ("math.bitShiftRight(-1, 60)", 15),
        ("base64.encode(b'hi') + string(base64.decode('aGk'))", "aGk=hi"),
        ("json.marshal({'b': 1.0, 'a': 1e21}) + json.marshal('<') + json.marshal(object.mixed)", '{"a":1e+21,"b":1}"\\u003c"[1,"a",null]'),
        ("json.unmarshal('{\"a\": 1}').a", 1.0),
        ("json.unmarshal('{')", FAILS),
        ("yaml.parse('a: [1]').a[0]", 1.0),
        ("json.encode(object.ports)", "[80,443]"),
        ("md5('a')", "0cc175b9c0f1b6a831c399e269772661"),
        ("gzip.decompress(gzip.compress('x'))", "x"),
        ("listObjToMap([{'k': 'a'}], [{'v': 1}], 'k', 'v')", {"a": 1}),
        ("listObjToMap([{'k': 'a'}], [], 'k', 'v')", FAILS),
        ("parseServiceAccount('system:serviceaccount:ns:n').Name", "n"),
        ("image('nginx:1@sha256:" + "0" * 64 + "').tag()", "1"),
        ("image('nginx').repository() + image('nginx').identifierWithSeparator()", "library/nginx:latest"),
        ("regex.replace('a-b', '(a)-(b)', r'\\2\\1')", "ba"),
        ("regex.replace('a', 'a', r'\\1')", FAILS),
        ("regex.extractAll('a1b2', '[a-z]([0-9])')", ["1", "2"]),
        ("dyn(1).orValue(2)", 1),
        ("optional.of(1).orValue(object.missing)", FAILS),
        ("time.toCron(timestamp('2023-01-12T10:20:30Z'))", "20 10 12 1 4"),
        ("time.truncate(timestamp('2023-01-12T10:20:30Z'), duration('1h')) == timestamp('2023-01-12T10:00:00Z')", True),
        ("timestamp('2023-01-12T1:20:30Z')", REFUSED),
        ("double('NaN') < 1.0", False),
        ("['in'].map(object, .object)", FAILS),
        ("dyn(1).includes(1)", REFUSED),
    ],
)  # fmt: skip
def test_kyverno_functions(text, value):
    found = evaluate(text, KYVERNO)
    assert found is value if value in (REFUSED, FAILS) else found == value


@pytest.mark.parametrize(
    ("text", "since"),
    [
        ("isIP('a')", 30),
        ("format.uuid()", 31),
        ("[1].all(i, v, true)", 32),
        ("semver('1.2.3')", 33),
        ("[1].distinct()", 34),
        ("[1].sortBy(x, x)", 34),
        ("[1].includes(1)", 37),
    ],
)
def test_functions_have_a_first_version(text, since):
    for minor in range(30, 38):
        found = evaluate(text, kubernetes_environment((1, minor)))
        assert (found is not REFUSED) == (minor >= since)


def test_older_releases_keep_their_language():
    old = kubernetes_environment((1, 35), binary=(1, 35)).extend({"object": DYN})
    assert evaluate("'abc'.indexOf('', 9)", old) == 9
    assert evaluate("lists.range(-1)", old) == []
    assert evaluate("dyn(1).orValue(2)", old) == 1
    assert evaluate("object.`a`", old) is REFUSED
    assert evaluate("json.marshal(null)", kyverno_environment(version=(1, 18))) == "0"
    assert evaluate("regex.extract('a', 'a')", kyverno_environment(version=(1, 18))) is REFUSED


def test_objects_of_mutating_policies():
    environment = kubernetes_environment(has_patches=True).extend({"object": DYN})
    made = evaluate(
        "Object{spec: Object.spec{replicas: 1, ?x: optional.none(), l: [Object.y{a: 1}]}}",
        environment,
    )
    assert to_json(made) == {"spec": {"replicas": 1, "l": [{"a": 1}]}}
    patch = evaluate(
        "[JSONPatch{op: 'add', path: '/' + jsonpatch.escapeKey('a/b~c'), value: object}]",
        environment,
    )
    assert to_json(patch)[0]["path"] == "/a~1b~0c"
    assert evaluate("JSONPatch{op: 1}", environment) is REFUSED
    assert evaluate("Object{a: 1} == Object{a: 1}", environment) is True
    assert evaluate("Thing{}", environment) is REFUSED
    assert to_json({"t": TypeValue("int")}) == {"t": "int"}


def test_the_authorizer_builds_checks():
    asked = []

    def authorize(check):
        asked.append(check)
        return AuthorizerDecision(allowed=check.name == "n", reason="why")

    environment = kubernetes_environment().extend(
        {"authorizer": opaque_type("kubernetes.authorization.Authorizer")}
    )
    text = "authorizer.serviceAccount('ns', 'sa').group('apps').resource('deployments').name('n').check('get').allowed()"
    token = current_host.set(HostFunctions(authorize=authorize))
    assert environment.compile(text).evaluate({"authorizer": make_authorizer()}) is True
    current_host.reset(token)
    assert (asked[0].verb, asked[0].group, asked[0].service_account) == (
        "get",
        "apps",
        ("ns", "sa"),
    )
    assert evaluate("authorizer.path('/x').check('get').allowed()", environment) is FAILS


def test_namespaced_policies_need_not_name_their_namespace():
    namespaced = kyverno_environment("generating", is_namespaced=True, version=LATEST)
    for text in ("resource.Get('v1', 'pods', 'ns', 'n')", "http.get(1)"):
        assert evaluate(text, namespaced) is REFUSED
    for text in (
        # As in Kyverno 1.18, and as in 1.19.
        "generator.apply('ns', [{'a': 1}])",
        "generator.apply([{'a': 1}])",
        "resource.Get('v1', 'pods', 'n')",
        "globalContext.Get('a')",
    ):
        assert evaluate(text, namespaced) is FAILS
