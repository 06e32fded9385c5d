"""What a policy server tells of its policies: the same digests everywhere, reasons, no settings."""

import msgspec
import orjson
import pytest

from lictor.addons.kubewarden.family.entries import (
    GroupEntry,
    LoadReport,
    LoadStage,
    MemberEntry,
    PolicyEntry,
    PolicyLoad,
    describe_load,
    digest_entry,
    merge_reports,
    read_report,
    write_report,
)
from lictor.addons.kubewarden.server.policies_file import load_policies_file

READY, PENDING, FAILED = LoadStage.READY, LoadStage.PENDING, LoadStage.FAILED


@pytest.mark.parametrize(
    "entry",
    [
        {"module": "registry://x"},
        {"module": "x", "settings": {"b": 1, "a": [1.0, 1e300, -0.0, None, True, "ü"]}},
        {"module": "x", "policyMode": "protect", "allowedToMutate": False},
        {"policies": {"m": {"module": "x"}}, "expression": "m()", "message": "no"},
    ],
)
def test_a_digest_is_the_same_wherever_it_is_made(entry):
    kind = GroupEntry if "policies" in entry else PolicyEntry
    [read] = load_policies_file(orjson.dumps({"a": entry}).decode(), "f").values()
    assert digest_entry(read) == digest_entry(msgspec.convert(entry, kind))
    assert digest_entry(read) != digest_entry(PolicyEntry(module="y"))


@pytest.mark.parametrize(
    ("states", "state", "reason"),
    [
        ([("1", READY), ("1", READY)], READY, ""),
        ([("1", READY), ("2", READY)], PENDING, "not all processes"),
        ([("1", READY), None], PENDING, "not all processes"),
        ([("1", READY), ("1", FAILED)], FAILED, "why"),
        ([("1", PENDING), ("1", READY)], PENDING, "why"),
        ([("1", PENDING), ("1", FAILED)], FAILED, "why"),
    ],
)
def test_a_policy_is_ready_once_all_processes_have_it(states, state, reason):
    reports = [
        LoadReport({"a": PolicyLoad(each[0], each[1], "why" * (each[1] != READY))} if each else {})
        for each in states
    ]
    merged = read_report(write_report(merge_reports(reports))).policies["a"]
    assert merged.state is state
    assert reason in merged.reason


def test_reasons_hold_no_settings():
    member = MemberEntry(module="m", settings={"deep": [{"token": "s3cret"}], "pin": 9876})
    entries = (
        PolicyEntry(module="m", settings=member.settings),
        GroupEntry(expression="a()", message="", policies={"a": member}),
    )
    for entry in entries:
        load = describe_load(entry, "s3cret is no token, nor is 9876" + "!" * 5000, is_late=False)
        assert load.state is FAILED
        assert "is no token" in load.reason
        assert "s3cret" not in load.reason
        assert "9876" not in load.reason
        assert len(load.reason) <= 1000
