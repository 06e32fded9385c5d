"""What is counted, and the page that shows it for all processes together."""

import asyncio
import re
import socket
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from serving import Bench, make_policy, make_review, require_label, write_policies

from lictor.http.messages import HttpRequest
from lictor.http.server import HttpServer, serve_port
from lictor.kubernetes.metrics import (
    METRICS,
    NOT_EVALUATED,
    QUEUE_DROPPED,
    QUEUE_LENGTH,
    REQUESTS,
    RULE_INFO,
    RULE_SECONDS,
)
from lictor.webhook.counters import BUCKETS, MAX_SERIES, Counters, read_tables
from lictor.webhook.metrics import list_rules, show_counters
from lictor.webhook.metrics_page import MetricsPage
from lictor.webhook.slots import ProcessSlot


def _show(*books: Counters) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    slots = []
    for counters in books:
        slots.append(ProcessSlot())
        slots[-1].write(counters.dump())
    page = MetricsPage(slots).render().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def test_the_page_adds_up_all_processes(tmp_path: Path) -> None:
    bench = Bench(write_policies(tmp_path, make_policy("teams", require_label("team"))))
    bench.ask("/validate/fail", make_review({"team": "x"}))
    bench.ask("/validate/fail", make_review())
    other = Counters()
    other.merge(read_tables(bench.counters.dump()) or AssertionError)
    found = _show(bench.counters, other)
    labels = {
        "resource_kind": "Pod",
        "resource_namespace": "shop",
        "resource_request_operation": "create",
        "request_allowed": "false",
        "request_webhook": "ValidatingWebhookConfiguration",
    }
    assert found[f"{REQUESTS}_total", tuple(sorted(labels.items()))] == 2
    results = {
        dict(key)["rule_result"]: value
        for (name, key), value in found.items()
        if name == "kyverno_policy_results_total"
    }
    assert results == {"pass": 2, "fail": 2}
    rules = [key for name, key in found if name == f"{RULE_SECONDS}_count"]
    assert {dict(key)["policy_validation_mode"] for key in rules} == {"enforce"}


def test_spreads_are_cumulative() -> None:
    counters = Counters()
    for seconds in (0.001, 0.005, 0.3, 100.0):
        counters.histogram(RULE_SECONDS, ("",) * 13).add(seconds)
    found = {
        dict(key)["le"]: value
        for (name, key), value in _show(counters).items()
        if name == f"{RULE_SECONDS}_bucket"
    }
    assert found["0.005"] == 2
    assert found["0.5"] == 3
    assert found["+Inf"] == 4
    assert len(found) == len(BUCKETS) + 1


def test_series_are_bounded() -> None:
    counters = Counters()
    for number in range(MAX_SERIES + 10):
        counters.count("many", (str(number),))
        counters.histogram("histogram", (str(number),)).add(1)
    assert len(counters.counters["many"]) == MAX_SERIES + 1
    assert counters.counters["many"]["...",] == 10
    assert len(counters.histograms["histogram"]) == MAX_SERIES + 1


def test_levels_add_up_and_go_with_their_process() -> None:
    one, two = Counters(), Counters()
    one.set_gauge(QUEUE_LENGTH, 3)
    two.set_gauge(QUEUE_LENGTH, 4)
    assert _show(one, two)[QUEUE_LENGTH, ()] == 7


def test_half_written_tables_are_left_out() -> None:
    assert read_tables(b"") is None
    assert read_tables(b"\x93") is None


def test_a_large_page_holds_up_nobody() -> None:
    """Policies come and go, and their series stay: the page may take a second to write."""
    counters = Counters()
    for number in range(3000):
        counters.histogram(RULE_SECONDS, (f"policy-{number}",) * 13).add(0.001)
    slot = ProcessSlot()
    assert slot.write(counters.dump())
    turns: list[None] = []

    async def turn() -> None:
        while True:
            turns.append(None)
            await asyncio.sleep(0.005)

    async def run() -> bytes:
        turning = asyncio.create_task(turn())
        page = await MetricsPage([slot])(HttpRequest("GET", "/metrics", b"", b"", b""))
        turning.cancel()
        return page.body

    assert asyncio.run(run()).count(b"policy-2999") > 10
    # Else it would be three or four.
    assert len(turns) > 12


