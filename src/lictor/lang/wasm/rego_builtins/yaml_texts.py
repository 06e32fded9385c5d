"""Builtins over YAML, read and written as the library does that Kubernetes and OPA use."""

import yaml

from lictor.errors import FunctionError
from lictor.lang.wasm.rego_builtins.go_format import sprintf
from lictor.lang.wasm.rego_builtins.operands import BuiltinRun, Functions, take_text
from lictor.lang.wasm.rego_values import RegoValue, to_json
from lictor.lang.yaml.build import parse_yaml_text
from lictor.lang.yaml.scalars import resolve_plain
from lictor.raw import Json


class _Dumper(yaml.CSafeDumper):
    """Blocks, keys in order, quotes only where a reader would not see a text."""

    def ignore_aliases(self, data: Json) -> bool:  # noqa: ARG002
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    try:
        is_text = isinstance(resolve_plain(text), str)
    except ValueError:
        is_text = False
    style = '"' if not is_text or not text else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _represent_float(dumper: _Dumper, number: float) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:float", sprintf("%v", [number]))


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(float, _represent_float)


def _unmarshal(_run: BuiltinRun, arguments: list[RegoValue]) -> RegoValue:
    try:
        return parse_yaml_text(take_text(arguments[0]))
    except ValueError as error:
        raise FunctionError(str(error)) from error


def _is_valid(run: BuiltinRun, arguments: list[RegoValue]) -> bool:
    try:
        _unmarshal(run, arguments)
    except FunctionError:
        return False
    return True


def _marshal(_run: BuiltinRun, arguments: list[RegoValue]) -> str:
    text: str = yaml.dump(
        to_json(arguments[0]),
        Dumper=_Dumper,
        default_flow_style=False,
        sort_keys=True,
        allow_unicode=True,
    )
    # A scalar alone is followed by a mark that the document ends.
    return text.removesuffix("...\n")


YAML_BUILTINS: Functions = {
    "yaml.marshal": _marshal,
    "yaml.unmarshal": _unmarshal,
    "yaml.is_valid": _is_valid,
}
