"""Files as bytes: YAML and JSON that is odd, broken, or a bomb; files of the command line."""

import json

from lictor.core.raw import Json
from strategies.json_values import mapping, noise, spoil, text, value
from strategies.policies import cleanup, exception, policy
from strategies.resources import resource
from strategies.source import Source

_SEEDS = (
    "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  labels: {app: web, n: 1e3, y: off}\n",
    "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod}\n- 5\n- [a]\n",
    "a: &x\n  b: 1\nc:\n  <<: *x\n  d: *x\ne: [*x, *x]\n",
    "<<: [{a: 1}, {b: 2}]\na: !!int '5'\nb: !!binary aGk=\nc: !x y\nd: !!float 3\ne: !!null x\n",
    "a: |\n  text\n   more\nb: >-\n  folded\n  lines\nc: 'it''s'\nd: \"\\u00e4\\x41\\ud800\"\n",
    "%YAML 1.1\n---\n? complex\n: key\n? [a, b]\n: c\n...\n---\n# nothing\n---\n- 1\n",
    "1: a\n2.5: b\ntrue: c\nnull: d\n~: e\n.inf: f\n1e400: g\n0x1F: h\n9223372036854775808: i\n",
    "a: 2023-01-01\nb: 0o14\nc: 1_000\nd: .5\ne: +1\nf: -.inf\ng: 012\nh: 0b11\ni: 1:30\nj: =\n",
    '{"apiVersion": "v1", "kind": "Pod", "a": [1, 2.0, 1e3, 1e400, null, true]}',
    "[1, {a: b, a: c}, [], {}, '', \"\"]\n",
    "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: p}\nspec:\n  rules:\n"
    "  - name: r\n    match: {any: [{resources: {kinds: [Pod]}}]}\n"
    "    validate: {message: m, pattern: {metadata: {labels: {app: '?*'}}}}\n",
)  # fmt: skip
_BITS = (
    "---\n", "- ", ": ", "[", "]", "{", "}", "&a ", "*a ", "!!str ", "|\n", ">\n", "\t", "#", "'",
    '"', "\n", " ", "? ", "<<: ", "\ufeff", "\0", "\x85", "\u2028", "%TAG ! x\n", "...\n", ",", "\\",
    "\r\n", "\r", "~", "0x", "1e", "!<x> ", "@", "`", "\x1b",
)  # fmt: skip
_BAD_BYTES = (b"\xff", b"\xc3", b"\xff\xfe", b"\xfe\xff", b"\xed\xa0\x80", b"\x00", b"\xef\xbb\xbf")


def _encode(made: Json, source: Source) -> str:
    try:
        return json.dumps(made, ensure_ascii=source.chance(50), indent=source.pick((None, 1)))
    except (ValueError, RecursionError):
        return "{}"


def _document(source: Source) -> str:
    dice = source.random()
    if dice < 0.4:
        return source.pick(_SEEDS)
    makers = (policy, policy, exception, cleanup, resource, mapping)
    return _encode(source.make(makers), source)


def mutate(source: Source, made: str) -> str:
    """The text after a few accidents."""
    for _ in range(1 + source.count(5)):
        at, size = source.randrange(len(made) + 1), source.count(20)
        dice = source.random()
        if dice < 0.4:
            made = made[:at] + source.pick(_BITS) + made[at:]
        elif dice < 0.6:
            made = made[:at] + made[at + size :]
        elif dice < 0.75:
            made = made[:at] + made[at : at + size] * 2 + made[at + size :]
        elif dice < 0.9:
            made = made[:at] + text(source) + made[at:]
        else:
            made = made[:at] + noise(source) + made[at:]
    return made


