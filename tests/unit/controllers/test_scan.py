"""The scanner on a cluster that stores nothing: what is judged, what is written, what it costs."""

import asyncio
import copy
import resource
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace
from paged_api import PagedApi, make_pod, make_uid

from lictor.controllers.report_writer import FORMER_SCAN_HASH, SCAN_HASH, ReportWriter
from lictor.controllers.scan.kind import ScanContext
from lictor.controllers.scan.kinds import Scanner
from lictor.controllers.scan.plan import ScanCandidate, ScanPlan
from lictor.controllers.scan.progress import ScannedObjects
from lictor.core.assembly import compile_documents
from lictor.core.errors import ApiError, GoneError, UnreachableError
from lictor.core.load.policies import load_documents
from lictor.core.model.program import Case, Check
from lictor.core.model.request import Request
from lictor.core.model.result import Result, Status
from lictor.kubernetes.client import Client, WatchEvent
from lictor.kubernetes.resource import Resource

POD = Resource("", "v1", "pods", "Pod")
POLICY = b"""
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: limits}
spec:
  rules:
  - name: memory
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate:
      message: memory must be limited
      pattern: {spec: {containers: [{resources: {limits: {memory: "?*"}}}]}}
"""
SELECTIVE = POLICY.replace(
    b"kinds: [Pod]", b"kinds: [Pod], namespaceSelector: {matchLabels: {watched: 'yes'}}"
).replace(b"name: limits", b"name: selective")


class Rights:
    """All that the plan scans is the scanner's."""

    def __init__(self, plan: ScanPlan) -> None:
        self.is_scanned = plan.is_scanned
        self.is_alive = plan.is_alive


def make_plan(*texts: bytes, mark: str = "1") -> ScanPlan:
    records = [each.record for text in texts for each in load_documents(text, "p").policies]
    programs = compile_documents(records)
    keys = frozenset((p.policy.source, p.policy.key, r.name) for p in programs for r in p.rules)
    candidates = tuple(ScanCandidate(p, f"{p.policy.key}:{mark}") for p in programs)
    return ScanPlan(candidates, (), keys)


class Fixture:
    """A scanner with everything around it."""

    def __init__(
        self,
        api: PagedApi,
        plan: ScanPlan,
        *,
        owns: Callable[[str], bool] = lambda _: True,
        interval: float = 3600.0,
        deaf: bool = False,
        patience: float = 120.0,
    ) -> None:
        self.api = api
        self._patience = patience
        self._deaf = deaf
        self.labels: dict[str, str] = {}
        self.told: list[tuple[str, list[Result]]] = []
        client = cast("Client", api)
        self.tools = ScanContext(
            client,
            ReportWriter(client, Rights(plan), openreports=False),
            ScannedObjects(),
            owns,
            lambda _: self.labels,
            lambda request: request.resource["metadata"]["name"] == "pod-filtered",
            emit=self._emit,
        )
        self.scanner = Scanner(self.tools, self._list_kinds, interval=interval)

    async def _list_kinds(self) -> Iterable[Resource]:
        return (POD, Resource("", "v1", "events", "Event"))

    def _emit(self, request: Request, results: list[Result]) -> None:
        if not self._deaf:
            self.told.append((request.resource["metadata"]["name"], results))

    async def settle(self) -> None:
        """Until nothing is read any more."""
        await _take_turns()
        async with asyncio.timeout(self._patience):
            await _until(
                lambda: not self.scanner.progress.running and self.scanner.progress.finished_at
            )
        await _take_turns()


async def _take_turns() -> None:
    """What was woken begins, however seldom this process is given a processor."""
    for _ in range(20):
        await asyncio.sleep(0.001)


async def _until(test: Callable[[], object]) -> None:
    while not test():  # noqa: ASYNC110  (the scanner tells nobody when it rests)
        await asyncio.sleep(0.01)


@asynccontextmanager
async def scanning(api: PagedApi, plan: ScanPlan, **options: Any) -> AsyncIterator[Fixture]:
    fixture = Fixture(api, plan, **options)
    await fixture.scanner.load()
    running = asyncio.create_task(fixture.scanner.run())
    await fixture.scanner.follow(plan)
    await fixture.settle()
    try:
        yield fixture
    finally:
        running.cancel()
        await fixture.scanner.stop()
        await asyncio.gather(running, return_exceptions=True)


def test_first_scan_reports_every_object_and_the_second_judges_none() -> None:
    async def run() -> None:
        api = PagedApi(POD, 250)
        async with scanning(api, make_plan(POLICY)) as fixture:
            progress = fixture.scanner.progress
            assert (progress.judged, progress.written, api.created) == (250, 250, 250)
            assert progress.kinds == 1
            report = api.reports[make_uid(0)]
            assert report["summary"]["fail"] == 1
            assert report["results"][0]["properties"] == {"process": "background scan"}
            fixture.scanner.scan_again()
            await fixture.settle()
            assert (progress.judged, api.created, api.patched) == (250, 250, 0)

    asyncio.run(run())


