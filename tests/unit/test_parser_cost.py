"""What does it cost to read foreign text? Twice the text costs at most 2.3 times as much, 64 KB at most 50 ms.

YAML costs at most 2 µs per byte.

Each parser gets hostile texts: every piece of its syntax again and again, alone and behind what makes it go
on. The time is that of this thread on the processor, the least of several runs, so that other work does not
count.
"""

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import product
from string import ascii_letters

import pytest

from lictor.addons.apiserver.bodies import read_json
from lictor.addons.apiserver.kinds.custom_kind import compile_path
from lictor.addons.apiserver.lists import find_single_name
from lictor.addons.apiserver.name_rules import check_label_value, check_subdomain
from lictor.addons.apiserver.protobuf import read_protobuf
from lictor.addons.apiserver.request import read_accept
from lictor.addons.apiserver.schemas.schema_validation import has_format
from lictor.addons.kubewarden.family.group_expression import compile_group_expression
from lictor.addons.kubewarden.modules.module_address import parse_module_address
from lictor.addons.web.pages.addresses import read_within
from lictor.cli.mutants import change_expression
from lictor.core.crypto.certificate_chain import read_certificates
from lictor.core.crypto.json_web_token import decode_token, secret_key
from lictor.core.crypto.pem import list_pem_blocks, read_pem
from lictor.core.crypto.signature import compile_key
from lictor.core.errors import LictorError
from lictor.core.evaluate.manifests.message import decode_message
from lictor.core.lang.assertion import compile_assertion
from lictor.core.lang.assertion import compile_expression as compile_assertion_expression
from lictor.core.lang.cel.lexer import read_tokens
from lictor.core.lang.duration import parse_duration
from lictor.core.lang.field_mask import compile_field_mask
from lictor.core.lang.go_number import decode_json, parse_number
from lictor.core.lang.gotime import parse_rfc3339, parse_time
from lictor.core.lang.image_reference import parse_image
from lictor.core.lang.jmespath import compile_query
from lictor.core.lang.kind_selector import compile_kind_selector, parse_kind_selector
from lictor.core.lang.label_selector import parse_label_selector
from lictor.core.lang.patch.pointer import parse_pointer
from lictor.core.lang.pattern import compile_pattern
from lictor.core.lang.pattern.scalar import compile_scalar
from lictor.core.lang.quantity import parse_quantity
from lictor.core.lang.random_text import make_random_text
from lictor.core.lang.regex import compile_regex, compile_template
from lictor.core.lang.schedule import compile_schedule, find_deletion_time
from lictor.core.lang.semver import parse_range, parse_version
from lictor.core.lang.signed_message import read_cose, read_jws
from lictor.core.lang.signed_payload import read_simple_payload, read_statement
from lictor.core.lang.template import compile_template as compile_variables
from lictor.core.lang.template import find_expressions
from lictor.core.lang.url import parse_reference, parse_url
from lictor.core.lang.wildcard import compile_wildcard
from lictor.core.lang.yaml.build import build_yaml
from lictor.core.lang.yaml.plain_json import YamlFault
from lictor.core.load.review import load_review
from lictor.http.limits import find_time_limit
from lictor.images.authorization import parse_challenge
from lictor.images.repository_name import parse_repository

# Three doublings: the larger text costs at most 2.3 ** 3 times as much.
SMALL, LARGE = 4 * 1024, 32 * 1024
MOST_DOUBLING = 2.3
MOST_GROWTH = 2.3**3
# 50 ms for 64 KB; 2 µs for each byte of YAML.
MOST_SECONDS = 0.025
MOST_YAML_SECONDS = LARGE * 2e-6
# What takes no longer for a small text is too fast for its growth to be told from noise.
NOTHING = 0.00005
RUNS = 6
ATTEMPTS = 3
# Other programs share caches and memory with this one; what `cut` takes where there are none.
SLACK = 1.25
USUAL_SECONDS = 0.008
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECRET = [secret_key("secret")]