def _bomb(source: Source) -> str:
    size = source.pick((10, 150, 250, 3000, 30_000))
    levels = source.randrange(2, 12)
    laughs = "".join(
        f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, levels)
    )
    forms = (
        "- " * size + "a",
        "[" * size + "]" * source.pick((0, size)),
        '{"a":' * size + "1" + "}" * source.pick((0, size)),
        "? " * size,
        "a: " * size,
        "".join(" " * level + "a:\n" for level in range(min(size, 3000))),
        "&a [" * size + "*a" + "]" * size,
        "a0: &a0 [x, x]\n" + laughs,
        "a0: &a0 {x: y}\n" + "".join(f"a{n}: &a{n} {{<<: *a{n - 1}}}\n" for n in range(1, levels)),
        "---\n" * size,
        "a: 1\n" * min(size, 5000),
        "x" * size + ": " + "9" * size,
        "'" * size,
        "#" * size + "\n" * size,
        "!!" * size,
        "&" * size + "a " * size,
        "\n" * size + "a: {" + "b, " * size,
    )
    return source.pick(forms)


def yaml_bytes(source: Source) -> bytes:
    """A file: documents, whole or damaged, now and then not even text."""
    if source.chance(5):
        return _bomb(source).encode()
    made = source.pick(("---\n", "\n---\n", "")).join(source.several(_document, 3, 1))
    if source.chance(75):
        made = mutate(source, made)
    data = made.encode("utf-8", "surrogatepass" if source.chance(50) else "replace")
    if source.chance(5):
        at = source.randrange(len(data) + 1)
        data = data[:at] + source.pick(_BAD_BYTES) + data[at:]
    if source.chance(3):
        data = made.encode("utf-16", "replace")
    return data


def yaml_text(source: Source) -> str:
    """YAML as it stands in a string of a policy."""
    if source.chance(8):
        return _bomb(source)
    return mutate(source, source.pick(_SEEDS)) if source.chance(70) else text(source)


def _test(source: Source) -> Json:
    return {
        "apiVersion": "cli.kyverno.io/v1alpha1",
        "kind": "Test",
        "metadata": {"name": "t"},
        "policies": ["p.yaml"],
        "resources": ["r.yaml", text(source)],
        "variables": "v.yaml",
        "results": [
            {
                "policy": "p",
                "rule": "r0",
                "kind": "Pod",
                "resources": ["a", text(source)],
                "result": source.pick(("pass", "fail", "skip", "x")),
            }
        ],
        "checks": [{"match": {"policy": mapping(source, 2)}, "assert": mapping(source, 2)}],
    }


def _values(source: Source) -> Json:
    named = {"name": "p", "resources": [{"name": "a", "values": mapping(source, 2)}]}
    rules = [{"name": "r0", "values": mapping(source, 2), "foreachValues": {"a": [1, "b"]}}]
    return {
        "apiVersion": "cli.kyverno.io/v1alpha1",
        "kind": "Values",
        "globalValues": mapping(source, 2),
        "policies": [named | {"rules": rules}],
        "namespaceSelector": [{"name": "ns", "labels": {"a": text(source)}}],
        "subresources": [{"subresource": {"name": "x"}, "parentResource": {"kind": "Pod"}}],
    }


def _user_info(source: Source) -> Json:
    return {
        "apiVersion": "cli.kyverno.io/v1alpha1",
        "kind": "UserInfo",
        "roles": [text(source)],
        "clusterRoles": ["a"],
        "userInfo": {"username": text(source), "groups": ["g"], "extra": {"a": ["b"]}},
    }


def _cluster(source: Source) -> Json:
    return {
        "apiVersion": "cli.kyverno.io/v1alpha1",
        "kind": source.pick(("Context", "ClusterResource")),
        "spec": {"resources": [resource(source)], "images": [{"image": text(source)}]},
    }


def cli_bytes(source: Source) -> bytes:
    """A file that only the command line reads."""
    made = source.make((_test, _values, _user_info, _cluster))
    document = _encode(spoil(source, made, 2), source)
    return (mutate(source, document) if source.chance(40) else document).encode("utf-8", "replace")


def review_bytes(source: Source) -> bytes:
    """An AdmissionReview, or nearly."""
    request = {
        "uid": text(source),
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": source.pick(("CREATE", "UPDATE", "DELETE", "CONNECT", "x")),
        "object": resource(source),
        "oldObject": source.pick((None, value(source))),
        "userInfo": {"username": text(source), "groups": ["a"], "extra": {}},
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    document = _encode(spoil(source, review), source)
    if source.chance(20):
        document = mutate(source, document)
    return (_bomb(source) if source.chance(3) else document).encode("utf-8", "replace")
