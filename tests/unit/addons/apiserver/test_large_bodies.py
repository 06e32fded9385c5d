"""Does a large body keep others waiting while it is read?"""

import asyncio
import threading
from http import HTTPStatus

import orjson
import pytest
from embedded_site import CONFIG_MAPS, Site, run_on_site

from lictor.addons.apiserver import bodies
from lictor.core.errors import RefusedRequestError
from lictor.core.raw import Json


def test_large_bodies_are_read_beside_the_event_loop() -> None:
    places: list[str] = []

    def note(body: bytes) -> int:
        places.append(threading.current_thread().name)
        return len(body)

    async def work() -> list[int]:
        return [await bodies.read_beside(note, bytes(size)) for size in (1000, 64 * 1024 + 1)]

    assert asyncio.run(work()) == [1000, 65537]
    assert places[0] == threading.current_thread().name
    assert places[1].startswith("body-reader")


def test_others_are_answered_while_yaml_is_read() -> None:
    body = b"{" + b"a," * 100_000 + b"}"

    async def work(site: Site) -> None:
        reading = asyncio.create_task(
            site.ask("POST", f"{CONFIG_MAPS}?dryRun=All", body, "application/yaml")
        )
        answered = 0
        while not reading.done():
            assert (await site.get("/healthz")).text == "ok"
            answered += 1
        assert (await reading).status in (400, 422)
        # On the event loop it would have been one or two, the first of them before it began.
        assert answered > 3

    run_on_site(work)


@pytest.mark.parametrize("media", [b"application/json", b"application/yaml"])
@pytest.mark.parametrize(
    "value",
    [
        {"data": {f"a{number}": "" for number in range(50_000)}},
        {"spec": {"containers": [{}] * 50_000}},
        [[1] * 25_000] * 2,
    ],
)
def test_bodies_of_too_many_items_are_refused(value: Json, media: bytes) -> None:
    """Defaults, checks and owners of fields are worked out on the event loop, item by item."""
    with pytest.raises(RefusedRequestError) as caught:
        bodies.read_document(orjson.dumps(value), media)
    assert caught.value.code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    assert "more than 50000 fields and list items" in caught.value.message


def test_commas_in_a_text_are_no_items() -> None:
    value = {"data": {"table.csv": "a,b\n" * 60_000}}
    assert bodies.read_document(orjson.dumps(value), b"application/json") == value
