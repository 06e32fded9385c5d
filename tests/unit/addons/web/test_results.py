"""The index of results: what it takes in, chooses, orders, counts and tells."""

import random

import pytest
from web_reports import entry, report, see_all, see_namespaces

from lictor.addons.web.records import ResultChange, ResultFilter, Viewer
from lictor.addons.web.results import ResultIndex
from lictor.core.errors import LoadError, UsageError

ALL = ResultFilter()
_OPEN = "openreports.io/v1alpha1"


def make_index() -> ResultIndex:
    index = ResultIndex()
    high = {"severity": "high", "category": "Pods"}
    index.put_report(
        "here",
        report(
            "web",
            "shop",
            entry("labels", "fail", **high, properties={"team": "red", "process": "scan"}),
            entry("images", "pass", severity="low"),
        ),
    )
    index.put_report(
        "here",
        report(
            "db",
            "bank",
            entry("labels", "fail", severity="low", properties={"team": "blue"}),
            entry("cve-1", "warn", source="Trivy", message="OpenSSL is OLD"),
        ),
    )
    index.put_report("here", report("node", "", entry("nodes", "error")))
    index.put_namespace("here", "shop", {"team": "red"})
    index.put_namespace("here", "bank", {"team": "blue"})
    return index


def list_names(index: ResultIndex, chosen: ResultFilter, viewer: Viewer) -> list[str]:
    page = index.select(chosen, viewer)
    assert page.total == len(page.rows)
    return [f"{row.name}:{row.policy}" for row in page.rows]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (ALL, ["web:labels", "db:labels", "node:nodes", "db:cve-1", "web:images"]),
        (ResultFilter(statuses=("fail",)), ["web:labels", "db:labels"]),
        (ResultFilter(statuses=("fail",), severities=("low",)), ["db:labels"]),
        (ResultFilter(namespaces=("shop",)), ["web:labels", "web:images"]),
        (ResultFilter(namespaces=("sh*", "none")), ["web:labels", "web:images"]),
        (ResultFilter(sources=("Trivy",)), ["db:cve-1"]),
        (ResultFilter(policies=("images", "nodes")), ["node:nodes", "web:images"]),
        (ResultFilter(rules=("nodes-rule",)), ["node:nodes"]),
        (ResultFilter(categories=("Pods",)), ["web:labels"]),
        (ResultFilter(kinds=("Deployment",)), []),
        (ResultFilter(clusters=("there",)), []),
        (ResultFilter(name="db"), ["db:labels", "db:cve-1"]),
        (ResultFilter(name="d?"), ["db:labels", "db:cve-1"]),
        (ResultFilter(properties=("team=red",)), ["web:labels"]),
        (ResultFilter(properties=("team=red", "team=blue")), ["web:labels", "db:labels"]),
        (ResultFilter(properties=("team", "process=scan")), ["web:labels"]),
        (ResultFilter(text="openssl is old"), ["db:cve-1"]),
        (ResultFilter(text="WEB"), ["web:labels", "web:images"]),
        (ResultFilter(text="nodes-r"), ["node:nodes"]),
        (ResultFilter(namespace_labels="team=red"), ["web:labels", "web:images"]),
        (ResultFilter(namespace_labels="team notin (red)"), ["db:labels", "db:cve-1"]),
        (ResultFilter(namespace_labels="team,!no"), [*("web:labels", "db:labels"), "db:cve-1", "web:images"]),
    ],
)  # fmt: skip
def test_filters_and_order(chosen: ResultFilter, expected: list[str]) -> None:
    index: ResultIndex = make_index()
    assert isinstance(index, ResultIndex)
    assert list_names(index, chosen, see_all()) == expected
    exported = [f"{row.name}:{row.policy}" for row in index.export(chosen, see_all())]
    assert exported == expected
    assert sum(index.count(chosen, see_all(), ())[0].counts.values() if expected else ()) == len(
        expected
    )


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (ResultFilter(namespace_labels="team in red"), "selector of namespaces"),
        (ResultFilter(text="x" * 501), "text of more than 500"),
        (ResultFilter(policies=("x",) * 501), "too many or too long policies"),
        (ResultFilter(properties=("x" * 501,)), "too many or too long properties"),
        (ResultFilter(policies=("*a*",) * 30, kinds=("*b*",) * 30), "more than 50 values with"),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(chosen: ResultFilter, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_index().select(chosen, see_all())


@pytest.mark.parametrize(
    ("viewer", "expected"),
    [
        (see_namespaces("shop"), ["web:labels", "web:images"]),
        (see_namespaces("shop", cluster="there"), []),
        (see_namespaces(), []),
        (Viewer("nobody", {}), []),
    ],
)
def test_a_viewer_sees_what_they_may(viewer: Viewer, expected: list[str]) -> None:
    index = make_index()
    assert list_names(index, ALL, viewer) == expected
    assert [f"{row.name}:{row.policy}" for row in index.export(ALL, viewer)] == expected
    counted = index.count(ALL, viewer, ("name",))
    assert {group.key[0] for group in counted} == {name.partition(":")[0] for name in expected}
    # Who asked before for the same filter makes no difference.
    index.select(ALL, see_all())
    assert list_names(index, ALL, viewer) == expected


def test_who_may_read_a_report_is_a_matter_of_where_the_report_is() -> None:
    index = ResultIndex()
    elsewhere = [{"kind": "Pod", "name": "till", "namespace": "bank"}]
    index.end_first_read("here")
    index.put_report("here", report("r", "shop", entry("p", "fail", resources=elsewhere)))
    assert index.select(ALL, see_namespaces("bank")).total == 0
    assert index.list_changes(see_namespaces("bank")) == []
    (row,) = index.select(ALL, see_namespaces("shop")).rows
    assert (row.namespace, row.report_namespace) == ("bank", "shop")
    (change,) = index.list_changes(see_namespaces("shop"))
    assert [each.name for each in change.added] == ["till"]


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (("namespace",), [("bank", 1, 2), ("shop", 1, 2), ("", 1, 1)]),
        (("source",), [("kyverno", 3, 4), ("Trivy", 0, 1)]),
        (("family",), [("classic", 3, 4), ("Trivy", 0, 1)]),
        (("kind", "name"), [("Pod/db", 1, 2), ("Pod/web", 1, 2), ("Pod/node", 1, 1)]),
        (
            ("report",),
            [
                ("policyreports.wgpolicyk8s.io/bank/db", 1, 2),
                ("policyreports.wgpolicyk8s.io/shop/web", 1, 2),
                ("clusterpolicyreports.wgpolicyk8s.io/node", 1, 1),
            ],
        ),
        ((), [("", 3, 5)]),
    ],
)
def test_counts_are_by_fields_the_most_failures_first(
    by: tuple[str, ...], expected: list[tuple[str, int, int]]
) -> None:
    found = [
        (
            "/".join(group.key),
            group.counts["fail"] + group.counts["error"],
            sum(group.counts.values()),
        )
        for group in make_index().count(ALL, see_all(), by)
    ]
    assert found == expected


