"""What policies ask of a cluster: waiting, giving up, and what one request remembers."""

import asyncio
import contextvars
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from fake_api import Answer, Asked, FakeApi, run_api

from lictor.core.errors import LookupFailedError, NotFoundError, UsageError
from lictor.core.ports import ApiCall
from lictor.kubernetes.client import Client
from lictor.kubernetes.config import ClusterConfig
from lictor.kubernetes.flags import Flags
from lictor.lookups.lookups import ClusterLookups, begin_request

CONFIG_MAP = {"metadata": {"name": "a", "namespace": "n"}, "data": {"x": "1"}}
WIDGETS = {"resources": [{"name": "widgets", "kind": "Widget", "namespaced": True}]}
GROUPS = {"groups": [{"name": "ex.io", "versions": [{"groupVersion": "ex.io/v1"}]}]}


REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def answer(asked: Asked) -> Answer:
    path = asked.path.partition("?")[0]
    known = {
        "/api/v1/namespaces/n/configmaps/a": CONFIG_MAP,
        "/api/v1/namespaces/n/configmaps": {"metadata": {}, "items": [CONFIG_MAP]},
        "/apis": GROUPS,
        "/api/v1": {"resources": []},
        "/apis/ex.io/v1": WIDGETS,
        "/apis/ex.io/v1/namespaces/n/widgets/w": {"metadata": {"name": "w"}},
    }
    if path == "/slow":
        time.sleep(6)
    if path == "/secret":
        return Answer(403, {"code": 403, "reason": "Forbidden", "message": "you may not"})
    if asked.method == "POST":
        return Answer(body={"posted": asked.body.decode()})
    if path not in known:
        return Answer(404, {"code": 404, "reason": "NotFound", "message": f"{path} not found"})
    return Answer(body=known[path])


