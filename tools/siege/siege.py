"""One run: a cluster, an attacker, everyone who watches, and the figures."""

import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from ipaddress import ip_address
from pathlib import Path

import httpx2
from attacker import Attacker
from attacks import Attack, list_attacks, load_attack, split_attack
from control_plane.install import ADMISSION, Replica
from control_plane.local import LocalCluster
from control_plane.programs import find_programs
from crowd import Crowd
from foreign import Foreign
from oracle import Oracle
from process_watch import ProcessWatch
from siege_site import LimitedEmbedded, LimitedPlane, Site, build_site
from subresources import SubresourceAttacker
from violations import ViolationLog

_LOOK_EVERY = 4.0
_CALM = 4.0
_SWEEP_EVERY = 10
_REQUESTS = re.compile(r"^kyverno_admission_requests_total\{(.*)\} (\S+)$", re.MULTILINE)


def say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


class Siege:
    """One run: a cluster, an attacker, and everyone who watches."""

    def __init__(self, cluster: LocalCluster, folder: Path, *, is_crowded: bool = True) -> None:
        # The second tenant takes all processors that there are: not for tests beside others.
        self._is_crowded = is_crowded
        self.violations = ViolationLog(folder, say)
        self.site: Site = build_site(cluster)
        pids = cluster.folder / "pids.json"
        self._admin = cluster.connect()
        self.oracle = Oracle(self._admin, self.site.markers, self.violations)
        self.processes = ProcessWatch(self.site, self.violations, pids)
        self.foreign = Foreign(self.site, self.violations, pids)
        self.crowd = Crowd(self.site, self.violations, pids)
        self.attacker = Attacker(
            self.site.connect_attacker(), self._admin, self.oracle, self.violations
        )
        self.clerk = self.site.connect_attacker("clerk")
        self.subresources = SubresourceAttacker(self.clerk, self._admin, self.violations)
        # Requests in `red` and in all namespaces that the webhook has evaluated.
        self.evaluated: Counter[str] = Counter()
        self.unlooked = 0
        self._enough = threading.Event()

    def close(self) -> None:
        """Close the connections to the cluster; the figures stay."""
        self._admin.close()
        self.attacker.client.close()
        self.clerk.close()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Everyone watches while the block runs, and once more at the end."""
        watchers = [
            threading.Thread(target=watch, args=(self._enough,), daemon=True)
            for watch in (
                self.processes.run,
                self.foreign.run,
                *((self.crowd.run,) if self._is_crowded else ()),
                self._look_again,
                self.subresources.run,
            )
        ]
        for watcher in watchers:
            watcher.start()
        try:
            time.sleep(_CALM)
            yield
            time.sleep(_CALM)
        finally:
            self._enough.set()
            for watcher in watchers:
                watcher.join(60)
        self._look()

    def _look_again(self, enough: threading.Event) -> None:
        while not enough.wait(_LOOK_EVERY):
            try:
                self._look()
            except (httpx2.HTTPError, OSError) as error:
                self.unlooked += 1
                say(f"a look failed: {error!r}")

    def _look(self) -> None:
        self.oracle.check_outside()
        self.oracle.check_shown()
        for replica in self.site.replicas:
            self.oracle.search_log(replica.process.log)
            self._search_metrics(replica)

    def _search_metrics(self, replica: Replica) -> None:
        url = f"http://{self.site.cluster.address}:{replica.metrics_port}/metrics"
        try:
            shown = httpx2.get(url, timeout=5, trust_env=False).content
        except httpx2.HTTPError as error:
            self.unlooked += 1
            say(f"no metrics of {replica.component}: {error!r}")
            return
        self.oracle.search(shown, f"metrics of {replica.component}")
        if replica.component == ADMISSION:
            self._count_evaluated(shown.decode(errors="replace"))

    def _count_evaluated(self, page: str) -> None:
        """As the metrics tell; they begin anew where the whole server does."""
        for scope, label in (("red", 'resource_namespace="red"'), ("all", "")):
            counts = [float(n) for labels, n in _REQUESTS.findall(page) if label in labels]
            self.evaluated[scope] = max(self.evaluated[scope], int(sum(counts)))

    def attack(self, attacks: Iterator[Attack], seconds: float) -> int:
        """Attack until the time is over; how often."""
        end = time.monotonic() + seconds
        count = 0
        for attack in attacks:
            if time.monotonic() > end:
                break
            self.attacker.carry_out(attack)
            count += 1
            if count % _SWEEP_EVERY == 0:
                self.attacker.sweep()
        self.attacker.finish()
        return count

    def describe(self) -> Iterator[str]:
        """The figures."""
        tally, answers = self.attacker.tally, self.foreign.answers
        kinds = sorted({*tally.accepted, *tally.refused})
        total = tally.accepted.total() + tally.refused.total()
        yield f"policies tried {total}: {tally.accepted.total()} accepted, {tally.refused.total()} refused"
        for kind in kinds:
            yield f"    {kind}: {tally.accepted[kind]} accepted, {tally.refused[kind]} refused"
        yield (
            f"requests of the attacker {tally.requests} ({tally.unanswered} without an answer); "
            f"a policy was taken or refused within {tally.slowest_policy:.1f} s; "
            f"its author could not delete {tally.left_behind}, an administrator {tally.stuck}"
        )
        yield f"objects under them {tally.created.total() + tally.denied.total()}"
        for kind in sorted({*tally.created, *tally.denied}):
            yield f"    {kind}: {tally.created[kind]} created, {tally.denied[kind]} refused"
        yield f"requests evaluated by the webhook {self.evaluated['all']}, {self.evaluated['red']} of red"
        for way, count in sorted(answers.count.items()):
            yield (
                f"requests of others through {way}: {count}, slowest {answers.slowest_raw[way]:.0f} ms, "
                f"without what others took from the machine {answers.slowest_own[way]:.0f} ms"
            )
        ordered = sorted(answers.own)
        if ordered:
            yield f"    webhook, own time: p50 {ordered[len(ordered) // 2]:.1f} ms, p99 {ordered[int(len(ordered) * 0.99)]:.1f} ms"
        yield f"    {answers.wrong} wrong, {answers.slow} of the webhook's slower than 50 ms"
        crowd = self.crowd.tally
        yield (
            f"policies of the administrator {crowd.written}, slowest {crowd.slowest:.1f} s, without what "
            f"others took {crowd.slowest_own:.1f} s; meanwhile the other tenant's {crowd.reviewed}"
        )
        yield f"requests on subresources, by status: {dict(sorted(self.subresources.answers.items()))}"
        yield f"deaths of processes: {dict(self.processes.deaths) or 'none'}"
        yield f"looks that failed: {self.unlooked}"
        yield f"violations: {dict(self.violations.counts) or 'none'}"


@contextmanager
def listener(cluster: LocalCluster, violations: ViolationLog) -> Iterator[str]:
    """An address inside; whoever comes was sent by a policy that may call nobody."""
    host = str(ip_address(cluster.address) - 1) if cluster.routes_services else "127.0.0.1"
    with socket.create_server((host, 0)) as server:
        port = server.getsockname()[1]

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(1)
                    violations.report("address called", f"{host}:{port}")

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://{host}:{port}/"
        server.shutdown(socket.SHUT_RDWR)


def open_cluster(kind: str) -> LocalCluster:
    return LimitedEmbedded() if kind == "embedded" else LimitedPlane(find_programs(say))


def besiege(
    kind: str,
    folder: Path,
    seconds: float,
    seed: int,
    *,
    first: int = 0,
    replay: Path | None = None,
    is_crowded: bool = True,
) -> Siege:
    """A whole run on a new cluster: the attacks of a seed from a number on, or one once more."""
    with (
        open_cluster(kind) as cluster,
        closing(Siege(cluster, folder, is_crowded=is_crowded)) as siege,
    ):
        with listener(cluster, siege.violations) as address, siege.watched():
            if replay is None:
                attacks = list_attacks(seed, address, first)
            else:
                attacks = iter(split_attack(load_attack(replay.read_text(encoding="utf-8"))))
            count = siege.attack(attacks, seconds)
        say(f"{count} attacks, seed {seed}, {kind} cluster, {seconds:.0f} s")
    return siege
