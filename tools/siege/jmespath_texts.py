"""Pieces of variables and JMESPath that someone who means harm would write."""

from random import Random

# Namespaces that the attacker has no rights in, and the objects in them that hold secrets.
ELSEWHERE = ("blue", "kube-system", "lictor", "green")
VAULT = "vault"
_LONG = "a" * 100


def name_elsewhere(random: Random) -> str:
    """Another namespace in one of the many ways to write it."""
    name = random.choice(ELSEWHERE)
    half = len(name) // 2
    return random.choice(
        (
            name,
            f"{{{{ '{name}' }}}}",
            f"{{{{ join('', ['{name[:half]}', '{name[half:]}']) }}}}",
            f"{{{{ to_lower('{name.upper()}') }}}}",
            f"{{{{ trim(' {name} ', ' ') }}}}",
            f"{name[:half]}{{{{ '{name[half:]}' }}}}",
            "{{ request.object.data.where }}",
            "{{ request.object.data.{{ request.object.data.key }} }}",
            "{{ where }}",
            "{{ request.namespace == 'red' && 'blue' }}",
            f"../{name}",
            f"red/../{name}",
            f"%2e%2e/{name}",
            f"red%2f..%2f{name}",
            f"{name}/",
            f" {name}",
            f"{name}\t",
            f"{name[:-1]}?",
            "*",
            "",
        )
    )


def name_object(random: Random) -> str:
    """A name that leads to another object than a name should."""
    where = random.choice(ELSEWHERE)
    return random.choice(
        (
            VAULT,
            f"{{{{ '{VAULT}' }}}}",
            f"../../{where}/secrets/{VAULT}",
            f"..%2f..%2f{where}%2fsecrets%2f{VAULT}",
            f"{{{{ '../../{where}/configmaps/{VAULT}' }}}}",
            f"{VAULT}?namespace={where}",
            f"{VAULT}#",
            f"./{VAULT}/../{VAULT}",
            ".",
            "..",
            "%2e%2e",
            "x" * 300,
            "{{ request.object.data.name }}",
        )
    )


def path_elsewhere(random: Random) -> str:
    """A path of the API server that leads out of the namespace."""
    where = name_elsewhere(random)
    plural = random.choice(("secrets", "configmaps"))
    return random.choice(
        (
            f"/api/v1/namespaces/{where}/{plural}/{VAULT}",
            f"/api/v1/namespaces/{where}/{plural}",
            f"/api/v1/{plural}",
            f"/api/v1/{plural}?fieldSelector=metadata.namespace={where}",
            f"/api/v1/namespaces/red/../{where}/{plural}/{VAULT}",
            f"/api/v1/namespaces/red/{plural}/../../{where}/{plural}/{VAULT}",
            f"/api/v1/namespaces/red/{plural}/..%2f..%2f{where}%2f{plural}%2f{VAULT}",
            f"/api/v1/namespaces/red%2f..%2f{where}/{plural}/{VAULT}",
            f"/api/v1/namespaces/red/%2e%2e/{where}/{plural}/{VAULT}",
            f"/api/v1//namespaces/{where}/{plural}/{VAULT}",
            f"//api/v1/namespaces/{where}/{plural}/{VAULT}",
            f"/apis/../api/v1/namespaces/{where}/{plural}",
            f"/api/v1/namespaces/red/{plural}/{VAULT}/../../../{where}/{plural}/{VAULT}",
            f"/api/v1/watch/namespaces/{where}/{plural}",
            f"/api/v1/namespaces/{where}",
            "/api/v1/namespaces/red/pods/x/proxy/../../../../blue/secrets",
            "/api/v1/nodes",
            "/metrics",
            "/version?{{ request.object.data.where }}",
            "{{ path }}",
        )
    )