def test_a_new_process_judges_only_what_changed_since() -> None:
    async def run() -> None:
        api = PagedApi(POD, 120)
        async with scanning(api, make_plan(POLICY)):
            pass
        changed = PagedApi(POD, 120, lambda index: relabel(make_pod(index), wanted=index == 7))
        changed.reports = api.reports
        async with scanning(changed, make_plan(POLICY)) as fixture:
            assert fixture.scanner.progress.judged == 1
            # What is said of it is the same: nothing is written.
            assert (changed.created, changed.patched) == (0, 0)

    asyncio.run(run())


def relabel(pod: dict[str, Any], *, wanted: bool) -> dict[str, Any]:
    if wanted:
        pod["metadata"]["labels"] = {"app": "other"}
    return pod


def test_changes_come_through_the_watch() -> None:
    async def run() -> None:
        api = PagedApi(POD, 3)
        async with scanning(api, make_plan(POLICY)) as fixture:
            pod = make_pod(1)
            pod["spec"]["containers"][0]["resources"] = {}
            api.changes.put_nowait(WatchEvent("MODIFIED", pod))
            api.changes.put_nowait(WatchEvent("DELETED", make_pod(2)))
            await asyncio.sleep(0.2)
            assert api.reports[make_uid(1)]["summary"]["fail"] == 1
            assert fixture.scanner.progress.judged == 4
            assert len(fixture.tools.scanned) == 2

    asyncio.run(run())


def test_status_changes_are_not_judged() -> None:
    async def run() -> None:
        api = PagedApi(POD, 1)
        async with scanning(api, make_plan(POLICY)) as fixture:
            pod = make_pod(0)
            pod["status"] = {"phase": "Failed"}
            pod["metadata"]["resourceVersion"] = "9"
            api.changes.put_nowait(WatchEvent("MODIFIED", pod))
            await asyncio.sleep(0.1)
            assert fixture.scanner.progress.judged == 1

    asyncio.run(run())


def test_a_changed_policy_judges_all_again_and_tells_only_its_own_failures() -> None:
    async def run() -> None:
        api = PagedApi(POD, 4)
        plan = make_plan(POLICY)
        async with scanning(api, plan) as fixture:
            assert {name for name, _ in fixture.told} == {"pod-0", "pod-3"}
            fixture.told.clear()
            other = make_plan(POLICY, POLICY.replace(b"name: limits", b"name: also"))
            await fixture.scanner.follow(other)
            await fixture.settle()
            told = {result.policy.name for _, results in fixture.told for result in results}
            assert told == {"also"}
            assert fixture.scanner.progress.judged == 8
            assert api.reports[make_uid(1)]["summary"]["pass"] == 2

    asyncio.run(run())


def count_checks(plan: ScanPlan, policy: str, calls: list[str]) -> ScanPlan:
    """The same plan; every check of the policy is noted."""

    def note(candidate: ScanCandidate) -> ScanCandidate:
        if candidate.program.policy.name != policy:
            return candidate

        def spy(check: Check) -> Check:
            def checked(case: Case) -> tuple[Result, ...]:
                calls.append(str(case.request.resource["metadata"]["name"]))
                return check(case)

            return checked

        rules = tuple(replace(rule, check=spy(rule.check)) for rule in candidate.program.rules)
        return ScanCandidate(replace(candidate.program, rules=rules), candidate.mark)

    return replace(plan, judging=tuple(map(note, plan.judging)))


ALSO = POLICY.replace(b"name: limits", b"name: also")


@pytest.mark.parametrize("loses_report", [False, True])
def test_after_one_policy_changed_the_others_are_not_judged(*, loses_report: bool) -> None:
    calls: list[str] = []

    async def run() -> None:
        api = PagedApi(POD, 4)
        plan = count_checks(make_plan(POLICY, ALSO), "limits", calls)
        async with scanning(api, plan) as fixture:
            assert len(calls) == 4
            calls.clear()
            if loses_report:
                del api.reports[make_uid(0)]
            changed = make_plan(ALSO.replace(b"memory must", b"Memory must"), mark="2").judging
            follow = ScanPlan((plan.judging[0], *changed), (), plan.alive)
            await fixture.scanner.follow(follow)
            await fixture.settle()
            # A report that is not there is made of what all say.
            assert calls == (["pod-0"] if loses_report else [])
            messages = [each["message"] for each in api.reports[make_uid(0)]["results"]]
            assert [text[:23] for text in sorted(messages)] == [
                "validation error: Memor",
                "validation error: memor",
            ]
            # Those for which the policy says the same as before are not written.
            assert api.patched == (2 if not loses_report else 1)

    asyncio.run(run())


