"""`cel`: evaluates CEL expressions as Kubernetes and Kyverno do."""

import base64
import math
from functools import lru_cache
from pathlib import Path

import click
import orjson

from lictor.cli.flag_command import FlagCommand
from lictor.cli.jp import describe_fault, read_input, read_text
from lictor.cli.lazy_group import LazyCommand, LazyGroup
from lictor.core.errors import (
    LictorError,
    LoadError,
    SyntaxFaultError,
    UsageError,
)
from lictor.core.lang.cel.expression import compile_expression
from lictor.core.lang.cel.kubernetes import Version, build_kubernetes
from lictor.core.lang.cel.kyverno import kyverno_environment
from lictor.core.lang.cel.library.conversions import format_timestamp
from lictor.core.lang.cel.library.plain import admit
from lictor.core.lang.cel.library.structs import ObjectValue, to_json
from lictor.core.lang.cel.program import Environment
from lictor.core.lang.cel.types import DYN
from lictor.core.lang.cel.values import (
    NANOSECONDS,
    Duration,
    Opaque,
    Optional,
    Timestamp,
    TypeValue,
    Value,
    decode_key,
)
from lictor.core.raw import JsonObject
from lictor.core.report.json_text import render_json

_DECLARED = ("object", "oldObject", "request", "params", "namespaceObject")
_LATEST: dict[str, Version] = {"kubernetes": (1, 37), "kyverno": (1, 19)}
_EXAMPLES = """\
# Evaluate an expression on an object
lictor cel eval 'object.spec.replicas > 3' -i deployment.yaml

# As an older release does
lictor cel eval '[1, 2].includes(1)' --kubernetes-version 1.36"""


@click.command(name="eval", cls=FlagCommand, arity=(0, 1), examples=_EXAMPLES)
@click.option("-i", "--input", "path", default="", help="Read `object` from a JSON or YAML file.")
@click.option("--kyverno", is_flag=True, help="Evaluate as a Kyverno policy.")
@click.option("--kubernetes-version", "release", default="", help="A release from 1.30 to 1.37.")
@click.option("--cases", default="", help="Read expressions with variables from a JSONL file.")
@click.option("--output", default="", help="Write one answer per case to a JSONL file.")
def evaluate(
    *, arguments: tuple[str, ...], path: str, kyverno: bool, release: str, cases: str, output: str
) -> None:
    """Evaluate a CEL expression on an object, or a file of cases."""
    if cases:
        if not output or arguments:
            raise UsageError("--cases needs --output, and no expression")
        answer_file(Path(cases), Path(output))
        return
    if not arguments:
        raise UsageError("an expression is required")
    value = read_input(read_text(path), path) if path else None
    environment = find_environment("kyverno" if kyverno else "kubernetes", release)
    declared = environment.extend(dict.fromkeys(_DECLARED, DYN))
    try:
        result = compile_expression(arguments[0], declared)({"object": value})
    except SyntaxFaultError as error:
        raise UsageError(describe_fault(error, arguments[0])) from error
    click.echo(render_json(result, indent=True))


def answer_file(cases: Path, output: Path) -> None:
    """Write one answer per case: its id, and a value, an error or a compile_error."""
    try:
        with cases.open("rb") as source, output.open("wb") as target:
            for line in source:
                case = orjson.loads(line)
                target.write(orjson.dumps({"id": case["id"], **answer_case(case)}) + b"\n")
    except (OSError, ValueError, KeyError) as error:
        raise LoadError(f"failed to read cases: {error}") from error


def answer_case(case: JsonObject) -> JsonObject:
    """The answer to one case."""
    names = sorted({*_DECLARED, *case["variables"], *case.get("declare", ())})
    base = find_environment(
        case["env"], case.get("version") or "", has_patches=bool(case.get("patch"))
    )
    try:
        program = base.extend(dict.fromkeys(names, DYN)).compile(case["expression"])
    except SyntaxFaultError as error:
        return {"compile_error": str(error)}
    try:
        value = program.evaluate({name: admit(v) for name, v in case["variables"].items()})
        return {"value": show_value(value)}
    except LictorError as error:
        return {"error": str(error)}


@lru_cache(maxsize=16)
def find_environment(name: str, release: str = "", *, has_patches: bool = False) -> Environment:
    """The environment of Kubernetes or Kyverno in a release."""
    try:
        major, _, minor = release.partition(".")
        version = (int(major), int(minor)) if release else _LATEST[name]
    except (ValueError, KeyError):
        raise UsageError(f"no release of {name}: {release}") from None
    if name == "kyverno":
        return kyverno_environment(version=version)
    return build_kubernetes(version, has_patches=has_patches, binary=version)


def show_value(value: Value) -> Value:
    """A value as JSON, with marks for what JSON lacks."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"$double": "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, list):
        return [show_value(item) for item in value]
    if isinstance(value, dict):
        return {_show_key(decode_key(key)): show_value(item) for key, item in value.items()}
    return _show_opaque(value) if isinstance(value, Opaque) else value


def _show_key(key: Value) -> str:
    if isinstance(key, Optional):
        return _show_key(key.value) if key.has_value else "<nil>"
    if key is None:
        return "NULL_VALUE"
    return str(key).lower() if isinstance(key, bool) else str(key)


def _show_opaque(value: Opaque) -> Value:
    if isinstance(value, Timestamp):
        return format_timestamp(Timestamp(value.nanoseconds))
    if isinstance(value, Duration):
        sign = "-" if value.nanoseconds < 0 else ""
        seconds, rest = divmod(abs(value.nanoseconds), NANOSECONDS)
        fraction = f".{rest:09d}".rstrip("0") if rest else ""
        return f"{sign}{seconds}{fraction}s"
    if isinstance(value, Optional):
        return {"$optional": [show_value(value.value)] if value.has_value else []}
    if isinstance(value, TypeValue):
        return {"$type": value.name}
    if isinstance(value, ObjectValue):
        return show_value(to_json(value))
    return {"$opaque": value.type_name}


cel = LazyGroup(
    name="cel",
    help="Work with CEL expressions.",
    lazy={"eval": LazyCommand("lictor.cli.cel", "evaluate", "Evaluate an expression.")},
    examples=_EXAMPLES,
)
