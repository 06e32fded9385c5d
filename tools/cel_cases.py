"""Answers files of cases, one JSON object per line, for the comparison with other engines."""

import base64
import math
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from cel2.environments import kubernetes_environment
from cel2.faults import CelCompileError
from cel2.library.conversions import format_timestamp
from cel2.library.structs import ObjectValue, to_json
from cel2.program import Environment
from cel2.types import DYN
from cel2.values import (
    INT_MAX,
    INT_MIN,
    NANOSECONDS,
    Duration,
    Opaque,
    Optional,
    Timestamp,
    TypeValue,
    Value,
    decode_key,
)
from lictor.core.errors import EvaluationError

_DECLARED = ("object", "oldObject", "request", "params", "namespaceObject")


def answer_file(cases: Path, output: Path) -> None:
    """Write one answer per case: its id, and a value, an error or a compile_error."""
    with cases.open("rb") as source, output.open("wb") as target:
        for line in source:
            case = orjson.loads(line)
            target.write(orjson.dumps({"id": case["id"], **answer(case)}) + b"\n")


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """The answer to one case."""
    names = sorted({*_DECLARED, *case["variables"], *case.get("declare", ())})
    base = find_environment(
        case["env"], case.get("version") or "", has_patches=bool(case.get("patch"))
    )
    environment = base.extend(dict.fromkeys(names, DYN))
    try:
        program = environment.compile(case["expression"])
    except CelCompileError as error:
        return {"compile_error": str(error)}
    try:
        value = program.evaluate({name: settle(v) for name, v in case["variables"].items()})
        return {"value": show(value)}
    except EvaluationError as error:
        return {"error": str(error)}


@lru_cache(maxsize=8)
def find_environment(name: str, version: str = "", *, has_patches: bool = False) -> Environment:
    """The environment of a case."""
    if name == "kyverno":
        from cel2.kyverno import kyverno_environment

        return kyverno_environment((1, 18) if version == "1.18" else (1, 19))
    release = (1, 35) if version == "1.35" else (1, 37)
    return kubernetes_environment(release, has_patches=has_patches, binary=release)


def settle(value: Value) -> Value:
    """JSON as Kubernetes reads it: integers beyond 64 bits are doubles."""
    if type(value) is int and not INT_MIN <= value <= INT_MAX:
        return float(value)
    if type(value) is dict:
        return {key: settle(item) for key, item in value.items()}
    return [settle(item) for item in value] if type(value) is list else value


def show(value: Value) -> Value:
    """A value as the corpus writes it."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"$double": "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, list):
        return [show(item) for item in value]
    if isinstance(value, dict):
        return {_show_key(decode_key(key)): show(item) for key, item in value.items()}
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
        return {"$optional": [show(value.value)] if value.has_value else []}
    if isinstance(value, TypeValue):
        return {"$type": value.name}
    if isinstance(value, ObjectValue):
        return show(to_json(value))
    return {"$opaque": value.type_name}


if __name__ == "__main__":
    options = dict(zip(sys.argv, sys.argv[1:], strict=False))
    answer_file(Path(options["--cases"]), Path(options["--output"]))
