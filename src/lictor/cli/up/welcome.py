"""What happens once the API server answers: lictor must answer too, objects come, words follow."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click

from lictor.apiserver.patches import PatchKind
from lictor.apiserver.request import ApiUser
from lictor.apiserver.server import Server
from lictor.apiserver.store import GroupResource
from lictor.cli.up.credentials import ADMIN
from lictor.cli.up.own_objects import are_current
from lictor.cli.up.plan import LOOPBACK, ClusterPlan
from lictor.cli.up.policy_files import FileObject
from lictor.cli.up.policy_state import PolicySummary, is_policy, is_waited_for, list_policies
from lictor.errors import RefusedRequestError
from lictor.raw import JsonObject

_PATIENCE = 60.0
_TICK = 0.01
_ADMIN = ApiUser(ADMIN, ("system:masters", "system:authenticated"))
_WEBHOOKS: GroupResource = ("admissionregistration.k8s.io", "validatingwebhookconfigurations")
_QUESTION = b"GET /health/readiness HTTP/1.1\r\nHost: lictor\r\nConnection: close\r\n\r\n"


class Welcome:
    """Waits for everyone, brings the objects of files in, and says what to try."""

    def __init__(self, plan: ClusterPlan, objects: Sequence[FileObject], began: float) -> None:
        self._plan = plan
        self._objects = objects
        self._began = began
        self._problems: list[str] = []
        # How many of those are policies.
        self._refused = 0

    async def run(self, server: Server) -> None:
        """All of it."""
        if not self._plan.is_bare:
            await self._wait_for_webhook(server)
        found = [each for each in self._objects if is_policy(each.body)]
        for each in self._objects:
            if not is_policy(each.body):
                await self._apply(server, each)
        # What policies stand on is there; they do not stand on each other.
        await asyncio.gather(*(self._apply(server, each) for each in found))
        await _wait(lambda: not any(is_waited_for(server, each.body) for each in found))
        self._tell(list_policies(server))

    async def _wait_for_webhook(self, server: Server) -> None:
        port = self._plan.flags.webhook_server_port
        while not await _answers(port):  # noqa: ASYNC110  (another process: nobody tells us)
            await asyncio.sleep(_TICK)
        # Policies that come are judged as well: the API server must know whom to ask.
        # Those of an earlier run do not lead anywhere.
        name = self._plan.names.webhook("policy-validating")
        await _wait(
            lambda: ("", name) in server.store.storage(*_WEBHOOKS).objects and are_current(server)
        )

    async def _apply(self, server: Server, found: FileObject) -> None:
        document = found.body
        shown = f"{found.where}: {document['kind']} {document['metadata']['name']}"
        kind = server.catalogue.find_kind(document["apiVersion"], document["kind"])
        if kind is None:
            self._problems.append(
                f"{shown}: no kind {document['kind']} in {document['apiVersion']}"
            )
            self._refused += is_policy(document)
            return
        metadata = document["metadata"]
        namespace = (metadata.get("namespace") or "default") if kind.namespaced else ""
        with self._noting(shown, document):
            await server.api.patch(
                _ADMIN,
                kind,
                metadata["name"],
                PatchKind.APPLY,
                document,
                namespace=namespace,
                force=True,
            )

    @contextlib.contextmanager
    def _noting(self, what: str, document: JsonObject) -> Iterator[None]:
        try:
            yield
        except RefusedRequestError as error:
            self._problems.append(f"{what}: {error.message}")
            self._refused += is_policy(document)

    def _tell(self, policies: Sequence[PolicySummary]) -> None:
        for problem in self._problems:
            click.echo(f"Error: {problem}", err=True)
        if self._problems:
            click.echo("These are not in force; `lictor lint FILE` may tell more.", err=True)
        for policy in policies:
            if not policy.is_in_force:
                told = f"{policy.kind} {policy.name} is not ready: `kubectl describe` tells why"
                click.echo(f"Warning: {told}", err=True)
        seconds = time.monotonic() - self._began
        click.echo(render_message(self._plan, policies, self._refused, seconds))


def render_message(
    plan: ClusterPlan, policies: Sequence[PolicySummary], refused: int, seconds: float
) -> str:
    """What people see first; `refused` policies are in files, but not in the cluster."""
    what = "A Kubernetes API"
    if not plan.is_bare:
        what += f" with {_count(policies, refused)}"
    lines = [f"{what} answers at {plan.url} (ready in {seconds:.1f} s; Ctrl-C ends it)", ""]
    lines += [f"  export KUBECONFIG={_shorten(plan.kubeconfig)}"]
    if not plan.is_bare:
        lines += [f"  {command}" for command in _suggest(policies)]
    if plan.metrics is not None:
        lines += [f"  curl http://{LOOPBACK}:{plan.metrics.getsockname()[1]}/metrics"]
    if plan.page is not None:
        lines += ["", f"What reports say, as a page: {plan.page_url}"]
    return "\n".join(lines)


def _count(policies: Sequence[PolicySummary], refused: int) -> str:
    total = len(policies) + refused
    count = sum(policy.is_in_force for policy in policies)
    if not total:
        return "lictor and no policies yet"
    noun = "policy" if total == 1 else "policies"
    return f"{count} {noun} in force" if count == total else f"{count} of {total} {noun} in force"


def _suggest(policies: Sequence[PolicySummary]) -> list[str]:
    if not policies:
        return ["kubectl apply -f POLICY.yaml", "kubectl run test --image=nginx"]
    kinds = sorted({policy.kind.lower() for policy in policies})
    return [
        f"kubectl get {','.join(kinds)}",
        "kubectl run test --image=nginx",
        "kubectl get policyreports -A",
    ]


def _shorten(path: Path) -> str:
    with contextlib.suppress(ValueError, RuntimeError):
        return f"~/{path.relative_to(Path.home())}"
    return str(path)


async def _wait(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not holds() and time.monotonic() < deadline:  # noqa: ASYNC110  (a few times only)
        await asyncio.sleep(_TICK)


async def _answers(port: int) -> bool:
    """Does the webhook say that it is ready?"""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Only whether it is up is asked; the API server checks the certificate when it counts.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        async with asyncio.timeout(2):
            reader, writer = await asyncio.open_connection(LOOPBACK, port, ssl=context)
            try:
                writer.write(_QUESTION)
                head = await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError, ssl.SSLError):
        return False
    return b" 200 " in head