def grow(random: Random, depth: int | None = None) -> str:
    """Calls in calls, each of which makes its argument larger."""
    text = f"'{_LONG}'" if random.random() < 0.6 else "to_string(request.object)"
    for _ in range(depth or random.randint(2, 14)):
        text = random.choice(
            (
                f"regex_replace_all('a', {text}, 'aaaaaaaaaa')",
                f"replace_all({text}, 'a', 'aaaaaaaaaaaa')",
                f"join({text}, ['', 'a', 'a', 'a', 'a', ''])",
                f"join('', [{text}, {text}])",
                f"to_string([{text}, {text}])",
                f"base64_encode({text})",
                f"join('', split({text}, '')[*].join(@, ['aa', 'aa']))",
                f"to_string(items({{a: {text}, b: {text}}}, 'key', 'value'))",
                f"to_string(to_array([{text}, {text}, {text}]))",
                f"reverse({text})",
                f"regex_replace_all_literal('', {text}, 'aaaa')",
                f"regex_replace_all('(.*)', {text}, '$1$1$1$1')",
                f"path_canonicalize({text})",
                f"to_upper({text})",
                f"sha256({text})",
            )
        )
    return text


def weigh(random: Random) -> str:
    """One call with numbers or texts that no honest policy has."""
    return random.choice(
        (
            "sum(['1e999999999', '1'])",
            "multiply('1e9999999', '1e9999999')",
            "divide('1', '1e-999999999')",
            "round(`1.5`, `1000000000`)",
            f"add(`{'9' * 400}`, `1`)",
            f"to_number('{'9' * 4000}')",
            "random('[a-z]{1000000000}')",
            "random('((((a{1000}){1000}){1000}){1000})')",
            "truncate('abc', `1e18`)",
            "time_add('2020-01-01T00:00:00Z', '9999999999999h')",
            "time_diff('0001-01-01T00:00:00Z', '9999-12-31T23:59:59Z')",
            f"time_parse('{_LONG}', '{_LONG}')",
            f"semver_compare('1.{'9' * 1000}.0', '>=1.0.0')",
            f"parse_json('{'[' * 3000}{']' * 3000}')",
            "parse_yaml('a: &a [x,x,x,x,x,x,x,x]\\nb: &b [*a,*a,*a,*a,*a,*a]\\nc: [*b,*b,*b,*b,*b]')",
            "parse_yaml('a: &a [*a]')",
            "regex_match('(a{1000}){1000}', 'aaaa')",
            "regex_match('(x+x+)+y', to_string(request.object))",
            f"pattern_match('{'*a' * 500}', '{_LONG}')",
            "x509_decode('-----BEGIN CERTIFICATE-----')",
            "image_normalize(to_string(request.object))",
            "label_match({a: 'b'}, request.object)",
            "object_from_lists(keys(request.object), values(request.object))",
            "items(request.object, 'key', 'value')",
            "lookup(request.object, 'metadata')",
            "is_external_url('http://0x7f.1/')",
        )
    )


def nest(random: Random) -> str:
    """A query that is deep rather than wide."""
    depth = random.choice((8, 16, 30, 60, 300, 5000))
    return random.choice(
        (
            "request.object" + ".a" * depth,
            "[" * depth + "`1`" + "]" * depth,
            "!" * depth + "`true`",
            "(" * depth + "request" + ")" * depth,
            " || ".join(["request.object.x"] * depth),
            "request.object" + "[]" * depth,
            "request" + "[*]" * depth,
            "|".join(["@"] * depth),
            "{a: " * depth + "`1`" + "}" * depth,
            "to_string(" * depth + "`1`" + ")" * depth,
        )
    )


def query(random: Random) -> str:
    """Any of these."""
    return random.choice((grow, weigh, nest))(random)


def doubling(random: Random) -> list[dict[str, object]]:
    """Variables of which each holds the one before at least twice."""
    first = random.choice((["a", "b"], {"a": "b"}, "a" * 50, "{{ request.object }}"))
    made: list[dict[str, object]] = [{"name": "v0", "variable": {"value": first}}]
    form = random.choice(
        (
            "[{0}, {0}]",
            "{{a: {0}, b: {0}}}",
            "[{0}, {0}, {0}, {0}][]",
            "[{0}, {0}] | [@, @]",
            "merge({{a: {0}}}, {{b: {0}}})",
            "items({{a: {0}, b: {0}}}, 'k', 'v')",
            "join('', [to_string({0}), to_string({0})])",
            "[{0}, {0}, {0}]",
        )
    )
    for number in range(1, random.choice((4, 8, 12, 20, 40, 70))):
        path = form.format(f"v{number - 1}")
        made.append({"name": f"v{number}", "variable": {"jmesPath": path}})
    return made
