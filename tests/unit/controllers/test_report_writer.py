"""Who may take which entries out of a report, and what becomes of conflicts."""

import asyncio

import pytest
from small_api import SmallApi

from lictor.controllers.report_writer import MIXED, SCAN_HASH, ReportWriter
from lictor.core.errors import ConflictError
from lictor.core.report.resource_report import ReportSubject
from lictor.kubernetes import resource as kinds

POD = ReportSubject("v1", "Pod", "shop", "web", "u-1")
NODE = ReportSubject("v1", "Node", "", "n1", "u-2")


class Rights:
    """Rules called scan* are the scanner's; rules called dead* are of policies that are gone."""

    def is_scanned(self, entry):
        return entry["rule"].startswith("scan")

    def is_alive(self, entry):
        return not entry["rule"].startswith("dead")


def make_entry(rule, result="pass"):
    return {"source": "kyverno", "policy": "p", "rule": rule, "result": result}


class Api(SmallApi):
    """Deletes as the real client does."""

    async def delete(self, resource, name, namespace="", **_):
        return self.objects.pop((resource.plural, namespace, name), None) is not None


def make_writer(api, **options):
    return ReportWriter(api, Rights(), openreports=options.get("openreports", False))


def read_rules(api, resource=kinds.POLICY_REPORT, name="u-1", namespace="shop"):
    found = api.objects.get((resource.plural, namespace, name))
    return [entry["rule"] for entry in found["results"]] if found else None


def test_a_scan_creates_replaces_and_removes():
    api = Api()
    writer = make_writer(api)
    asyncio.run(writer.write(POD, [make_entry("scan-a")], scan_hash="1-2", exists=False))
    report = api.read(kinds.POLICY_REPORT, "u-1", "shop")
    assert report["metadata"]["annotations"] == {SCAN_HASH: "1-2"}
    assert report["metadata"]["ownerReferences"][0]["uid"] == "u-1"
    asyncio.run(writer.write(POD, [make_entry("scan-b", "fail")], scan_hash="1-3", exists=True))
    assert read_rules(api) == ["scan-b"]
    asyncio.run(writer.remove(POD))
    assert read_rules(api) is None


@pytest.mark.parametrize(
    ("subject", "openreports", "resource"),
    [
        (POD, False, kinds.POLICY_REPORT),
        (NODE, False, kinds.CLUSTER_POLICY_REPORT),
        (POD, True, kinds.OPEN_REPORT),
        (NODE, True, kinds.CLUSTER_OPEN_REPORT),
    ],
)
def test_kinds_of_reports(subject, openreports, resource):
    api = Api()
    writer = make_writer(api, openreports=openreports)
    asyncio.run(writer.write(subject, [make_entry("scan")], scan_hash="1-1", exists=False))
    assert read_rules(api, resource, subject.uid, subject.namespace) == ["scan"]


def test_scan_and_admission_keep_each_others_entries():
    api = Api()
    writer = make_writer(api)
    asyncio.run(writer.write(POD, [make_entry("scan")], scan_hash="1-1", exists=False))
    asyncio.run(writer.add(POD, [make_entry("mutated")]))
    assert read_rules(api) == ["mutated", "scan"]
    asyncio.run(writer.write(POD, [make_entry("scan-new")], scan_hash="1-2", exists=True))
    assert read_rules(api) == ["mutated", "scan-new"]
    notes = api.read(kinds.POLICY_REPORT, "u-1", "shop")["metadata"]["annotations"]
    assert notes == {SCAN_HASH: "1-2", MIXED: "true"}
    asyncio.run(writer.remove(POD))
    assert read_rules(api) == ["mutated"]


def test_a_report_that_was_made_by_another_replica_is_joined_not_lost():
    api = Api()
    asyncio.run(make_writer(api).add(POD, [make_entry("mutated")]))
    # This one knows nothing of it.
    other = make_writer(api)
    asyncio.run(other.write(POD, [make_entry("scan")], scan_hash="1-1", exists=False))
    assert read_rules(api) == ["mutated", "scan"]


def test_a_report_that_someone_took_away_is_made_anew():
    api = Api()
    asyncio.run(make_writer(api).write(POD, [make_entry("scan")], scan_hash="1-1", exists=True))
    assert read_rules(api) == ["scan"]


def test_entries_of_policies_that_are_gone_go_with_the_next_write():
    api = Api()
    writer = make_writer(api)
    asyncio.run(writer.add(POD, [make_entry("dead"), make_entry("mutated")]))
    asyncio.run(writer.add(POD, [make_entry("other")]))
    assert read_rules(api) == ["mutated", "other"]


@pytest.mark.parametrize(
    ("rules", "is_followed", "left"),
    [
        (["scan", "mutated"], True, ["scan", "mutated"]),
        (["scan", "dead"], True, ["scan"]),
        (["scan", "mutated"], False, ["mutated"]),
        (["scan", "dead"], False, None),
    ],
)
def test_prune(rules, is_followed, left):
    api = Api()
    report = {
        "metadata": {"name": "u-1", "namespace": "shop"},
        "results": [make_entry(rule) for rule in rules],
    }
    stored = api.seed(kinds.POLICY_REPORT, report)
    asyncio.run(make_writer(api).prune(stored, is_followed=is_followed))
    assert read_rules(api) == left


@pytest.mark.parametrize(
    "odd",
    [
        {"policy": "p", "rule": "other", "source": "kyverno"},
        {"policy": "p", "rule": "other", "result": "fine"},
        {"rule": "other", "result": "pass"},
        {"policy": "p", "rule": ["other"], "result": "pass"},
        "other",
        None,
    ],
)
def test_entries_that_make_no_sense_stop_nobody(odd):
    """Whoever may write reports must not end the scan of a whole kind."""
    for work in ("amend", "add", "prune"):
        api = Api()
        writer = make_writer(api)
        entries = [make_entry("scan-a"), make_entry("dead-b")]
        asyncio.run(writer.write(POD, entries, scan_hash="1-2", exists=False))
        report = api.read(kinds.POLICY_REPORT, "u-1", "shop")
        report["results"].append(odd)
        if work == "amend":
            asyncio.run(writer.amend(POD, [make_entry("scan-c")], lambda _: False, scan_hash="1-3"))
        elif work == "add":
            asyncio.run(writer.add(POD, [make_entry("admission")]))
        else:
            asyncio.run(writer.prune(report, is_followed=True))
        assert "scan-a" in read_rules(api)
        assert not {"other", "dead-b"} & set(read_rules(api))


def test_conflicts_are_read_again():
    class Busy(Api):
        rounds = 2

        async def replace(self, resource, body, **options):
            if self.rounds:
                self.rounds -= 1
                raise ConflictError("changed", status=409)
            return await super().replace(resource, body, **options)

    api = Busy()
    writer = make_writer(api)
    asyncio.run(writer.add(POD, [make_entry("first")]))
    asyncio.run(writer.add(POD, [make_entry("second")]))
    assert read_rules(api) == ["first", "second"]


def test_what_was_mixed_while_reports_were_read_stays_mixed():
    api = Api()
    writer = make_writer(api)
    asyncio.run(writer.add(POD, [make_entry("mutated")]))
    writer.mark_mixed(set())
    asyncio.run(writer.write(POD, [make_entry("scan")], scan_hash="1-1", exists=True))
    assert read_rules(api) == ["mutated", "scan"]
