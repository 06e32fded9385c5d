"""Pieces of CEL that someone who means harm would write."""

from random import Random

from jmespath_texts import ELSEWHERE, VAULT

_TEN = "[1,2,3,4,5,6,7,8,9,10]"
_LONG = "a" * 100


def reach(random: Random) -> str:
    """An object that is not of this namespace, or an address inside."""
    where = random.choice(ELSEWHERE)
    plural = random.choice(("secrets", "configmaps"))
    name = random.choice(
        (
            VAULT,
            f"../../{where}/{plural}/{VAULT}",
            f"..%2f..%2f{where}%2f{plural}%2f{VAULT}",
            "..",
            ".",
            f"{VAULT}?namespace={where}",
            f"{VAULT}/../../../{where}/{plural}/{VAULT}",
        )
    )
    group = random.choice(("v1", "v1/../v1", f"v1/namespaces/{where}", "/v1", "core/v1", "v1 "))
    kind = random.choice((plural, f"../{where}/{plural}", "namespaces", f"{plural}/..", "nodes"))
    body = (
        '{"apiVersion": dyn("v1"), "kind": dyn("ConfigMap"), '
        f'"metadata": dyn({{"generateName": "made-", "namespace": "{where}"}})}}'
    )
    inside = (
        f'resource.Get("v1", "{plural}", "{name}")',
        f'resource.Get("{group}", "{kind}", "{name}")',
        f'resource.Get("v1", "{plural}", object.data.name)',
        f'resource.List("{group}", "{kind}")',
        f'resource.List("v1", "{plural}")',
        f'resource.Post("v1", "configmaps", {body})',
        f'resource.Post("v1", "{kind}", {body})',
        f'resource.Post("rbac.authorization.k8s.io/v1", "rolebindings", {body})',
        f'globalContext.Get("{random.choice(("everywhere", name))}", "")',
        f'image.GetMetadata("127.0.0.1:5000/{where}:latest")',
    )
    # Forms that a policy of a namespace does not have, or should not.
    outside = (
        f'resource.Get("v1", "{plural}", "{where}", "{VAULT}")',
        f'resource.Get("v1", "{plural}", object.data.where, "{VAULT}")',
        f'resource.List("v1", "{plural}", "{where}")',
        f'resource.List("v1", "{plural}", {{"a": "b,{where}"}})',
        f'resource.Post("v1", "configmaps", "{where}", {body})',
        f'http.Get("{address(random)}")',
        f'http.Post("{address(random)}", {{"token": "x"}})',
    )
    return random.choice(inside if random.random() < 0.85 else outside)


def address(random: Random) -> str:
    """An address inside, in one of its spellings; LISTENER stands for one that is being watched."""
    return random.choice(
        (
            "LISTENER",
            "http://127.0.0.1:9443/",
            "http://localhost:8000/metrics",
            "http://0x7f000001:8000/metrics",
            "http://[::ffff:127.0.0.1]:8000/metrics",
            "http://169.254.169.254/latest/meta-data/",
            "https://kubernetes.default.svc/api/v1/secrets",
        )
    )


def grow(random: Random) -> str:
    """One expression that costs far more than it says."""
    depth = random.randint(3, 12)
    return random.choice(
        (
            _nested("all", depth, "true"),
            _nested("map", depth, "1") + ".size() > 0",
            _nested("exists", depth, "false"),
            "lists.range(1000000000).all(x, true)",
            "lists.range(9000).all(a, lists.range(9000).all(b, lists.range(9000).all(c, a >= 0)))",
            "lists.range(10000).map(x, string(x)).join('').size() > 0",
            "lists.range(5000).map(x, lists.range(5000)).flatten().size() > 0",
            "'%.1000000000f'.format([1.0]).size() > 0",
            "'%s'.format([lists.range(9999)]).size() > 0",
            "[[[[1]]]].flatten(1000000000).size() > 0",
            f"'{_LONG}'.replace('', '{_LONG}').replace('', '{_LONG}').replace('a', '{_LONG}').size() > 0",
            f"'{_LONG}'.split('').map(x, '{_LONG}'.split('').map(y, x + y)).size() > 0",
            "lists.range(9999).map(x, string(x)).sort().size() > 0",
            f"'{_LONG}'.matches('(a{{30}}){{30}}')",
            f"'{_LONG}'.matches('(x+x+)+y')",
            f"'{_LONG}'.findAll('a*?').size() > 0",
            f"quantity('{'9' * 5000}').isInteger()",
            "quantity('1e999999999').add(quantity('1')).sign() > 0",
            "duration('9999999999999999h') > duration('1h')",
            f"semver('1.{'9' * 500}.0').major() > 0",
            "random('[a-z]{1000000000}').size() > 0",
            f"json.unmarshal('{'[' * 3000}{']' * 3000}').size() > 0",
            "yaml.parse('a: &a [x,x,x,x,x,x]\\nb: &b [*a,*a,*a,*a]\\nc: [*b,*b,*b,*b]').size() > 0",
            "gzip.decompress(gzip.compress(bytes(lists.range(9999).map(x, 'aaaaaaaa').join('')))).size() > 0",
            "json.marshal(lists.range(9999).map(x, object)).size() > 0",
            "x509.decode('-----BEGIN CERTIFICATE-----').size() > 0",
            "hash.sha256(lists.range(9999).map(x, 'aaaaaaaaaa').join('')) != ''",
            "math.round(1e300, 1000000000) > 0.0",
        )
    )


