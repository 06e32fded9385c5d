"""Random CEL expressions, evaluated by lictor and by another program, with their differences.

usage: python tools/cel_differential.py --oracle PROGRAM [--env kubernetes] [--seed 1] [--count 10000] [--show 30]

PROGRAM reads cases from `--cases FILE` and writes answers to `--output FILE`, one JSON object per line.
The expressions are made from the signatures of the environment: mostly well typed, sometimes not.
"""

import argparse
import json
import math
import random
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from lictor.cli.cel import answer_case, find_environment
from lictor.core.lang.cel.types import DYN, CelType, list_type, map_type, optional_type

OBJECT = {
    "metadata": {"name": "web-1", "namespace": "shop", "labels": {"app": "web", "tier": "a b"}},
    "spec": {
        "replicas": 3, "zero": 0, "neg": -7, "big": 9007199254740993, "ratio": 1.5, "whole": 2.0,
        "on": True, "off": False, "nothing": None, "text": "hello", "empty": "", "uni": "h\u00e9\u65e5",
        "num": "42", "when": "2023-01-12T10:20:30.5+02:00", "long": "1h30m", "cpu": "1500m", "ip": "10.0.0.1",
        "cidr": "10.0.0.0/8", "url": "https://a.b:80/p%20q?x=1&x=2", "ver": "1.2.3-rc.1", "image": "nginx:1.2@sha256:" + "0" * 64,
        "ints": [3, 1, 2, 2], "strs": ["b", "a", "a"], "floats": [1.5, 0.5], "mixed": [1, "a", None, 2.5, True, [1], {"a": 1}],
        "nested": [[1, 2], [], [3]], "none": [], "emap": {}, "map": {"a": 1, "b": 2}, "deep": {"x": {"y": [{"z": 1}]}},
        "containers": [{"name": "c", "image": "nginx:1.2", "ports": [{"hostPort": 80}]}, {"name": "d", "image": "x/y", "securityContext": {"privileged": False}}],
    },
}  # fmt: skip
PATHS = {
    "int": ["replicas", "zero", "neg", "big", "ints[0]", "map.a", "deep.x.y[0].z", "containers[0].ports[0].hostPort"],
    "double": ["ratio", "whole", "floats[0]"],
    "string": ["text", "empty", "uni", "num", "when", "long", "cpu", "ip", "cidr", "url", "ver", "image", "strs[1]", "containers[0].name"],
    "bool": ["on", "off"],
    "null": ["nothing"],
    "list": ["ints", "strs", "floats", "mixed", "nested", "none", "containers"],
    "map": ["emap", "map", "deep", "containers[1]"],
}  # fmt: skip
LITERALS = {
    "int": ["0", "1", "-1", "2", "7", "100", "9223372036854775807", "-9223372036854775808"],
    "uint": ["0u", "1u", "3u", "18446744073709551615u"],
    "double": ["0.0", "1.5", "-2.5", "1e3", "1e300", "0.1", "-0.0"],
    "string": [
        "''", "'a'", "'b'", "'hello'", "'a,b,,c'", "' x '", "'\u65e5\u672c'", "'1.2.3'", "'42'", "'-1'", "'1e2'", "'true'", "'10.0.0.1'", "'::1'", "'10.0.0.0/8'",
        "'1Gi'", "'250m'", "'https://h/p'", "'nginx:1'", "'a/b@sha256:" + "1" * 64 + "'", "'2020-02-29T23:59:59Z'", "'1h'", "'-30m'", "'%s'", "'%d'", "'[a-z]+'", "'(l+)'", "'.'", "'UTC'",
        "'Europe/Berlin'", "'+05:30'", "'{\"a\":[1,null]}'", "'aGk='", "'dns1123Label'", "'system:serviceaccount:ns:n'",
    ],
    "bytes": ["b''", "b'abc'", "b'\\xff'"],
    "bool": ["true", "false"],
    "null": ["null"],
    "timestamp": ["timestamp('2023-01-12T10:20:30.5Z')", "timestamp('0001-01-01T00:00:00Z')", "timestamp(0)"],
    "duration": ["duration('1h30m')", "duration('0s')", "duration('-1.5s')"],
    "type": ["int", "string", "type(1)", "list", "bool", "null_type"],
    "kubernetes.Quantity": ["quantity('1Gi')", "quantity(object.spec.cpu)", "quantity('-5')", "quantity('0.1')", "quantity('1e20')"],
    "kubernetes.Semver": ["semver('1.2.3')", "semver(object.spec.ver)", "semver('v1.2', true)"],
    "kubernetes.URL": ["url('https://h:8/p?a=b')", "url(object.spec.url)"],
    "kubernetes.NamedFormat": ["format.dns1123Label()", "format.uuid()", "format.date()", "format.qualifiedName()", "format.byte()"],
    "net.IP": ["ip('10.0.0.1')", "ip('2001:db8::1')", "ip(object.spec.ip)"],
    "net.CIDR": ["cidr('10.0.0.0/8')", "cidr('fe80::/64')"],
    "kyverno.image": ["image('nginx')", "image(object.spec.image)", "image('r.io:5000/a/b:1')"],
    "json.Json": ["json"],
    "yaml.Yaml": ["yaml"],
    "user.ServiceAccount": ["parseServiceAccount('system:serviceaccount:ns:n')"],
}  # fmt: skip
SCALARS = ("int", "uint", "double", "string", "bytes", "bool", "null", "timestamp", "duration")
SKIPPED = frozenset(
    (
        "time.now",
        "random",
        "random.random",
        "x509.decode",
        "@not_strictly_false",
        "cel.@mapInsert",
        "@sortByAssociatedKeys",
        "__orValueCompat__",
        "math.@min",
        "math.@max",
        "json.encode",
        "check",
    )
)
BINARY = {"_+_": "+", "_-_": "-", "_*_": "*", "_/_": "/", "_%_": "%", "_==_": "==", "_!=_": "!=", "_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">=", "@in": "in", "_&&_": "&&", "_||_": "||"}  # fmt: skip


class Generator:
    """Makes expressions of a wanted type from the functions of an environment."""

    def __init__(self, seed: int, environment) -> None:
        self.random = random.Random(seed)
        self.overloads = [
            overload
            for function in environment.functions.values()
            for overload in function.overloads
            if function.name not in SKIPPED
            and "kubernetes.authorization" not in str((*overload.params, overload.result))
        ]
        self.by_result: dict[str, list] = {}
        for overload in self.overloads:
            self.by_result.setdefault(
                overload.result.name if overload.result.kind != "param" else "*", []
            ).append(overload)
        self.has_bind = ("bind", 3, True) in environment.macros
        self.locals: list[str] = []

    def expression(self) -> str:
        kind = self.random.choice(
            ["bool", "bool", "int", "string", "double", "list", "map", "optional", "any"]
        )
        return self.make(self.type_for(kind), self.random.choice([1, 2, 2, 3, 3, 4]))

    def type_for(self, kind: str) -> CelType:
        if kind == "list":
            return list_type(self.scalar())
        if kind == "map":
            return map_type(self.scalar(("string", "int", "bool", "uint")), self.scalar())
        if kind == "optional":
            return optional_type(self.scalar())
        return DYN if kind == "any" else self.scalar((kind,))

    def scalar(self, kinds=SCALARS) -> CelType:
        from lictor.core.lang.cel.types import parse_type

        return parse_type(self.random.choice(kinds))

    def make(self, of: CelType, depth: int) -> str:
        roll = self.random.random()
        if roll < 0.04:
            of = self.type_for(
                self.random.choice(["int", "string", "list", "map", "any", "bool", "optional"])
            )
        if of.kind in ("dyn", "param", "error"):
            of = self.type_for(
                self.random.choice(["int", "string", "list", "map", "bool", "double", "optional"])
            )
        if depth <= 0:
            return self.leaf(of)
        made = self.compound(of, depth)
        return f"dyn({made})" if roll > 0.95 else made

    def leaf(self, of: CelType) -> str:
        roll = self.random.random()
        name = of.name
        if self.locals and roll < 0.3:
            return self.random.choice(self.locals)
        if name in PATHS and roll < 0.65:
            path = self.random.choice(PATHS[name])
            if self.random.random() < 0.15:
                path = path.replace(".", ".?", 1) if "." in path else f"?{path}"
            return f"object.spec.{path}"
        if roll > 0.985:
            return self.random.choice(
                [
                    "object.spec.missing",
                    "object.missing.x",
                    "object.spec.text.x",
                    "object.spec.mixed[3]",
                    "params.x",
                    "oldObject",
                ]
            )
        if name == "list":
            return (
                "["
                + ", ".join(self.leaf(of.params[0]) for _ in range(self.random.randrange(4)))
                + "]"
            )
        if name == "map":
            pairs = (
                f"{self.leaf(of.params[0])}: {self.leaf(of.params[1])}"
                for _ in range(self.random.randrange(3))
            )
            return "{" + ", ".join(pairs) + "}"
        if of.is_optional:
            return self.random.choice(
                [
                    f"optional.of({self.leaf(of.params[0])})",
                    "optional.none()",
                    "object.spec.?text",
                    "object.spec.?missing.?x",
                    "object.spec.ints[?1]",
                    "object.spec.map[?'a']",
                ]
            )
        if name in LITERALS:
            return self.random.choice(LITERALS[name])
        return "1"

    def compound(self, of: CelType, depth: int) -> str:
        roll = self.random.random()
        if roll < 0.12:
            return self.leaf(of)
        if roll < 0.2:
            return f"({self.make(self.type_for('bool'), depth - 1)} ? {self.make(of, depth - 1)} : {self.make(of, depth - 1)})"
        if roll < 0.26 and not of.is_optional:
            target = self.make(optional_type(of), depth - 1)
            return f"{target}.{self.random.choice(['value()', f'orValue({self.make(of, depth - 2)})'])}"
        if roll < 0.34:
            return self.selection(of, depth)
        if roll < 0.5:
            return self.macro(of, depth)
        return self.call(of, depth)

    def selection(self, of: CelType, depth: int) -> str:
        container = self.make(
            list_type(of) if self.random.random() < 0.5 else map_type(self.scalar(("string",)), of),
            depth - 1,
        )
        index = self.random.choice(
            [
                "0",
                "1",
                "-1",
                "5",
                "0u",
                "1.0",
                "'a'",
                "'missing'",
                "true",
                "?0",
                "?9",
                "?'a'",
                self.make(self.scalar(("int",)), depth - 2),
            ]
        )
        return self.random.choice(
            [f"{container}[{index}]", f"{container}.a", f"{container}.?a", f"has({container}.a)"]
        )

    def macro(self, of: CelType, depth: int) -> str:
        name = self.random.choice(["x", "y", "v"])
        ranged = self.make(self.type_for(self.random.choice(["list", "list", "map"])), depth - 1)
        self.locals.append(name)
        test = self.make(self.type_for("bool"), depth - 1)
        body = self.make(of.params[0] if of.name == "list" else of, depth - 1)
        self.locals.pop()
        forms = {
            "bool": [f"{ranged}.all({name}, {test})", f"{ranged}.exists({name}, {test})", f"{ranged}.exists_one({name}, {test})", f"{ranged}.all(i, {name}, {test})", f"{ranged}.exists(i, {name}, {test})"],
            "list": [f"{ranged}.map({name}, {body})", f"{ranged}.filter({name}, {test})", f"{ranged}.map({name}, {test}, {body})", f"{ranged}.transformList(i, {name}, {body})", f"{ranged}.sortBy({name}, {body})"],
            "map": [f"{ranged}.transformMap(i, {name}, {body})", f"{ranged}.transformMap(i, {name}, {test}, {body})", f"{ranged}.transformMapEntry(i, {name}, {{i: {body}}})"],
            "optional_type": [f"{self.make(of, depth - 1)}.optMap({name}, {body})", f"{self.make(of, depth - 1)}.optFlatMap({name}, optional.of({body}))"],
        }  # fmt: skip
        if of.name in forms:
            return self.random.choice(forms[of.name])
        if self.has_bind and self.random.random() < 0.5:
            return f"cel.bind({name}, {self.make(self.scalar(), depth - 1)}, {body})"
        return self.call(of, depth)

    def call(self, of: CelType, depth: int) -> str:
        candidates = self.by_result.get(of.name, [])
        if not candidates or self.random.random() < 0.1:
            candidates = self.by_result["*"]
        overload = self.random.choice(candidates)
        args = [self.make(self.concrete(param), depth - 1) for param in overload.params]
        name = overload.name
        if name in BINARY and len(args) == 2:
            return f"({args[0]} {BINARY[name]} {args[1]})"
        if name in ("!_", "-_"):
            return f"{name[0]}({args[0]})"
        if name in ("_[_]", "_[?_]"):
            return f"{args[0]}[{'?' if '?' in name else ''}{args[1]}]"
        if name == "_?_:_":
            return f"({args[0]} ? {args[1]} : {args[2]})"
        if overload.is_member:
            if args[0] in ("json", "yaml"):
                return f"{args[0]}.{name}({', '.join(args[1:])})"
            return f"({args[0]}).{name}({', '.join(args[1:])})"
        return f"{name}({', '.join(args)})"

    def concrete(self, of: CelType) -> CelType:
        from lictor.core.lang.cel.types import rebuild

        if of.kind == "param":
            return self.scalar()
        return rebuild(of, [self.concrete(param) for param in of.params]) if of.params else of


def same(want, got) -> bool:
    """Whether two answers have the same value; lists made from maps may come in any order."""
    if isinstance(want, dict) and isinstance(got, dict):
        if "$opaque" in want or "$opaque" in got:
            return True
        # Keys of types that JSON lacks are written in other ways.
        if want.keys() != got.keys() and any(" object at 0x" in key or "{" in key for key in got):
            return len(want) == len(got)
        return want.keys() == got.keys() and all(same(want[key], got[key]) for key in want)
    if isinstance(want, list) and isinstance(got, list):
        if len(want) == len(got) and all(map(same, want, got)):
            return True
        return sorted(json.dumps(v, sort_keys=True) for v in want) == sorted(
            json.dumps(v, sort_keys=True) for v in got
        )
    if isinstance(want, float) and isinstance(got, float | int):
        return math.isclose(want, got, rel_tol=1e-15)
    return type(want) is type(got) and want == got


def classify(want: dict, got: dict) -> str:
    if "panic" in want:
        return "agree"
    if "value" in want:
        return (
            "agree"
            if "value" in got and same(want["value"], got["value"])
            else f"value, got {next(iter(got))}"
        )
    kind = "compile_error" if "compile_error" in want else "error"
    if "value" in got:
        return f"{kind}, got value"
    return "agree" if kind in got else "stage"


def ask_oracle(program: str, cases: list[dict]) -> list[dict]:
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "cases"), Path(folder, "answers")
        source.write_text("".join(json.dumps(case) + "\n" for case in cases))
        subprocess.run([program, "--cases", source, "--output", target], check=True)
        return [json.loads(line) for line in target.read_text().splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--oracle", required=True)
    parser.add_argument("--env", default="kubernetes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--show", type=int, default=30)
    options = parser.parse_args()
    generator = Generator(options.seed, find_environment(options.env))
    counts: Counter[str] = Counter()
    shown = 0
    for start in range(0, options.count, 5000):
        size = min(5000, options.count - start)
        cases = [
            {
                "id": str(start + n),
                "env": options.env,
                "expression": generator.expression(),
                "variables": {"object": OBJECT},
            }
            for n in range(size)
        ]
        for case, want in zip(cases, ask_oracle(options.oracle, cases), strict=True):
            got = json.loads(json.dumps(answer_case(case)))
            kind = classify(want, got)
            counts[kind] += 1
            if kind not in ("agree", "stage") and shown < options.show:
                shown += 1
                print(
                    f"{case['expression']}\n    {json.dumps(want)[:240]}\n    {json.dumps(got)[:240]}"
                )
    print(options.env, "seed", options.seed, dict(counts))


if __name__ == "__main__":
    main()
