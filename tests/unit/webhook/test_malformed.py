"""Ten thousand malformed reviews: never a crash, and nothing but an answer or a clean refusal."""

import asyncio
import random
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import orjson
from serving import Bench, make_policy, make_review, require_label, write_policies

from lictor.core.raw import Json, JsonObject

COUNT = 10_000
SEED = 5
CLEAN = (HTTPStatus.OK, HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND)
PATHS = (
    "/validate/fail", "/validate/ignore", "/mutate/fail", "/validate", "/vpol/images",
    "/mpol/tagged", "/policyvalidate", "/exceptionvalidate", "/globalcontextvalidate",
    "/verifymutate", "/verifyttl", "/validate/fail/finegrained/teams", "/gpol/x",
    "/ivpol/validate/x", "/nvpol/x", "/%00", "/validate/../validate/fail",
)  # fmt: skip
ODD: tuple[Json, ...] = (
    None, True, False, 0, -1, 2**63, 2**64 - 1, 1e308, "", "\x00", "a" * 5000, "é\u2028",
    "{{request.object}}", "$(x)", [], {}, [[]], [None], [1, "a", {}], {"": ""}, {"a": None},
    {"metadata": 1}, {"metadata": {"labels": [1]}}, ["CREATE"], "DELETE", "CONNECT",
)  # fmt: skip


def _policies(folder: Path) -> Bench:
    mutate: JsonObject = {
        "name": "owner",
        "match": {"any": [{"resources": {"kinds": ["*"]}}]},
        "mutate": {
            "patchStrategicMerge": {"metadata": {"labels": {"o": "{{request.userInfo.username}}"}}}
        },
    }
    images: JsonObject = {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "ValidatingPolicy",
        "metadata": {"name": "images"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": ["*"],
                        "apiVersions": ["*"],
                        "operations": ["*"],
                        "resources": ["*"],
                    }
                ]
            },
            "validations": [
                {"expression": "object.spec.containers.all(c, !c.image.endsWith(':latest'))"}
            ],
        },
    }
    anything = require_label("team")
    anything["match"] = {"any": [{"resources": {"kinds": ["*"]}}]}
    return Bench(
        write_policies(
            folder,
            make_policy("teams", anything, require_label("app", "Audit")),
            make_policy("owners", mutate),
            images,
        ),
        capacity=COUNT,
    )


def _spots(value: Json, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _spots(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _spots(inner, (*path, index))


def _put(value: Json, path: tuple[str | int, ...], new: Json) -> Json:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _put(value[path[0]], path[1:], new)
    return copy


def _twist_tree(review: JsonObject, dice: random.Random) -> bytes:
    twisted: Json = review
    for _ in range(dice.randint(1, 3)):
        spots = list(_spots(twisted))
        twisted = _put(twisted, dice.choice(spots), dice.choice(ODD))
    return orjson.dumps(twisted)


def _twist_bytes(review: JsonObject, dice: random.Random) -> bytes:
    data = bytearray(orjson.dumps(review))
    for _ in range(dice.randint(1, 8)):
        at = dice.randrange(len(data) or 1)
        if not data:
            break
        match dice.randrange(4):
            case 0:
                data[at] = dice.randrange(256)
            case 1:
                del data[at : at + dice.randint(1, 40)]
            case 2:
                data[at:at] = dice.choice((b"{", b"[", b'"', b"\\u0000", b"\xff", b"null", b","))
            case _:
                data = data[: max(at, 1)]
    return bytes(data)


def _nest(_: JsonObject, dice: random.Random) -> bytes:
    depth = dice.choice((50, 400, 5000, 60_000))
    inner = dice.choice((b'{"a":', b"["))
    end = b"1" + (b"}" if inner != b"[" else b"]") * depth
    return b'{"request":{"uid":"x","operation":"CREATE","object":' + inner * depth + end + b"}}"


def _list_inputs(dice: random.Random) -> Iterator[bytes]:
    valid = [
        make_review({"team": "x"}),
        make_review(),
        make_review(operation="UPDATE"),
        make_review(operation="DELETE"),
        make_review(operation="CONNECT", subResource="exec"),
    ]
    ways = (_twist_tree,) * 60 + (_twist_bytes,) * 39 + (_nest,)
    for _ in range(COUNT):
        yield dice.choice(ways)(dice.choice(valid), dice)


def test_malformed_reviews_are_answered_or_refused(
    tmp_path: Path,
) -> None:
    bench = _policies(tmp_path)
    dice = random.Random(SEED)
    seen: dict[HTTPStatus, int] = {}

    async def run() -> None:
        for body in _list_inputs(dice):
            reply = await bench.post(dice.choice(PATHS), body)
            seen[reply.status] = seen.get(reply.status, 0) + 1
            assert reply.status in CLEAN, (reply, body[:500])
            if reply.status is HTTPStatus.OK:
                response = orjson.loads(reply.body)["response"]
                assert isinstance(response["allowed"], bool)
                told = response.get("status", {}).get("message", "")
                assert "should not have happened" not in told, (told, body[:2000])
            else:
                assert reply.body.endswith(b"\n")

    asyncio.run(run())
    # The twists leave enough of a review for each kind of end.
    assert all(seen.get(status, 0) > 500 for status in CLEAN)