def test_the_page_has_few_places_for_clients() -> None:
    """Whoever holds connections open to the port of metrics takes no memory from requests."""

    async def run() -> tuple[bytes, int]:
        server = HttpServer(MetricsPage([]), max_body=0, max_connections=4)
        bound = socket.create_server(("127.0.0.1", 0))
        serving = asyncio.create_task(serve_port(bound, server))
        idle = [await asyncio.open_connection(*bound.getsockname()) for _ in range(8)]
        for _, writer in idle:
            writer.write(b"GET /")
        reader, writer = await asyncio.open_connection(*bound.getsockname())
        writer.write(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        page, count = await reader.read(), server.count
        for _, each in (*idle, (reader, writer)):
            each.close()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        bound.close()
        return page, count

    page, count = asyncio.run(run())
    assert page.startswith(b"HTTP/1.1 200")
    assert b"kyverno_info" in page
    assert count <= 4


def test_what_should_never_happen_begins_at_zero() -> None:
    counters = Counters()
    show_counters(counters)
    found = _show(counters)
    reasons = {
        dict(labels)["reason"]: value
        for (name, labels), value in found.items()
        if name == f"{NOT_EVALUATED}_total"
    }
    assert reasons == dict.fromkeys(METRICS[NOT_EVALUATED].values, 0)


def test_every_reason_that_is_counted_is_declared() -> None:
    """Else its first time would not be seen."""
    source = Path(__file__).parents[3] / "src" / "lictor" / "webhook"
    app, admission = (source / "app.py").read_text(), (source / "admission.py").read_text()
    counted = set(re.findall(r"give_up\([^\"]*\"(\w+)\"", admission))
    counted |= set(re.findall(r"NOT_EVALUATED, \(\"(\w+)\"", app))
    assert counted == set(METRICS[NOT_EVALUATED].values)
    lost = (source / "post_admission.py").read_text()
    counted = set(re.findall(r"reason(?:: str)?\s?=\s?\"(\w+)\"|QUEUE_DROPPED, \(\"(\w+)\"", lost))
    assert {one or other for one, other in counted} == set(METRICS[QUEUE_DROPPED].values)


def test_each_rule_of_each_policy_is_shown(tmp_path: Path) -> None:
    rules = (require_label("team"), require_label("tier", "Audit"))
    store = write_policies(tmp_path, make_policy("teams", *rules, background=False))
    page = MetricsPage([], rules=lambda: list_rules(store.policies, store.programs))
    reply = asyncio.run(page(HttpRequest("GET", "/metrics", b"", b"", b"")))
    found = [
        sample.labels
        for family in text_string_to_metric_families(reply.body.decode())
        for sample in family.samples
        if sample.name == RULE_INFO and sample.value == 1
    ]
    assert {each["policy_name"] for each in found} == {"teams"}
    assert {"need-team", "need-tier"} <= {each["rule_name"] for each in found}
    assert {each["rule_type"] for each in found} == {"validate"}
    assert {each["status_ready"] for each in found} == {"true"}
    assert {each["policy_background_mode"] for each in found} == {"false"}


def test_a_rule_that_cannot_decide_is_counted(tmp_path: Path) -> None:
    """It raises, and the engine makes a result of that: nobody counted those."""
    condition = {"key": "{{ parse_json(request.object.metadata.name) }}", "operator": "Equals", "value": "x"}  # fmt: skip
    validate = {"failureAction": "Enforce", "deny": {"conditions": {"all": [condition]}}}
    rule = {**require_label("team"), "validate": validate}
    bench = Bench(write_policies(tmp_path, make_policy("undecided", rule)))
    bench.ask("/validate/fail", make_review())
    results = [
        dict(key)["rule_result"]
        for (name, key), value in _show(bench.counters).items()
        if name == "kyverno_policy_results_total" and value == 1
    ]
    assert results == ["error"]
