"""Large reviews take their turns: a small one waits for one of them at most."""

import asyncio
import json
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import orjson
from serving import Bench, make_policy, make_review, require_label, write_policies
from test_service import Service, serve

from lictor.core.raw import JsonObject

sys.path.append(str(Path(__file__).parents[3] / "tools" / "siege"))
from waiting import Waiting

SIZE = 600_000
LONGEST = 0.05
KEYS = 300


def make_large() -> JsonObject:
    """As large as an object can be stored, in pieces enough to make work."""
    review = make_review(namespace="red")
    annotations = {f"k{number}": "a" * (SIZE // KEYS) for number in range(KEYS)}
    review["request"]["object"]["metadata"]["annotations"] = annotations
    return review


def make_costly_rule() -> JsonObject:
    """Work for a large review, less than what would be handed over to another process."""
    rule = require_label("team")
    condition = {"key": "{{ element }}", "operator": "Equals", "value": "b"}
    each = {
        "list": "request.object.metadata.annotations.keys(@)",
        "deny": {"conditions": {"any": [condition]}},
    }
    rule["match"] = {"any": [{"resources": {"kinds": ["Pod"], "namespaces": ["red"]}}]}
    rule["validate"] = {"failureAction": "Enforce", "message": "no", "foreach": [each]}
    return rule


def test_a_small_request_waits_for_one_large_one_at_most(tmp_path: Path) -> None:
    bench = Bench(write_policies(tmp_path, make_policy("teams", require_label("team"))))
    large, small = orjson.dumps(make_large()), orjson.dumps(make_review(namespace="green"))
    answered: list[str] = []
    begun = asyncio.Event()

    async def post(name: str, body: bytes) -> None:
        await bench.post("/validate/fail", body)
        answered.append(name)
        begun.set()

    async def run() -> None:
        first = [asyncio.create_task(post("large", large)) for _ in range(6)]
        await begun.wait()
        await asyncio.gather(post("small", small), *first)

    asyncio.run(run())
    assert answered.index("small") <= 2
    assert answered.count("large") == 6


def test_a_patch_that_nobody_could_store_is_not_sent(tmp_path: Path) -> None:
    """Several copies of a large object take long to write and to send; the request is refused."""
    rule = require_label("team")
    del rule["validate"]
    copies = "\n".join(
        f"- {{op: copy, from: /metadata/annotations, path: /metadata/copy{n}}}" for n in range(8)
    )
    rule["mutate"] = {"patchesJson6902": copies}
    bench = Bench(write_policies(tmp_path, make_policy("copies", rule)))
    made_room: list[bool] = []
    bench.app._make_room = lambda: made_room.append(True)
    response = bench.ask("/mutate/fail", make_large())
    assert not response["allowed"]
    assert "the answer is too large" in response["status"]["message"]
    # There is memory enough: no other process is needed.
    assert made_room == []


class Flood(threading.Thread):
    """Sends large reviews, one after the other."""

    def __init__(self, service: Service, enough: threading.Event) -> None:
        super().__init__()
        self._service = service
        self._enough = enough
        self.answered = 0

    def run(self) -> None:
        body, headers = orjson.dumps(make_large()), {"content-type": "application/json"}
        with closing(self._service.connect()) as connection:
            while not self._enough.is_set():
                connection.request("POST", "/validate/fail", body, headers)
                assert connection.getresponse().read()
                self.answered += 1


def test_others_are_answered_soon_while_one_namespace_sends_large_objects(
    tmp_path: Path,
) -> None:
    (tmp_path / "policies").mkdir()
    costly, teams = make_costly_rule(), require_label("team")
    write_policies(tmp_path / "policies", make_policy("costly", costly), make_policy("t", teams))
    pids, enough = tmp_path / "pids.json", threading.Event()
    with serve(tmp_path / "policies", workers=1) as service:
        worker, *_ = service.children
        pids.write_text(json.dumps({"workers": [worker], "all": service.children}))
        floods = [Flood(service, enough) for _ in range(8)]
        for flood in floods:
            flood.start()
        try:
            own = measure_answers(service, pids, 150)
        finally:
            enough.set()
            for flood in floods:
                flood.join()
    assert min(flood.answered for flood in floods) > 5
    # Without turns, every third of them was slower. A machine that is busy has pauses of its own.
    assert sorted(own)[-3] < LONGEST, sorted(own)[-10:]


def measure_answers(service: Service, pids: Path, count: int) -> list[float]:
    """Seconds that answers about another namespace took, without what others took."""
    body, headers = (
        orjson.dumps(make_review(namespace="green")),
        {"content-type": "application/json"},
    )
    waiting, own = Waiting(pids), []
    with closing(service.connect()) as connection:
        connection.connect()
        for _ in range(count):
            waiting.begin()
            began = time.monotonic()
            connection.request("POST", "/validate/fail", body, headers)
            assert b"team" in connection.getresponse().read()
            seconds = time.monotonic() - began
            own.append(max(seconds - waiting.end()[0], 0.0))
    return own
