"""One YAML document in a text, as expressions and patches read it."""

from lictor.lang.go_number import is_number, settle_number
from lictor.lang.yaml.build import Builder
from lictor.lang.yaml.nodes import Fault, check_aliases, compose
from lictor.raw import Json


def parse_yaml_text(text: str) -> Json:
    """Read the first document; ValueError where it is none, or none that JSON can hold."""
    try:
        root = next(compose(text), None)
        if root is None:
            return None
        check_aliases(root)
        return _settle(Builder().build(root))
    except Fault as fault:
        raise ValueError(f"yaml: line {fault.line + 1}: {fault.message}") from fault


def _settle(value: Json) -> Json:
    """Numbers as expressions have them: every number is a float of 64 bits in Go there."""
    if is_number(value):
        return settle_number(value)
    if isinstance(value, dict):
        return {key: _settle(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_settle(item) for item in value]
    return value
