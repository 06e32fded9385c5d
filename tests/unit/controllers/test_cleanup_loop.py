"""When policies run, and what their status says of them; by a clock that the test holds."""

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from small_api import SmallApi

from lictor.controllers.cleanup import schedule
from lictor.controllers.cleanup.run import READY, read_status
from lictor.controllers.cleanup.schedule import CleanupScheduler
from lictor.controllers.cleanup.sweep import SweepContext, identify_cleanup
from lictor.core.errors import UnreachableError
from lictor.core.evaluations import QUARANTINED, EvaluationLedger
from lictor.core.families.registry import registry
from lictor.core.ports import NoLookups
from lictor.kubernetes.discovery import Collection
from lictor.kubernetes.resource import find_resource
from lictor.policies import trials as policy_trials
from lictor.policies.trial_jobs import start_helper
from lictor.policies.trials import Limits, Trials

CLUSTER_CLEANUP_POLICY = find_resource(registry().get("kyverno.io", "ClusterCleanupPolicy"))

BORN = datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC)
POD = CLUSTER_CLEANUP_POLICY.__class__("", "v1", "pods", "Pod")


class Watched:
    """A cache that is always in step with an API server in memory."""

    resource = CLUSTER_CLEANUP_POLICY

    def __init__(self, api):
        self._api = api
        self.listeners = []

    async def wait(self):
        return

    def listen(self, listener):
        self.listeners.append(listener)

    def list(self):
        return [
            item
            for (plural, _, _), item in sorted(self._api.objects.items())
            if plural == self.resource.plural
        ]

    def get(self, name, namespace=""):
        return self._api.objects.get((self.resource.plural, namespace, name))


class Api(SmallApi):
    """Counts the sweeps, and ends some of them."""

    def __init__(self):
        super().__init__()
        self.sweeps = []
        self.faults = []
        self.hold = None

    async def list_pages(self, resource, namespace="", **_):
        self.sweeps.append(resource.plural)
        if self.hold is not None:
            await self.hold.wait()
        if self.faults:
            raise self.faults.pop(0)
        yield {"items": []}


class Office:
    """The loop with everything around it."""

    def __init__(self, *, allowed=True, problems=()):
        self.api = Api()
        self.now = BORN
        self.events = []
        self.cache = Watched(self.api)

        async def serve():
            return (Collection(POD, frozenset(("list", "delete"))),)

        async def allows(access):
            return allowed

        world = SweepContext(self.api, serve, None, NoLookups())
        caches = [self.cache]
        self.cleanups = CleanupScheduler(
            caches, world, allows, self.events.append, lambda: self.now
        )
        self.loop = self.cleanups.loop

    def put(self, name, schedule="* * * * *", kind="Pod", status=None, namespace="", **spec):
        metadata = {"name": name, "generation": 1, "creationTimestamp": "2026-03-01T12:00:30Z"}
        metadata |= {"namespace": namespace} if namespace else {}
        match = {"any": [{"resources": {"kinds": [kind]}}]}
        self.api.seed(
            CLUSTER_CLEANUP_POLICY,
            {
                "apiVersion": "kyverno.io/v2",
                "kind": "ClusterCleanupPolicy",
                "metadata": metadata,
                "spec": {"schedule": schedule, "match": match, **spec},
                "status": status or {},
            },
        )

    def status(self, name):
        return read_status(self.api.read(CLUSTER_CLEANUP_POLICY, name))

    async def pass_time(self, **length):
        before = self.loop.last_success
        self.now += timedelta(**length)
        self.loop.wake()
        await self.settle(before)

    async def settle(self, before):
        """Until the loop has run once more, and whatever it began has had its time."""
        async with asyncio.timeout(20):
            while self.loop.last_success == before:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)

    @asynccontextmanager
    async def open(self):
        task = asyncio.create_task(self.loop.run())
        await self.settle(None)
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def test_runs_at_each_hour_of_the_schedule_and_not_between():
    async def scenario():
        office = Office()
        office.put("minutely")
        office.put("daily", "@daily")
        async with office.open():
            assert office.api.sweeps == []
            assert office.status("minutely").find("Ready")["status"] == "True"
            await office.pass_time(seconds=29)
            assert office.api.sweeps == []
            await office.pass_time(seconds=2)
            assert office.api.sweeps == ["pods"]
            assert office.status("minutely").last_execution == office.now
            await office.pass_time(seconds=30)
            assert office.api.sweeps == ["pods"]
            # Ten hours late: once, not six hundred times.
            await office.pass_time(hours=10)
            assert office.api.sweeps == ["pods"] * 2
            assert office.status("daily").last_execution is None
            await office.pass_time(hours=2)
            assert office.api.sweeps == ["pods"] * 4
            assert office.status("daily").last_execution == office.now

    asyncio.run(scenario())


def test_a_run_that_failed_is_begun_again_soon():
    async def scenario():
        office = Office()
        office.put("minutely")
        office.api.faults = [UnreachableError("away")]
        async with office.open():
            await office.pass_time(seconds=31)
            assert len(office.api.sweeps) == 1
            assert office.status("minutely").is_executing
            await office.pass_time(seconds=0.2)
            assert len(office.api.sweeps) == 1
            await office.pass_time(seconds=2)
            assert len(office.api.sweeps) == 2
            assert not office.status("minutely").is_executing

    asyncio.run(scenario())