@contextmanager
def run_lookups(flags: Flags | None = None) -> Iterator[tuple[ClusterLookups, FakeApi]]:
    """Lookups whose loop runs on a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    with run_api(answer) as api:

        async def connect() -> Client:
            return Client(ClusterConfig(api.url))

        client = asyncio.run_coroutine_threadsafe(connect(), loop).result(60)

        async def build() -> ClusterLookups:
            return ClusterLookups(client, loop, flags or Flags(enable_config_map_caching=False))

        try:
            yield asyncio.run_coroutine_threadsafe(build(), loop).result(60), api
        finally:
            asyncio.run_coroutine_threadsafe(client.close(), loop).result(60)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(60)
            loop.close()


def judge_request(judge, lookups, deadline=None, **how):
    """As the server judges each request: in a context of its own."""

    def run() -> None:
        begin_request(deadline, **how)
        judge(lookups)

    contextvars.copy_context().run(run)


def test_answers():
    with run_lookups() as (lookups, _):
        assert lookups.config_map("n", "a") == CONFIG_MAP
        assert lookups.resource("v1", "ConfigMap", "n", "a") == CONFIG_MAP
        assert lookups.resource("v1", "ConfigMap", "n", "b") is None
        assert [i["data"] for i in lookups.resources("v1", "ConfigMap", "n")] == [{"x": "1"}]
        assert lookups.resources("v1", "Secret", "n") == []
        assert lookups.resource("ex.io/v1", "Widget", "n", "w") == {"metadata": {"name": "w"}}
        assert lookups.call_api(ApiCall("/api/v1/namespaces/n/configmaps/a")) == CONFIG_MAP
        posted = ApiCall(REVIEWS, method="POST", data={"a": 1})
        assert lookups.call_api(posted) == {"posted": '{"a":1}'}
        assert lookups.call_api(ApiCall(REVIEWS, method="POST")) == {"posted": "{}"}
        assert (lookups.rule_values("p", "r"), lookups.foreach_values("p", "r", 0)) == ({}, {})
        assert lookups.now().tzinfo is not None


@pytest.mark.parametrize(
    ("ask", "kind", "message"),
    [
        (lambda given: given.config_map("n", "b"), LookupFailedError, "failed to get configmap n/b : .* not found"),
        (lambda given: given.call_api(ApiCall("/nowhere")), LookupFailedError, "failed to GET resource with raw url: /nowhere: "),
        (lambda given: given.call_api(ApiCall("/secret")), LookupFailedError, "/secret: permission denied: you may not"),
        (lambda given: given.call_api(ApiCall("/x", method="PUT")), LookupFailedError, "method not supported: PUT"),
        (lambda given: given.call_api(ApiCall("//evil.example/x")), LookupFailedError, "is not a path"),
        (lambda given: given.resource("ex.io/v1", "Gadget", "n", "w"), LookupFailedError, "serves no Gadget of ex.io/v1"),
        (lambda given: given.global_reference("entry.x"), NotFoundError, "failed to fetch entry key=entry"),
        (lambda given: given.image_data("169.254.169.254/app"), LookupFailedError, "connection to 169.254.169.254 blocked"),
    ],
    ids=["config-map", "absent", "denied", "method", "host", "kind", "global", "image"],
)  # fmt: skip
def test_failures(ask, kind, message):
    with run_lookups() as (lookups, _), pytest.raises(kind, match=message):
        ask(lookups)


def test_one_request_asks_once():
    path = "/api/v1/namespaces/n/configmaps/a"

    def judge(lookups: ClusterLookups) -> None:
        lookups.config_map("n", "a")
        lookups.config_map("n", "a")
        lookups.call_api(ApiCall(path))
        lookups.resource("v1", "ConfigMap", "n", "a")

    with run_lookups() as (lookups, api):
        judge_request(judge, lookups)
        assert [asked.path for asked in api.asked] == [path]
        # The next request may come after a change: it asks anew.
        judge_request(judge, lookups)
        assert len(api.asked) == 2


def test_a_moment_is_short():
    def judge(lookups: ClusterLookups) -> None:
        lookups.config_map("n", "a")
        time.sleep(1.1)
        lookups.config_map("n", "a")

    with run_lookups() as (lookups, api):
        judge_request(judge, lookups)
        assert len(api.asked) == 2


def test_without_a_request_nothing_is_remembered():
    with run_lookups() as (lookups, api):
        lookups.config_map("n", "a")
        lookups.config_map("n", "a")
        assert len(api.asked) == 2


def test_what_changes_something_is_never_remembered():
    def judge(lookups: ClusterLookups) -> None:
        for _ in range(2):
            lookups.call_api(ApiCall(REVIEWS, method="POST"))

    with run_lookups() as (lookups, api):
        judge_request(judge, lookups)
        assert len(api.asked) == 2


def test_gives_up_in_time():
    with run_lookups(Flags(enable_config_map_caching=False, api_call_timeout="300ms")) as (
        lookups,
        _,
    ):
        started = time.monotonic()
        with pytest.raises(LookupFailedError, match=r"no answer within 0.3 s|ReadTimeout"):
            lookups.call_api(ApiCall("/slow"))
        assert time.monotonic() - started < 5.5


def test_heeds_the_time_of_the_request():
    with run_lookups() as (lookups, _):
        started = time.monotonic()
        with pytest.raises(LookupFailedError, match="no answer within 0"):
            judge_request(
                lambda given: given.call_api(ApiCall("/slow")), lookups, time.monotonic() + 0.3
            )
        assert time.monotonic() - started < 5.5


def test_not_on_the_loops_own_thread():
    with run_lookups() as (lookups, _):

        async def ask() -> None:
            lookups.config_map("n", "a")

        future = asyncio.run_coroutine_threadsafe(ask(), lookups._loop)
        with pytest.raises(LookupFailedError, match="event loop's thread"):
            future.result(60)


def test_when_all_is_over():
    with run_lookups() as (lookups, _):
        pass
    with pytest.raises(LookupFailedError, match="shutting down"):
        lookups.config_map("n", "a")


def test_bad_flag():
    loop = asyncio.new_event_loop()
    with pytest.raises(UsageError, match="--apiCallTimeout"):
        ClusterLookups(Client(ClusterConfig("http://x")), loop, Flags(api_call_timeout="soon"))
    loop.close()


# --- what policies may create


JOBS = ApiCall("/apis/batch/v1/namespaces/n/jobs", method="POST")


def test_nothing_is_created_but_what_is_allowed_and_asked_for():
    flags = Flags(enable_config_map_caching=False, allow_post_resources="jobs.batch")
    with run_lookups(flags) as (lookups, api):
        judge_request(lambda each: each.call_api(JOBS), lookups, why_not="")
        made = len(api.asked)
        for how in ({}, {"why_not": "on a dry run"}):
            with pytest.raises(LookupFailedError, match=r"may not create jobs\.batch"):
                judge_request(lambda each: each.call_api(JOBS), lookups, **how)
        with pytest.raises(LookupFailedError, match=r"may not create jobs\.batch outside"):
            lookups.call_api(JOBS)  # a scan, a command, a global context entry
        other = ApiCall("/api/v1/namespaces/n/secrets", method="POST")
        with pytest.raises(LookupFailedError, match="POST is for access reviews"):
            judge_request(lambda each: each.call_api(other), lookups, why_not="")
        assert len(api.asked) == made