def test_counting_by_what_is_no_field_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be counted by 'sorcery'"):
        make_index().count(ALL, see_all(), ("sorcery",))


def test_pages_follow_each_other_without_gap() -> None:
    index = make_index()
    whole = index.select(ALL, see_all()).rows
    pages = [index.select(ALL, see_all(), offset=start, limit=2) for start in (0, 2, 4, 6)]
    assert tuple(row for page in pages for row in page.rows) == whole
    assert [(page.total, page.offset) for page in pages] == [(5, 0), (5, 2), (5, 4), (5, 6)]
    assert index.select(ALL, see_all(), offset=-3, limit=1).rows == whole[:1]


def test_many_results_are_read_in_pages() -> None:
    index = make_index()
    whole = index.select(ALL, see_all()).rows
    assert index.select_many(ALL, see_all(), 2) == (list(whole), len(whole))


def test_changes_are_what_a_report_says_now_and_did_not_say_before() -> None:
    index, heard = make_index(), list[ResultChange]()
    index.listen(heard.append)
    index.end_first_read("here")
    before = index.revision
    again = report(
        "web",
        "shop",
        # Found again at another time and place, one better, and one new.
        entry("images", "pass", severity="low", timestamp={"seconds": 5, "nanos": 0}),
        entry("labels", "pass", severity="high", category="Pods"),
        entry("ports", "fail"),
    )
    index.put_report("here", again)
    assert index.revision == before + 1
    (change,) = heard
    assert [(each.policy, each.status) for each in change.added] == [
        ("labels", "pass"),
        ("ports", "fail"),
    ]
    assert [(each.policy, each.status) for each in change.removed] == [("labels", "fail")]
    assert not change.is_first_read
    assert index.list_changes(see_all()) == [change]
    index.put_report("here", again)
    assert (index.revision, len(heard)) == (before + 1, 1)
    index.drop_report("here", again)
    assert [each.policy for each in heard[-1].removed] == ["images", "labels", "ports"]
    assert list_names(index, ResultFilter(namespaces=("shop",)), see_all()) == []
    index.drop_report("here", again)
    assert len(heard) == 2


