"""Inputs written to be read in two ways: cutting them changes nothing, and hides nothing."""

import random
import socket
import threading
from base64 import b64encode

import pytest

from lictor.cli.exit_codes import run
from lictor.cli.inputs.document_reader import DocumentReader
from lictor.cli.inputs.input_files import read_namespace_labels
from lictor.cli.inputs.inputs import Input, KeptInput
from lictor.cli.inputs.resources import may_hide_words
from lictor.cli.inputs.shards import ShardLimits
from lictor.cli.inputs.sources import fetch_url
from lictor.core.errors import LoadError
from lictor.core.raw import JsonObject

WHOLE = ShardLimits(split=1 << 30, document=1 << 30, smallest_shard=1 << 30)
SMALL = ShardLimits(split=150, document=1 << 20, smallest_shard=150)
TINY = ShardLimits(split=60, document=1 << 20, smallest_shard=20)


def make_item(name: str, indent: str = "") -> str:
    return (
        f"{indent}- apiVersion: v1\n{indent}  kind: Pod\n{indent}  metadata: {{name: {name}}}\n"
        f"{indent}  text: |\n{indent}    - no item\n\n# nor this\n"
    )


def make_json(name: str) -> str:
    return f'{{"apiVersion": "v1", "kind": "Pod", "metadata": {{"name": "{name}"}}}}'


GOOD = "".join(map(make_item, "abcde"))
HEAD = "apiVersion: v1\nkind: List\nitems:\n"
JSON_HEAD = '{"apiVersion": "v1", "kind": "List"'
GOOD_JSON = "[" + ",\n".join(map(make_json, "abcde")) + "]"
YAML_POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: z}\n"
FLOW = "{apiVersion: v1, kind: Pod, metadata: {name: bad}}"


def read(content: bytes, bounds: ShardLimits) -> list[JsonObject] | None:
    """All resources; None where something cannot be read."""
    try:
        return list(DocumentReader([KeptInput("f", content)], bounds).list_resources())
    except LoadError:
        return None


HOSTILE_LISTS = {
    "items twice": HEAD + GOOD + "items:\n" + make_item("bad"),
    "items twice, once quoted": HEAD + GOOD + '"items": [' + FLOW + "]\n",
    "items in a text": "apiVersion: v1\nkind: List\nmetadata: {a: '\nitems:\n"
    + GOOD
    + "z'}\nitems:\n"
    + make_item("bad"),
    "another line end": HEAD
    + GOOD
    + "-\rapiVersion: v1\rkind: Pod\rmetadata: {name: x}\ritems: ["
    + FLOW
    + "]\nkind: List\n",
    "the next line of unicode": HEAD
    + GOOD
    + "-\x85apiVersion: v1\x85kind: Pod\x85metadata: {name: x}\x85items: ["
    + FLOW
    + "]\nkind: List\n",
    "items twice in JSON": f'{JSON_HEAD}, "items": {GOOD_JSON}, "items": [{make_json("bad")}]}}',
    "escaped items in JSON": f'{JSON_HEAD}, "items": {GOOD_JSON}, "it\\u0065ms": [{make_json("bad")}]}}',
    "items, then none": f'{JSON_HEAD}, "items": {GOOD_JSON}, "items": {{}}}}',
    "no items": f'{JSON_HEAD}, "itemz": {GOOD_JSON}}}',
    "a comment that ends early": f'# c\r{FLOW}\r---\n{JSON_HEAD}, "items": {GOOD_JSON}}}',
    "comments between values": f"{make_json('a')}\n# c\n{make_json('b')}\n# c\n # d\n",
    "a text that holds items": f'{JSON_HEAD}, "x": "}}\\n{{", "items": {GOOD_JSON}}}',
}