def test_what_a_policy_said_that_is_gone_is_taken_out() -> None:
    calls: list[str] = []

    async def run() -> None:
        api = PagedApi(POD, 4)
        plan = count_checks(make_plan(POLICY, ALSO), "limits", calls)
        async with scanning(api, plan) as fixture:
            calls.clear()
            await fixture.scanner.follow(replace(plan, judging=plan.judging[:1]))
            await fixture.settle()
            assert calls == []
            for number in range(4):
                [entry] = api.reports[make_uid(number)]["results"]
                assert entry["policy"] == "limits"
            # A whole scan says the same, and writes nothing.
            written = fixture.scanner.progress.written
            fixture.scanner.scan_again(forced=True)
            await fixture.settle()
            assert len(calls) == 4
            assert fixture.scanner.progress.written == written

    asyncio.run(run())


def test_labels_of_a_namespace_change_what_is_reported() -> None:
    async def run() -> None:
        api = PagedApi(POD, 2)
        async with scanning(api, make_plan(SELECTIVE)) as fixture:
            assert not api.reports
            fixture.labels = {"watched": "yes"}
            fixture.scanner.scan_again()
            await fixture.settle()
            assert len(api.reports) == 2
            fixture.labels = {}
            fixture.scanner.scan_again()
            await fixture.settle()
            assert not api.reports

    asyncio.run(run())


def test_a_report_that_someone_took_away_comes_back_at_the_resync() -> None:
    async def run() -> None:
        api = PagedApi(POD, 3)
        async with scanning(api, make_plan(POLICY), interval=0.3) as fixture:
            del api.reports[make_uid(1)]
            await asyncio.sleep(0.5)
            await fixture.settle()
            assert make_uid(1) in api.reports
            assert api.created == 4

    asyncio.run(run())


def deny_it(report: dict[str, Any]) -> None:
    report["results"][0]["result"] = "skip"


def hide_it(report: dict[str, Any]) -> None:
    del report["results"][0]


def add_another(report: dict[str, Any]) -> None:
    report["results"].append({**report["results"][0], "message": "all is well", "result": "pass"})


def break_it(report: dict[str, Any]) -> None:
    report["results"].append({"policy": report["results"][0]["policy"], "source": "kyverno"})


@pytest.mark.parametrize("edit", [deny_it, hide_it, add_another, break_it])
def test_a_report_that_someone_edited_is_put_right_at_the_resync(
    edit: Callable[[dict[str, Any]], None],
) -> None:
    async def run() -> None:
        api = PagedApi(POD, 3)
        async with scanning(api, make_plan(POLICY)) as fixture:
            told = copy.deepcopy(api.reports[make_uid(1)]["results"])
            edit(api.reports[make_uid(1)])
            written = fixture.scanner.progress.written
            await fixture.scanner.load(checked=True)
            fixture.scanner.scan_again(forced=True)
            await fixture.settle()
            found = api.reports[make_uid(1)]["results"]
            assert [strip_time(each) for each in found] == [strip_time(each) for each in told]
            # The others are as they were.
            assert fixture.scanner.progress.written == written + 1

    asyncio.run(run())


def strip_time(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != "timestamp"}


def test_two_replicas_share_the_work_and_take_over() -> None:
    async def run() -> None:
        api = PagedApi(POD, 300)
        plan = make_plan(POLICY)
        alone: list[bool] = []

        def is_even(uid: str) -> bool:
            return int(uid[:2], 16) % 2 == 0

        async with scanning(api, plan, owns=lambda uid: bool(alone) or is_even(uid)) as first:
            async with scanning(api, plan, owns=lambda uid: not is_even(uid)) as second:
                counts = first.scanner.progress.judged, second.scanner.progress.judged
                assert sum(counts) == 300
                assert all(100 < count < 200 for count in counts)
            # The second one is gone: its part is ours, and none of it is judged again.
            alone.append(True)
            first.scanner.share_again()
            await asyncio.sleep(0.1)
            await first.settle()
            assert first.scanner.progress.judged == counts[0]
            assert api.created == 300

    asyncio.run(run())


@pytest.mark.parametrize(
    ("error", "survives"),
    [
        pytest.param(ApiError("terminating", status=403), True, id="namespace-going"),
        pytest.param(ApiError("invalid", status=422), True, id="invalid"),
        pytest.param(UnreachableError("away", status=0), False, id="server-away"),
    ],
)
def test_one_refused_report_does_not_stop_the_others(error: ApiError, *, survives: bool) -> None:
    async def run() -> None:
        api = PagedApi(POD, 50)
        failures = iter([error])

        def fail_once() -> None:
            if (failure := next(failures, None)) is not None:
                raise failure

        api.before_write = fail_once
        async with scanning(api, make_plan(POLICY)) as fixture:
            # An outage interrupts the pass; it begins again, and nothing is lost.
            await _until(lambda: survives or len(api.reports) == 50)
            assert len(api.reports) == (49 if survives else 50)
            assert fixture.scanner.progress.refused == (1 if survives else 0)

    asyncio.run(run())