def loop(random: Random) -> str:
    """Work for each part of the object, on all of the object, within every limit of size."""
    inner = random.choice(
        (
            "object.data[k].size() + json.marshal(object).size() > 0",
            "object.data[k].matches('(a|b|c)*d(e|f)+')",
            "object.data[k].replace('a', 'b').size() > 0",
            "object.data[k].split('').size() > 0",
            "object.data[k].upperAscii() != object.data[k].lowerAscii()",
            "object.data.exists(j, object.data[j] == object.data[k] + 'b')",
            "object.data.all(j, object.data[j].contains(object.data[k] + 'b') == false)",
            "hash.sha256(json.marshal(object.data)) != ''",
            "object.data[k].findAll('a').size() >= 0",
            "'%s%s'.format([object.data, object.data]).size() > 0",
            "base64.encode(bytes(object.data[k])).size() > 0",
            "object.data == object.data && object in [object, object]",
            "[object.data, object.data, object.data].all(x, x == object.data)",
        )
    )
    macro = random.choice(("all", "exists", "exists_one", "filter"))
    if macro == "filter":
        return f"object.data.filter(k, {inner}).size() >= 0"
    return f"object.data.{macro}(k, {inner})"


def nest(random: Random) -> str:
    """An expression that is deep rather than wide."""
    depth = random.choice((10, 25, 100, 1000))
    return random.choice(
        (
            "!" * depth + "true",
            "(" * depth + "true" + ")" * depth,
            "[" * depth + "]" * depth + ".size() > 0",
            "object" + ".a" * depth + " == 1",
            " && ".join(["true"] * depth),
            "(true ? " * depth + "true" + " : false)" * depth,
            "{'a': " * depth + "1" + "}" * depth + ".size() > 0",
            "-" * depth + "1 < 2",
        )
    )


def expression(random: Random) -> str:
    """A condition of any of these kinds."""
    choice = random.random()
    if choice < 0.35:
        return (
            f"'%s'.format([{reach(random)}]) == ''"
            if choice < 0.15
            else f"json.marshal({reach(random)}) == ''"
        )
    if choice < 0.65:
        return loop(random)
    return grow(random) if choice < 0.85 else nest(random)


def doubling(random: Random) -> list[dict[str, str]]:
    """Variables of which each holds the one before at least twice."""
    first = random.choice(("[1,2,3]", "{'a': 1}", "'aaaaaaaaaa'", "[object]", "{'a': object}"))
    form = {
        "[": ("dyn([{0}, {0}])", "{0} + {0}", "dyn([{0}].map(x, [x, x]))"),
        "{": ("dyn({{'a': {0}, 'b': {0}}})", "dyn({{'a': [{0}, {0}]}})"),
        "'": ("{0} + {0}", "{0}.replace('a', 'aaaa')", "[{0}, {0}, {0}].join('')"),
    }[first[0]]
    chosen = random.choice(form)
    made = [{"name": "v0", "expression": first}]
    for number in range(1, random.choice((3, 6, 8, 9, 20, 40))):
        text = chosen.format(f"variables.v{number - 1}")
        made.append({"name": f"v{number}", "expression": text})
    return made


def use_doubled(random: Random, variables: list[dict[str, str]]) -> str:
    """Something that must look at the last of these variables as a whole."""
    last = f"variables.{variables[-1]['name']}"
    return random.choice(
        (
            f"[{last}, {last}].all(x, x == {last})",
            f"{last} == {last}",
            f"{last} in [{last}]",
            f"json.marshal({last}).size() > 0",
            f"'%s'.format([{last}]) != ''",
            f"dyn({last}).size() > 0",
            f"hash.sha256(json.marshal({last})) != ''",
        )
    )


def _nested(macro: str, depth: int, innermost: str) -> str:
    text = innermost
    for number in range(depth):
        text = f"{_TEN}.{macro}(x{number}, {text})"
    return text
