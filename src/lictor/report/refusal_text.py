"""Which rules of which policies refused a request, and why, as YAML for people to read."""

import re
from collections.abc import Mapping
from functools import cmp_to_key

import yaml

# Text that a YAML reader would take for something else than text.
_OTHER = re.compile(
    r"""
    [yYnN] | yes|Yes|YES | no|No|NO | true|True|TRUE | false|False|FALSE | on|On|ON | off|Off|OFF
    | ~ | null|Null|NULL | [-+]?\.(inf|Inf|INF) | \.(nan|NaN|NAN)
    | [-+]?[0-9][0-9_]* | [-+]?0x[0-9a-fA-F_]+ | [-+]?0o?[0-7_]+ | [-+]?0b[01_]+
    | [-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?
    | [-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?
    | \d{4}-\d{1,2}-\d{1,2}([Tt\s]+\d{1,2}:\d{2}:\d{2}(\.\d+)?(Z|[-+]\d{2}:\d{2})?)?
    """,
    re.VERBOSE,
)
_DIGITS = re.compile(r"\d*")


class _Dumper(yaml.CSafeDumper):
    """Breaks long lines as the tools of Kubernetes do."""


def _represent_text(dumper: yaml.CSafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if "\n" in text:
        style = "|"
    elif not text or _OTHER.fullmatch(text):
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _represent_text)
# Which text needs quotes is decided above: the dumper's own rules quote less.
_Dumper.yaml_implicit_resolvers = {}


def render_refusal(failures: Mapping[str, Mapping[str, str]]) -> str:
    """Policy -> rule -> message, in the order of their names."""
    order = cmp_to_key(_compare)
    ordered = {
        policy: {rule: failures[policy][rule] for rule in sorted(failures[policy], key=order)}
        for policy in sorted(failures, key=order)
    }
    text: str = yaml.dump(
        ordered, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False
    )
    return text


def _compare(left: str, right: str) -> int:
    """Names as Go's YAML orders them: numbers count as numbers, letters come after all else."""
    pairs = enumerate(zip(left, right, strict=False))
    at = next((index for index, (a, b) in pairs if a != b), min(len(left), len(right)))
    if at == min(len(left), len(right)):
        return len(left) - len(right)
    one, other = left[at], right[at]
    if one.isalpha() or other.isalpha():
        if one.isalpha() and other.isalpha():
            return ord(one) - ord(other)
        return 1 if one.isalpha() else -1
    # A nought inside a number is a digit like others; at its beginning it says nothing.
    before = re.search(r"\d*$", left[:at])
    lead = "1" if "0" in (one, other) and before and before[0].strip("0") else ""
    numbers = [_read_digits(name, at) for name in (left, right)]
    values = [int(lead + digits or "0") for digits in numbers]
    if values[0] != values[1]:
        return -1 if values[0] < values[1] else 1
    return len(numbers[0]) - len(numbers[1]) or ord(one) - ord(other)


def _read_digits(name: str, at: int) -> str:
    found = _DIGITS.match(name, at)
    return found[0][:18] if found else ""
