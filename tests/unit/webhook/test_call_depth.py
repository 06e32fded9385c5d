"""How many functions of ours does one admission cross, and how many lie before the engine?

The figures are printed by room (`pytest -s`), so that one can see where a request spends its calls.
"""

import asyncio
import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

import orjson
from serving import Bench, make_policy, make_review, require_label, write_policies

from lictor.core.engine import Engine
from lictor.http.connection import ServerConnection
from lictor.http.server import HttpServer

# From the server's dispatch to the engine, and from the first byte to the last. They may only fall;
# the house bars are 7 and 45.
MOST_BEFORE_ENGINE = 7
MOST_FUNCTIONS = 42
_SOURCE = f"{Path(sys.modules['lictor'].__path__[0])}/"
_INLINE = frozenset(("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>"))


class _Calls:
    """The functions of ours that run, in the order in which they begin."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.before_engine: list[str] = []

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(_SOURCE) or code.co_name in _INLINE:
            return
        self.order.append(_name(code))
        if code is Engine.evaluate.__code__:
            self.before_engine = _list_callers(frame)


def _name(code: CodeType) -> str:
    module = code.co_filename.removeprefix(_SOURCE).removesuffix(".py")
    return f"{module}:{code.co_qualname}"


def _list_callers(frame: FrameType) -> list[str]:
    """Those of ours between the server's dispatch and the engine, the outermost first."""
    names = []
    outer = frame.f_back
    while outer is not None:
        if outer.f_code.co_filename.startswith(_SOURCE):
            names.append(_name(outer.f_code))
        outer = outer.f_back
    return [name for name in reversed(names) if not name.startswith("http/")]


class _Transport(asyncio.Transport):
    """A client that sends nothing by itself, and keeps what it is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.answered = asyncio.Event()

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    def is_closing(self) -> bool:
        return False

    def write(self, data: object) -> None:
        self.written = bytes(data)  # type: ignore[call-overload]
        self.answered.set()


def _admit(folder: Path) -> _Calls:
    bench = Bench(write_policies(folder, make_policy("team", require_label("team"))))
    body = orjson.dumps(make_review({"team": "blue"}))
    request = (
        b"POST /validate/fail?timeout=10s HTTP/1.1\r\nhost: lictor\r\n"
        b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    )
    calls, transport = _Calls(), _Transport()

    async def send(connection: ServerConnection) -> None:
        transport.answered.clear()
        connection.data_received(request)
        await transport.answered.wait()

    async def run() -> None:
        connection = HttpServer(bench.app, max_body=1 << 20)()
        connection.connection_made(transport)
        for _ in range(3):  # what is compiled or remembered at the first request
            await send(connection)
        sys.setprofile(calls)
        try:
            await send(connection)
        finally:
            sys.setprofile(None)

    asyncio.run(run())
    assert b'"allowed":true' in transport.written
    return calls


def test_an_admission_crosses_few_functions(tmp_path: Path) -> None:
    calls = _admit(tmp_path)
    distinct = list(dict.fromkeys(calls.order))
    rooms = Counter(name.partition("/")[0].partition(":")[0] for name in distinct)
    before = calls.before_engine
    lines = [
        f"{len(distinct)} functions (limit {MOST_FUNCTIONS}), {len(calls.order)} calls",
        *(f"{count:4} {room}" for room, count in rooms.most_common()),
        *distinct,
        f"{len(before)} before the engine (limit {MOST_BEFORE_ENGINE}): {', '.join(before)}",
    ]
    sys.stdout.write("\n".join(("", *lines, "")))
    assert before, "the engine was not asked"
    assert len(distinct) <= MOST_FUNCTIONS
    assert len(before) <= MOST_BEFORE_ENGINE