def test_a_long_run_holds_up_no_other_policy_and_is_not_doubled():
    async def scenario():
        office = Office()
        office.api.hold = asyncio.Event()
        for number in range(5):
            office.put(f"p{number}")
        async with office.open():
            await office.pass_time(seconds=31)
            # Three places; the others wait for one.
            assert len(office.api.sweeps) == 3
            await office.pass_time(minutes=5)
            assert len(office.api.sweeps) == 3
            office.api.hold.set()
            await asyncio.sleep(0.6)
            assert len(office.api.sweeps) == 5

    asyncio.run(scenario())


def test_long_runs_of_one_namespace_leave_places_to_others():
    async def scenario():
        office = Office()
        office.api.hold = asyncio.Event()
        for number in range(4):
            office.put(f"p{number}", namespace="red")
        async with office.open():
            await office.pass_time(seconds=31)
            assert len(office.api.sweeps) == 1
            for namespace in ("blue", "green"):
                office.put("late", namespace=namespace)
            await office.pass_time(minutes=2)
            assert len(office.api.sweeps) == 2
            # The last place is for policies of the whole cluster.
            office.put("wide")
            await office.pass_time(minutes=2)
            assert len(office.api.sweeps) == 3
            office.api.hold.set()

    asyncio.run(scenario())


def test_runs_end_with_the_loop_and_begin_again_with_the_next_one():
    async def scenario():
        office = Office()
        office.api.hold = asyncio.Event()
        office.put("minutely")
        async with office.open():
            await office.pass_time(seconds=31)
        assert office.status("minutely").is_executing
        office.api.hold.set()
        async with office.open():
            await asyncio.sleep(0.2)
            assert len(office.api.sweeps) == 2
            assert not office.status("minutely").is_executing

    asyncio.run(scenario())


def test_policies_that_cannot_be_used_say_why_once():
    async def scenario():
        office = Office()
        office.put("bad-schedule", "every day")
        office.put("never", "0 0 31 2 *")
        office.put("bad-kind", kind="Unicorn")
        async with office.open():
            for _ in range(3):
                await office.pass_time(seconds=1)
            for name, word in (
                ("bad-schedule", "every day"),
                ("never", "31 2"),
                ("bad-kind", "Unicorn"),
            ):
                condition = office.status(name).find("Ready")
                assert (condition["status"], condition["reason"]) == ("False", "Failed")
                assert word in condition["message"]
            assert len(office.events) == 3
            assert {str(event.reason) for event in office.events} == {"PolicyError"}
            assert office.api.sweeps == []

    asyncio.run(scenario())


def test_a_policy_that_ended_a_process_does_not_run_until_it_changes(monkeypatch):
    ledger = EvaluationLedger()
    monkeypatch.setattr(schedule, "EVALUATIONS", ledger)

    async def scenario():
        office = Office()
        office.put("minutely")
        metadata = office.api.read(CLUSTER_CLEANUP_POLICY, "minutely")["metadata"]
        async with office.open():
            ledger.add(identify_cleanup(metadata["uid"], metadata.get("generation") or 0))
            await office.pass_time(minutes=2)
            assert office.api.sweeps == []
            assert office.status("minutely").find("Ready")["message"] == QUARANTINED
            assert [event.message for event in office.events] == [QUARANTINED]
            office.api.read(CLUSTER_CLEANUP_POLICY, "minutely")["metadata"]["generation"] = 7
            await office.pass_time(minutes=2)
            assert office.api.sweeps == ["pods"]

    asyncio.run(scenario())


def test_missing_permissions_are_told_and_forgotten_when_they_are_there():
    async def scenario():
        office = Office(allowed=False)
        office.put("minutely")
        async with office.open():
            condition = office.status("minutely").find("Ready")
            assert "no permission to list kind Pod" in condition["message"]
            assert "no permission to delete kind Pod" in condition["message"]

        async def allows(_):
            return True

        office.cleanups._allows = allows
        office.cleanups._examined.clear()
        async with office.open():
            assert office.status("minutely").find("Ready")["status"] == "True"

    asyncio.run(scenario())


def test_the_loop_wakes_itself_when_a_policy_is_due():
    async def scenario():
        office = Office()
        started = datetime.now(UTC)
        office.cleanups._now = lambda: datetime.now(UTC)
        office.put("often", "@every 1s")
        stored = office.api.read(CLUSTER_CLEANUP_POLICY, "often")
        stored["metadata"]["creationTimestamp"] = started.strftime("%Y-%m-%dT%H:%M:%SZ")
        async with office.open():
            await asyncio.sleep(3)
            assert 2 <= len(office.api.sweeps) <= 4

    asyncio.run(scenario())


def test_a_policy_that_costs_too_much_to_compile_is_not_used(monkeypatch):
    limits = Limits(cpu_seconds=1, wall_seconds=300.0, memory=1 << 30)
    trials = Trials(start_helper(), limits)
    monkeypatch.setattr(policy_trials, "CURRENT", [trials])

    async def scenario():
        office = Office()
        office.put("fine")
        conditions = [
            {"key": f"{{{{ target.metadata.name == '{n}' }}}}", "operator": "Equals", "value": n}
            for n in range(15_000)
        ]
        office.put("costly", conditions={"any": conditions})
        async with office.open():
            ready = office.status("costly").find(READY)
            assert ready["status"] == "False"
            assert "cannot be compiled within the limits" in ready["message"]
            assert office.status("fine").find(READY)["status"] == "True"

    try:
        asyncio.run(scenario())
    finally:
        trials.close()