def test_a_watch_that_is_too_old_reads_everything_again() -> None:
    async def run() -> None:
        api = PagedApi(POD, 5)
        async with scanning(api, make_plan(POLICY)) as fixture:
            pages = api.pages
            api.changes.put_nowait(GoneError("too old", status=410))
            await asyncio.sleep(0.1)
            await fixture.settle()
            assert api.pages > pages
            assert fixture.scanner.progress.judged == 5

    asyncio.run(run())


def test_kinds_without_policies_are_left_alone_again() -> None:
    async def run() -> None:
        async with scanning(PagedApi(POD, 2), make_plan(POLICY)) as fixture:
            gone = await fixture.scanner.follow(ScanPlan((), (), frozenset()))
            assert gone == {POD}
            assert fixture.scanner.followed == frozenset()

    asyncio.run(run())


def test_reports_carry_the_hash_of_what_was_evaluated() -> None:
    async def run() -> None:
        api = PagedApi(POD, 1)
        async with scanning(api, make_plan(POLICY)):
            mark = api.reports[make_uid(0)]["metadata"]["annotations"][SCAN_HASH]
            state, print_ = mark.split("-")
            assert int(state, 16) < 1 << 30
            assert int(print_, 16) < 1 << 30

    asyncio.run(run())


# What every release has written for this Pod and this policy. Another first half makes the next release evaluate every object of
# every cluster again when it starts, another second half makes it write every report again: change them only with a reason to.
HASH_BEFORE = "cd58b26-3a30a5b5"


def make_reports_of_before(mark: str) -> dict[str, dict[str, Any]]:
    """Reports of forty Pods as another release left them; only their names and marks are read."""
    states: dict[str, dict[str, Any]] = {}

    async def run() -> None:
        api = PagedApi(POD, 40)
        async with scanning(api, make_plan(POLICY, mark=mark)):
            states.update(api.reports)

    asyncio.run(run())
    return states


def test_the_former_name_of_the_hash_is_read() -> None:
    reports = make_reports_of_before("1")
    for report in reports.values():
        notes = report["metadata"]["annotations"]
        notes[FORMER_SCAN_HASH] = notes.pop(SCAN_HASH)

    async def run() -> None:
        api = PagedApi(POD, 40)
        api.reports = dict(reports)
        async with scanning(api, make_plan(POLICY)) as fixture:
            assert fixture.scanner.progress.judged == 0

    asyncio.run(run())


@pytest.mark.parametrize(
    ("mark", "judged"),
    [
        pytest.param("1", 0, id="as-ever"),
        pytest.param("of-another-release", 40, id="tells-the-state-in-another-way"),
    ],
)
@pytest.mark.parametrize("forced", [False, True])
def test_the_first_scan_after_an_upgrade_writes_no_report(
    mark: str, judged: int, *, forced: bool
) -> None:
    reports = make_reports_of_before(mark)

    async def run() -> None:
        api = PagedApi(POD, 40)
        api.reports = dict(reports)
        async with scanning(api, make_plan(POLICY)) as fixture:
            assert fixture.scanner.progress.judged == judged
            if forced:
                fixture.scanner.scan_again(forced=True)
                await fixture.settle()
                assert fixture.scanner.progress.judged == judged + 40
            assert (api.created, api.patched, fixture.scanner.progress.written) == (0, 0, 0)
            assert api.reports == reports

    asyncio.run(run())


def test_releases_agree_on_what_was_judged() -> None:
    report = make_reports_of_before("1")[make_uid(0)]
    assert report["metadata"]["annotations"][SCAN_HASH] == HASH_BEFORE


def test_only_what_is_wrong_is_told() -> None:
    async def run() -> None:
        async with scanning(PagedApi(POD, 30), make_plan(POLICY)) as fixture:
            statuses = {result.status for _, results in fixture.told for result in results}
            assert statuses == {Status.FAIL}

    asyncio.run(run())


def test_memory_does_not_grow_with_the_number_of_objects() -> None:
    """Of 20,000 objects sixteen bytes each are kept, and free slots; as JSON they are 30 MB."""
    asyncio.run(_scan_and_forget(5_000))
    before = _read_memory()
    asyncio.run(_scan_and_forget(20_000))
    assert _read_memory() - before < 8 * 2**20


def _read_memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def _scan_and_forget(count: int) -> None:
    api = PagedApi(POD, count, remember=False)
    async with scanning(api, make_plan(POLICY), deaf=True) as fixture:
        assert fixture.scanner.progress.judged == count
        assert api.largest_page <= 100