def test_the_first_reading_is_told_but_no_news() -> None:
    index, heard = ResultIndex(), list[ResultChange]()
    index.listen(heard.append)
    index.put_report("here", report("a", "n", entry("p", "fail")))
    assert [change.is_first_read for change in heard] == [True]
    assert index.list_changes(see_all()) == []


def test_a_listener_that_fails_harms_nobody() -> None:
    index, heard = ResultIndex(), list[ResultChange]()

    def fail(_: ResultChange) -> None:
        raise ZeroDivisionError

    index.listen(fail)
    index.listen(heard.append)
    index.put_report("here", report("a", "n", entry("p", "fail")))
    assert len(heard) == 1
    assert len(index) == 1


def test_there_is_room_for_so_many_and_what_is_missing_is_counted() -> None:
    index = ResultIndex(most_rows=3)
    many = [entry(f"p{number}", "fail") for number in range(5)]
    index.put_report("here", report("a", "", *many))
    assert (len(index), index.left_out) == (3, 2)
    index.put_report("here", report("a", "", *many[:1]))
    assert (len(index), index.left_out) == (1, 0)


def test_one_namespace_does_not_push_out_others() -> None:
    index = ResultIndex(most_rows=10)
    many = [entry(f"p{number}", "fail") for number in range(5)]
    index.put_report("here", report("a", "loud", *many))
    index.put_report("here", report("b", "loud", *many))
    assert (len(index), index.left_out) == (2, 8)
    index.put_report("here", report("a", "quiet", *many[:2]))
    assert list_names(index, ALL, see_namespaces("quiet")) == ["a:p0", "a:p1"]
    index.drop_report("here", report("a", "loud"))
    index.put_report("here", report("b", "loud", *many[:2]))
    assert list_names(index, ALL, see_namespaces("loud")) == ["b:p0", "b:p1"]


def test_a_small_report_with_very_many_resources() -> None:
    index = ResultIndex()
    many = report("a", "n", *[entry("p", "fail", resources=[{}] * 90)] * 3)
    index.put_report("here", many, limit=100)
    assert (len(index), index.left_out) == (100, 170)


def test_labels_of_namespaces_are_not_told_to_who_only_names_them() -> None:
    index = make_index()
    claims = [{"apiVersion": "v1", "kind": "Pod", "name": "mine", "namespace": "bank"}]
    index.put_report("here", report("own", "shop", entry("guess", "fail", resources=claims)))
    for labels in ("team=blue", "team", "!nothing"):
        guess = ResultFilter(policies=("guess",), namespace_labels=labels)
        assert list_names(index, guess, see_namespaces("shop")) == []
        assert list_names(index, guess, see_namespaces("shop", "bank")) == ["mine:guess"]


def test_namespaces_are_those_where_reports_are() -> None:
    # In each of them rights are asked for, and answers count for longer the more there are.
    index = ResultIndex()
    claims = [{"kind": "Pod", "name": "x", "namespace": f"made-up-{n}"} for n in range(100)]
    index.put_report("here", report("own", "shop", entry("p", "fail", resources=claims)))
    index.put_report("here", report("all", "", entry("p", "fail", resources=claims[:1])))
    assert index.list_places() == {("here", "shop"), ("here", "made-up-0")}


def test_reports_that_come_and_go_leave_nothing_behind() -> None:
    # Against a plain list, in every order, with pages looked at in between so that orders are kept.
    dice, index = random.Random(17), ResultIndex()
    model: dict[tuple[str, str], list[str]] = {}
    for step in range(600):
        place, name = f"ns{dice.randrange(3)}", f"pod{dice.randrange(12)}"
        policies = [f"p{dice.randrange(6)}" for _ in range(dice.randrange(4))]
        document = report(
            name,
            place,
            *(entry(policy, dice.choice(("fail", "pass")), severity="high") for policy in policies),
        )
        if dice.random() < 0.3:
            index.drop_report("here", document)
            model.pop((place, name), None)
        else:
            index.put_report("here", document)
            model[place, name] = policies
        if step % 7 == 0:
            rows = index.select(ALL, see_all(), limit=1000).rows
            order = [
                (row.status, row.namespace, row.name, row.policy, row.position) for row in rows
            ]
            assert order == sorted(order)
            found: dict[tuple[str, str], list[str]] = {key: [] for key in model}
            for row in sorted(rows, key=lambda each: each.position):
                found[row.namespace, row.name].append(row.policy)
            assert found == model
            total = sum(len(each) for each in model.values())
            assert len(index) == total
            counted = index.count(ALL, see_all(), ())
            assert sum(sum(group.counts.values()) for group in counted) == total
    for place, name in list(model):
        index.drop_report("here", report(name, place))
    assert len(index) == 0
    assert index.count(ALL, see_all(), ("namespace",)) == []