def match_whole(pattern: str) -> None:
    compile_wildcard(pattern[: LARGE // 64])(pattern.replace("*", "a").replace("?", "b"))


def check_format(name: str, text: str) -> bool:
    return has_format(text, name)


def read_flow(text: str) -> object:
    """YAML whose first collection is closed, so that all of it is read before it is refused."""
    return build_yaml(text + {"{": "}", "[": "]"}.get(text[:1], ""))


# Each with what its texts may begin with, so that the rest is read at all.
PARSERS: dict[str, tuple[Callable[[str], object], tuple[str, ...]]] = {
    "JSON body": (lambda text: read_json(text.encode()), ("", '{"a":"', "[")),
    "JSON text": (decode_json, ("", '{"a":"', "[")),
    "admission review": (lambda text: load_review(text.encode()), ("", '{"request":{"uid":"')),
    "protobuf": (lambda text: read_protobuf(b"k8s\x00" + text.encode()), ("", "\n")),
    "YAML": (read_flow, ("", "{", "[", "{&a a,")),
    "label selector": (parse_label_selector, ("", "a in (", "a=")),
    "field selector": (find_single_name, ("", "metadata.name=")),
    "Accept": (lambda text: read_accept(text.encode()), ("", "application/json;", "a/b,")),
    "WWW-Authenticate": (parse_challenge, ("", "Bearer ", 'Basic realm="')),
    "query string": (lambda text: find_time_limit(text.encode(), 1.0), ("", "timeout=")),
    "time span of the page": (read_within, ("",)),
    "JSONPath": (compile_path, ("", ".", "[?(@", "[?(@.a==", "['")),
    "JSON pointer": (parse_pointer, ("", "/")),
    "JMESPath": (compile_query, ("", "a", "'", "a[?")),
    "assertion expression": (compile_assertion_expression, ("", "a", "'")),
    "assertion tree": (lambda text: compile_assertion({text: 1}), ("", "(", "~.", "a->")),
    "CEL tokens": (read_tokens, ("", "'", "'\\")),
    "CEL mutants": (lambda text: next(change_expression(text), None), ("", "'")),
    "group expression": (
        lambda text: compile_group_expression(text, ("a",)),
        ("", "a()", "(", "a() && ", "/*", "//", "a() /"),
    ),
    "template": (find_expressions, ("", "{{ ", "\\{{")),
    "template with variables": (
        lambda text: compile_variables(text, lambda _: dict),
        ("", "{{a}}"),
    ),
    "pattern of a scalar": (compile_scalar, ("", ">", "1", "a|")),
    "pattern": (lambda text: compile_pattern({text: text, "a": "b"}), ("", "(", "$(./../a")),
    "wildcard": (match_whole, ("", "a", "*", "?")),
    "regular expression": (compile_regex, ("", "(", "[")),
    "template of a replacement": (compile_template, ("", "$")),
    "random text": (lambda text: make_random_text(text, lambda _: 0), ("", "[a-z]{", "(")),
    "Go duration": (parse_duration, ("", "1", "-", "1h")),
    "quantity": (parse_quantity, ("", "1", "1.")),
    "number": (parse_number, ("", "1", "0x", "0x1", "0x1p", "1e", ".")),
    "semantic version": (parse_version, ("", "1.2.", "1.2.3-", "1.2.3+")),
    "range of versions": (parse_range, ("", ">1.0.0 ", "1.0.0 || ")),
    "schedule": (compile_schedule, ("", "* * * * ", "@every ", "TZ=")),
    "deletion time": (lambda text: find_deletion_time(text, NOW), ("", "1h", "2026-01-01T")),
    "time": (parse_rfc3339, ("", "2026-01-01T00:00:00", "2026-01-01T00:00:00.")),
    "layout of a time": (lambda text: parse_time(text, text), ("", "2006-", "Jan ", "_2")),
    "kind selector": (lambda text: compile_kind_selector(parse_kind_selector(text)), ("", "*/")),
    "field mask": (lambda text: compile_field_mask([text]), ("", "a.")),
    "image": (parse_image, ("", "a/", "a.b:1/", "a@sha256:", "[", "a:")),
    "repository": (parse_repository, ("", "a.b/", "a.b:1/")),
    "address of a module": (parse_module_address, ("", "registry://", "https://a/", "file://")),
    "URL": (parse_url, ("", "http://", "http://a/", "http://[", "http://a?", "a:")),
    "reference in a URL": (parse_reference, ("", "//", "?", "#")),
    "PEM": (read_pem, ("", "-----BEGIN A-----\n", "-----BEGIN ", "-----BEGIN A-----\na:")),
    "PEM blocks": (list_pem_blocks, ("", "-----BEGIN A-----\n")),
    "certificates": (read_certificates, ("", "-----BEGIN CERTIFICATE-----\n")),
    "public key": (compile_key, ("", "-----BEGIN PUBLIC KEY-----\n")),
    "token": (lambda text: decode_token(text, SECRET, NOW), ("", "eyJhbGciOiJIUzI1NiJ9.", "a.b.")),
    "JWS": (lambda text: read_jws(text.encode()), ("", '{"payload":"', "{")),
    "COSE": (lambda text: read_cose(text.encode("latin-1", "replace")), ("", "\xd2", "\x84")),
    "simple signing": (lambda text: read_simple_payload(text.encode()), ("", "{")),
    "statement": (lambda text: read_statement(text.encode()), ("", "{")),
    "signed manifest": (decode_message, ("", "H4sI")),
    "name": (check_subdomain, ("", "a", "a.")),
    "label": (check_label_value, ("", "a")),
    **{
        name: (partial(check_format, name), ("", "a", "a@", "1"))
        for name in ("date-time", "duration", "byte", "uri", "email", "ipv6", "mac", "hostname")
    },
}
SIGNS = " \t\n\r.,:;/\\|&!?*+-_=<>()[]{}'\"`^$@%#~0a1"
PIECES = (
    *SIGNS,
    *(
        "\\\\",
        "''",
        '""',
        "\\'",
        '\\"',
        "{{",
        "}}",
        "${",
        "$(",
        "/*",
        "*/",
        "//",
        "/**/",
        "&&",
        "||",
    ),
    *(
        "a.",
        ".a",
        "a,",
        "a:",
        "a=",
        "a b ",
        "a()",
        "a[",
        "[0]",
        "[?",
        "a|",
        "(a",
        "a)",
        "!a",
        "-a",
        "1,",
    ),
    *(
        "a in (",
        "{a:",
        '{"a":',
        "'a'",
        '"a"',
        "a/",
        "%41",
        "1h",
        "1.",
        "1e1",
        "0x",
        "..",
        "2006",
        "\n-",
    ),
    *(
        " \n",
        "\r\n",
        "#\r\n",
        ", ",
        " ,",
        "a\n",
        "a: a\n",
        "é",
        "$1",
        "{{a}}",
        "{{ {a} }}",
        "v1",
        "?a:",
        "?,",
        "?a,",
        "?\n",
    ),
    *("-----BEGIN A-----\n", "a() && ", "a && ", "Basic a=", "metadata.name=a,", "variables.a+"),
)


def list_texts(beginnings: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for beginning in beginnings:
        for piece in PIECES:
            yield beginning, piece


def build(beginning: str, piece: str, size: int, run: int) -> str:
    """A text of this size; no two are the same, as some parsers remember texts."""
    return beginning + piece * ((size - len(beginning)) // len(piece.encode()) - run)


def measure(parse: Callable[[str], object], text: str) -> float:
    begin = time.thread_time()
    with contextlib.suppress(LictorError, ValueError, YamlFault):
        parse(text)
    return time.thread_time() - begin


def find_least(parse: Callable[[str], object], beginning: str, piece: str, size: int) -> float:
    return min(measure(parse, build(beginning, piece, size, run)) for run in range(RUNS))


def find_fault(parse: Callable[[str], object], beginning: str, piece: str) -> str:
    most = MOST_YAML_SECONDS if parse is read_flow else MOST_SECONDS
    small = measure(parse, build(beginning, piece, SMALL, RUNS))
    if small <= NOTHING:
        return ""
    large = measure(parse, build(beginning, piece, LARGE, RUNS))
    if large <= most and large <= MOST_GROWTH * small:
        return ""
    for _ in range(ATTEMPTS):
        small, large = (find_least(parse, beginning, piece, size) for size in (SMALL, LARGE))
        is_fast = large <= most * SLACK * find_slowness()
        if is_fast and large <= MOST_GROWTH * max(small, NOTHING):
            return ""
        # A step, such as RE2's other way of matching long texts, is no growth: twice as much decides.
        if is_fast and find_least(parse, beginning, piece, 2 * LARGE) <= MOST_DOUBLING * large:
            return ""
    return f"{small * 1000:.2f} ms becomes {large * 1000:.1f} ms"


def find_slowness() -> float:
    """How much slower than it should be this machine is now, by a measure of its own."""
    return max(1.0, min(measure(cut, "a" * LARGE) for _ in range(RUNS)) / USUAL_SECONDS)


def cut(text: str) -> object:
    return [(found.start(), found[0], found.lastgroup) for found in re.finditer("(?P<a>.)", text)]


@pytest.mark.parametrize("name", PARSERS)
def test_the_cost_grows_with_the_text(name: str) -> None:
    parse, beginnings = PARSERS[name]
    faults = {
        f"{beginning!r} {piece!r}": fault
        for beginning, piece in list_texts(beginnings)
        if (fault := find_fault(parse, beginning, piece))
    }
    assert not faults


@pytest.mark.parametrize("form", ["{},", "{}=1,", "!{},", "{}!=,", "{}>1,", "{} in (a),"])
def test_requirements_that_differ_are_read_in_time(form: str) -> None:
    keys = ("".join(letters) for letters in product(ascii_letters, repeat=3))
    text = "".join(map(form.format, keys))[:LARGE].rpartition(",")[0]
    least = min(measure(parse_label_selector, text) for _ in range(RUNS))
    assert least <= MOST_SECONDS * SLACK * find_slowness()