@pytest.mark.parametrize("text", HOSTILE_LISTS.values(), ids=HOSTILE_LISTS)
def test_a_list_that_can_be_read_in_two_ways_is_read_in_one(text: str) -> None:
    whole = read(text.encode(), WHOLE)
    assert whole
    for bounds in (TINY, SMALL):
        cut = read(text.encode(), bounds)
        # Of several values behind a comment, kubectl applies the first; more may be evaluated.
        assert cut == whole or (text.startswith("#") and cut[: len(whole)] == whole)


BROKEN = {
    "before its items": f'{JSON_HEAD}, "metadata": {{"x" "y"}}, "items": {GOOD_JSON}}}',
    "after its items": f'{JSON_HEAD}, "items": [], "metadata": {{"x": "{"y" * 100}", "}}}}',
    "with a sign that no text has": f'{JSON_HEAD}, "items": [], "x": "\0{"y" * 100}"}}',
    "followed by YAML": f'{JSON_HEAD}, "items": [], "x": "{"y" * 100}"}}apiVersion: v1\nitems: []\n',
    "followed by a comment and YAML": f'{JSON_HEAD}, "items": {GOOD_JSON}}}\n# c\n{YAML_POD}',
    "followed by a comment that ends early": f'{JSON_HEAD}, "items": {GOOD_JSON}}}\n# c\r{FLOW}\n',
    "followed by an end that is none": f'{JSON_HEAD}, "items": {GOOD_JSON}}} ...\n{YAML_POD}',
    "followed by null": f'{JSON_HEAD}, "items": {GOOD_JSON}}}\nnull\n',
    "followed by a bracket": f'{JSON_HEAD}, "items": [], "x": "{"y" * 100}"}}]',
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_a_broken_list_is_an_error_and_never_nothing(text: str) -> None:
    assert read(text.encode(), WHOLE) is None
    assert read(text.encode(), TINY) is None


def test_anchors_of_another_item_are_an_error() -> None:
    text = HEAD + "- &a\n" + GOOD[2:] + "- *a\n"
    assert read(text.encode(), TINY) is None


# --- texts with signs put in and lines lost, cut in any way

SIGNS = (
    *('"', "'", "{", "}", "[", "]", ",", ":", "#", "\n", "\r", "\x85", "\u2028", "\t", "\0", "\\"),
    *(
        "- ",
        "-\n",
        "---\n",
        "\n---\n",
        "...\n",
        "\n# x\n",
        "&a ",
        "*a",
        "|\n",
        ">\n",
        "? ",
        "\ufeff",
    ),
    *("items:", "\nitems:\n", "\nitems: []\n", "kind: X\n", '"items":[],', '"kind":"X",', "}\n{"),
    *("<<: *a\n", "!!binary ", "\nnull\n", "{}", "NaN", "1e400", "%YAML 1.1\n", "\\u0041"),
)


def write_something(rng: random.Random) -> str:
    names = [f"p{number}" for number in range(rng.randrange(7))]
    indent = rng.choice(["", "  "])
    match rng.randrange(4):
        case 0:
            return "".join(f"---\n{make_json(name)}\n" for name in names)
        case 1:
            items = "".join(make_item(name, indent) for name in names)
            return f"apiVersion: v1\nitems:\n{items}kind: List\n"
        case 2:
            return f'{JSON_HEAD}, "items": [{", ".join(map(make_json, names))}], "x": ""}}\n'
        case _:
            return "".join(make_json(name) + "\n" for name in names)


def spoil(text: str, rng: random.Random) -> str:
    for _ in range(rng.randrange(3)):
        at = rng.randrange(len(text) + 1)
        lines = text.split("\n")
        line = rng.randrange(len(lines))
        match rng.randrange(4):
            case 0 | 1:
                text = text[:at] + rng.choice(SIGNS) + text[at:]
            case 2:
                text = "\n".join((*lines[:line], rng.choice(lines), *lines[line:]))
            case _:
                text = "\n".join((*lines[:line], *lines[line + 1 :]))
    return text


def test_whatever_is_cut_where_the_same_is_read_or_an_error_told() -> None:
    rng = random.Random(20)
    readable = refused = differing = 0
    for _ in range(1500):
        parts = [write_something(rng) for _ in range(rng.randrange(1, 4))]
        content = spoil(rng.choice(["", "\n", "---\n"]).join(parts), rng).encode()
        whole = read(content, WHOLE)
        readable += whole is not None
        bounds = ShardLimits(rng.choice([60, 300, 900]), 1 << 20, rng.choice([20, 50, 200]))
        cut = read(content, bounds)
        # What is nearly JSON is read as YAML where it is small, and what follows it is not.
        refused += cut is None and whole is not None
        differing += cut is not None and cut != whole
        # What kubectl does not apply may be evaluated, where it is large; nothing is left out.
        assert cut is None or all(each in cut for each in whole or ()), content
    assert differing < 8
    assert 300 < readable < 1200
    assert refused < readable / 25


# --- what costs more than it should


class CountedInput:
    """Bytes in memory that know how many of them were read."""

    path = "f"

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.size = len(content)
        self.read_bytes = 0

    def read(self, start: int, end: int) -> bytes:
        self.read_bytes += end - start
        return self.content[start:end]

    def part(self, path: str, start: int, size: int) -> Input:
        return KeptInput(path, self.content[start : start + size])


def test_a_broken_line_costs_no_more_than_some_lines() -> None:
    lines = 8000
    given = CountedInput(b'{"a":x}\n' * lines)
    assert DocumentReader([given], TINY).count == lines
    assert given.read_bytes < lines * 4000


def test_values_that_never_end_are_given_up() -> None:
    content = b'{"a":[\n' * 80_000
    found = DocumentReader([KeptInput("f", content)])
    # Each line begins a value that all others are within.
    assert len(found.shards) < 400
    assert found.shards[-1].span.end == len(content)
    with pytest.raises(LoadError):
        list(found.list_resources())


POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: names}
spec:
  rules:
  - name: short
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {message: too long, pattern: {metadata: {name: "?????"}}}
"""


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"---\n{make_json(f'p{number}')}\n" for number in range(990, 1010)) * 20,
        HEAD
        + "".join(
            make_item(f"p{number}{'x' * 1300 * (number % 9 == 0)}") for number in range(2500)
        ),
        f'{JSON_HEAD}, "items": [{", ".join(make_json(f"p{number:05}") for number in range(7500))}]}}',
        HOSTILE_LISTS["items twice"].replace("text:", f"text: {'x' * (512 << 10)}\n  more:", 1),
    ],
    ids=["documents", "yaml", "json", "hostile"],
)
def test_any_number_of_processes_and_any_engine_say_the_same(tmp_path, monkeypatch, capsys, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "r.yaml").write_text(text)

    def apply(*flags: str) -> tuple[int, str]:
        code = run(["apply", "policy.yaml", "--output-format", "jsonl", *flags])
        out = capsys.readouterr().out
        assert out
        # Each run has a time of its own.
        return code, "\n".join(line.partition('"time"')[0] for line in out.splitlines())

    plain = apply("-r", "r.yaml", "--parallel", "1")
    assert apply("-r", "r.yaml", "--parallel", "3") == plain
    monkeypatch.setattr("lictor.cli.apply.is_fleet", lambda _: True)
    assert apply("-r", "r.yaml", "--parallel", "2") == plain


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nkind: Pod\n", "could not be fetched"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nki", "could not be fetched"),
        (b"no status\r\n\r\n", "could not be fetched"),
    ],
    ids=["length", "chunks", "status"],
)
def test_half_an_answer_is_an_error(answer: bytes, message: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as connection:
                connection.recv(1 << 16)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(LoadError, match=message):
            fetch_url(f"http://127.0.0.1:{server.getsockname()[1]}/a.yaml")
        thread.join()


def test_an_answer_that_never_ends_is_given_up(monkeypatch) -> None:
    monkeypatch.setattr("lictor.cli.inputs.sources.FETCH_TOTAL_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = threading.Event()

        def serve() -> None:
            with server.accept()[0] as connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\na: b\n")
                done.wait(60)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with pytest.raises(LoadError, match="could not be fetched"):
                fetch_url(f"http://127.0.0.1:{server.getsockname()[1]}/a.yaml")
        finally:
            done.set()
            thread.join()


def test_credentials_of_an_address_stand_in_no_error() -> None:
    with pytest.raises(LoadError, match="could not be fetched") as caught:
        fetch_url("http://me:hunter2@127.0.0.1:1/a.yaml?sig=signature")
    assert "hunter2" not in str(caught.value)
    assert "signature" not in str(caught.value)


@pytest.mark.parametrize("command", ["apply", "lint", "test", "explain"])
@pytest.mark.parametrize(
    "address", ["s3://KEY:hun/ter2@bucket/a.yaml", "git+https://me:hunter2@host.invalid/a/b"]
)
def test_no_command_prints_credentials_of_an_address(capsys, command: str, address: str) -> None:
    given = [address, "-r", address] if command in ("apply", "explain") else [address]
    assert run([command, *given]) != 0
    told = "".join(capsys.readouterr())
    assert address.rpartition("@")[2] in told
    assert "ter2" not in told


def test_a_url_with_user_and_password_is_fetched() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        asked: list[bytes] = []

        def serve() -> None:
            with server.accept()[0] as connection:
                asked.append(connection.recv(1 << 16))
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nkind: Pod")

        thread = threading.Thread(target=serve)
        thread.start()
        place = f"127.0.0.1:{server.getsockname()[1]}"
        found = fetch_url(f"http://me:hunter%402@{place}/a.yaml")
        thread.join()
    assert (found.path, found.content) == (f"http://{place}/a.yaml", b"kind: Pod")
    assert b"authorization: Basic " + b64encode(b"me:hunter@2") in asked[0]


# --- words in another spelling

NAMESPACE = "apiVersion: v1\nkind: {}\nmetadata: {{name: web, labels: {{a: b}}}}\n"
SPELLINGS = {
    "escaped": '"Name\\x73pace"',
    "escaped as in JSON": '"Name\\u0073pace"',
    "escaped at length": '"\\U0000004eamespace"',
    "over two lines": '"Name\\\n  space"',
    "behind another line end": '"Name\\\r  space"',
    "in base64": "!!binary TmFtZXNwYWNl",
    "in base64, by another tag": "!<tag:yaml.org,2002:bin%61ry> TmFtZXNwYWNl",
}


@pytest.mark.parametrize("kind", SPELLINGS.values(), ids=SPELLINGS)
def test_a_namespace_is_found_however_it_is_spelt(kind: str) -> None:
    found = DocumentReader([KeptInput("f", NAMESPACE.format(kind).encode())])
    assert read_namespace_labels(found.find)["web"]["a"] == "b"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_a_namespace_is_found_in_other_encodings(encoding: str) -> None:
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    content = (mark + NAMESPACE.format("Namespace")).encode(encoding)
    found = DocumentReader([KeptInput("f", content)])
    assert read_namespace_labels(found.find)["web"]["a"] == "b"


def test_escapes_make_no_exception_of_a_policy() -> None:
    policy = '---\napiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: "\\x41"}\n'
    exception = '---\napiVersion: kyverno.io/v2\nkind: "PolicyE\\x78ception"\nmetadata: {name: e}\n'
    broken = '---\nkind: "\\x41"\n  x: y\n'
    found = DocumentReader([KeptInput("f", (policy + exception + broken).encode())])
    assert [each.content.decode() for each in found.select(b"PolicyException")] == [exception]


def test_what_serializers_escape_is_not_read_twice() -> None:
    content = b'a: "\\u003cb\\u003e \\"c\\" \\n"\nb: |\n  run \\\n    that\nc: 5 != 4!\n'
    assert not may_hide_words(content)