@pytest.mark.parametrize(
    "document",
    [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}},
        {"apiVersion": "wgpolicyk8s.io/v1alpha2", "kind": "PolicyReport", "metadata": {}},
        {"apiVersion": "example.com/v1", "kind": "PolicyReport", "metadata": {"name": "a"}},
        {},
    ],
)
def test_what_is_no_report_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(LoadError, match="expected a PolicyReport"):
        ResultIndex().put_report("here", document)


def test_reports_of_other_tools_and_shapes() -> None:
    index = ResultIndex()
    two = [{"kind": "Pod", "name": "a", "uid": "1"}, {"kind": "Pod", "name": "b"}]
    index.put_report(
        "here",
        {
            "apiVersion": _OPEN,
            "kind": "Report",
            "metadata": {"name": "scan", "namespace": "shop"},
            "source": "Falco",
            "results": [
                {"policy": "shell", "result": "FAIL", "severity": "Critical", "resources": two},
                {"policy": "odd", "result": "maybe", "severity": "huge", "timestamp": "soon"},
                "no entry at all",
                {"policy": "p", "result": "pass", "properties": {"n": 1, "b": True, "x": {}}},
            ],
        },
    )
    rows = sorted(index.select(ALL, see_all()).rows, key=lambda row: row.position)
    told = [(row.policy, row.status, row.severity, row.name, row.source) for row in rows]
    assert told == [
        ("shell", "fail", "critical", "a", "Falco"),
        ("shell", "fail", "critical", "b", "Falco"),
        # What nobody can read must not look as if it were well.
        ("odd", "error", "", "", "Falco"),
        ("", "error", "", "", "Falco"),
        ("p", "pass", "", "", "Falco"),
    ]
    assert {row.namespace for row in rows} == {"shop"}
    assert rows[4].properties == {"n": "1", "b": "true", "x": ""}
    assert rows[2].timestamp == 0


def test_texts_of_strangers_are_bounded() -> None:
    index = ResultIndex()
    properties = {f"key{number}": "v" * 5000 for number in range(100)}
    long = entry("p" * 10_000, "fail", message="m" * 10**6, properties=properties)
    index.put_report("here", report("a", "n", {**long, "timestamp": {"seconds": 2**70}}))
    (row,) = index.select(ALL, see_all()).rows
    assert (len(row.policy), len(row.message)) == (522, 8202)
    assert row.message.endswith(" ... (cut)")
    assert len(row.properties) == 64
    assert max(map(len, row.properties.values())) == 2058
    assert row.timestamp == 2**32 - 1


def test_only_recent_results_are_chosen() -> None:
    now = 10_000
    index = ResultIndex(clock=lambda: now)
    times = {"old": 5000, "new": 9000}
    for name, seconds in times.items():
        stamped = entry(name, "fail", timestamp={"seconds": seconds})
        index.put_report("here", report(name, "shop", stamped))
    recent = ResultFilter(within=2000)
    assert list_names(index, recent, see_all()) == ["new:new"]
    now = 12_000
    assert list_names(index, recent, see_all()) == []


def test_an_export_lets_reports_change_meanwhile() -> None:
    index = ResultIndex()
    for number in range(20):
        index.put_report("here", report(f"r{number:02}", "shop", entry("p", "fail")))
    rows = index.export(ALL, see_all())
    taken = [next(rows).name for _ in range(10)]
    # Numbers of rows are used again; one that was told, and one that was not, are gone.
    for name in ("r03", "r15"):
        index.drop_report("here", report(name, "shop"))
    for name in ("r00x", "r16x"):
        index.put_report("here", report(name, "shop", entry("p", "fail")))
    taken += [row.name for row in rows]
    stayed = [f"r{number:02}" for number in range(20) if number != 15]
    assert taken == sorted([*stayed, "r16x"])
