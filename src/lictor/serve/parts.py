"""Everything that a webhook process is made of, put together: with a cluster, or without one."""

import asyncio

import msgspec

from lictor.serve.admission import Admission, Court
from lictor.serve.aftermath import Aftermath
from lictor.serve.base import Base
from lictor.serve.book import Book
from lictor.serve.certificate import LiveCertificate
from lictor.serve.chambers import Chambers
from lictor.serve.desks import Desks
from lictor.serve.judge import Alarm, Judge
from lictor.serve.lasting import keep_running
from lictor.serve.options import Inherited, Options
from lictor.serve.policy_reviewer import PolicyReviewer
from lictor.serve.slow_requests import SlowRequests
from lictor.serve.world import BareWorld, World


class Parts(msgspec.Struct, frozen=True):
    """The parts that the process itself handles."""

    admission: Admission
    desks: Desks
    aftermath: Aftermath
    judge: Judge
    chambers: Chambers
    world: World
    base: Base

    async def run(self) -> None:
        """Keep what is known of the cluster in step, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.base.run())
            group.create_task(keep_running(self.aftermath.run))
            await self.world.wait()
            group.create_task(self.chambers.keep_warm())

    async def drain(self, seconds: float) -> None:
        """Finish what follows from answered requests."""
        await self.aftermath.drain(seconds)
        await self.base.drain(seconds)

    async def close(self) -> None:
        await self.base.close()

    def is_ready(self, *, is_temporary: bool) -> bool:
        """Can requests be judged, and does the API server trust our certificate?"""
        if not self.world.is_ready or not self.chambers.is_warm:
            return False
        return self.base.has_certificate or not is_temporary


def build_parts(
    options: Options, inherited: Inherited, book: Book, certificate: LiveCertificate, alarm: Alarm
) -> Parts:
    """Put the parts together, in the process that will use them."""
    base = build_base(options, inherited, book, certificate)
    world = base.world
    judge = Judge(base.guard, alarm, hands_over=bool(inherited.slow_address))
    slow = SlowRequests(inherited.slow_address)
    flags = options.flags
    aftermath = Aftermath(
        judge,
        base.sinks,
        book,
        capacity=flags.max_audit_capacity,
        workers=flags.max_audit_workers,
        slow=slow,
    )
    chambers = Chambers(world.policies, book, flags)
    court = Court(chambers, judge, aftermath, book, slow)
    admission = Admission(world, court, flags, options.names)
    desks = Desks(base.reviewer, options.names)
    return Parts(admission, desks, aftermath, judge, chambers, world, base)


def build_base(
    options: Options, inherited: Inherited, book: Book, certificate: LiveCertificate
) -> Base:
    """What is known of the world around us."""
    policies = inherited.policies
    if policies is not None:
        names = policies.names
        return Base(BareWorld(policies), PolicyReviewer(options.flags, lambda: names))
    from lictor.serve.cluster_base import ClusterBase

    return ClusterBase(options, book, certificate)
