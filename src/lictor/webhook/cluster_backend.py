"""What a webhook process knows of its cluster: watched settings, roles, namespaces, policies."""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from functools import partial

from lictor.core.errors import ApiError, LookupFailedError
from lictor.core.model.request import Caller, Request
from lictor.core.model.result import PolicyRef
from lictor.http.serving_certificate import LiveCertificate, read_secret
from lictor.kubernetes.cache import Cache, Change, ChangeType
from lictor.kubernetes.client import Client
from lictor.kubernetes.ephemeral_reports import EphemeralReports, read_form
from lictor.kubernetes.events import EventSink
from lictor.kubernetes.kubeconfig import load_config
from lictor.kubernetes.metrics import CERTIFICATE_RELOADS, REPORTS_WAITING, UPDATES_WAITING
from lictor.kubernetes.names import Names
from lictor.kubernetes.namespaces import NamespaceCache
from lictor.kubernetes.process_log import follow_log_level
from lictor.kubernetes.rbac import RoleCache, ask_api_server
from lictor.kubernetes.request_filter import RequestFilter, build_filter
from lictor.kubernetes.resource import CONFIG_MAP, SECRET, Resource
from lictor.kubernetes.settings import Settings, SettingsWatch
from lictor.kubernetes.stored_policy import StoredPolicy
from lictor.kubernetes.update_requests import UpdateRequests
from lictor.lookups.lookups import ClusterLookups, begin_request
from lictor.policies.family_services import ServiceAccess
from lictor.policies.store import PolicyStore
from lictor.webhook.backend import Backend
from lictor.webhook.capacity import keep_running
from lictor.webhook.counters import Counters
from lictor.webhook.guarded_lookups import GuardedLookups
from lictor.webhook.metrics_settings import read_metrics_settings
from lictor.webhook.options import ServeOptions
from lictor.webhook.policy_webhooks import PolicyReviewer
from lictor.webhook.post_admission import ResultSink
from lictor.webhook.result_sinks import AdmissionEvents, AdmissionReports, AdmissionUpdates

log = logging.getLogger(__name__)

_NAMESPACE_SECONDS = 3.0

Uids = Mapping[tuple[str, str], str]


def _watch_one(client: Client, resource: Resource, namespace: str, name: str) -> Cache:
    return Cache(client, resource, namespace=namespace, fields=f"metadata.name={name}")


class WatchedClusterState:
    """The cluster around a request, from watched copies."""

    has_namespaces = True

    def __init__(
        self,
        policies: PolicyStore,
        settings: SettingsWatch,
        roles: RoleCache,
        namespaces: NamespaceCache,
        own_accounts: str,
    ) -> None:
        self.policies = policies
        self._own_accounts = own_accounts
        self._read = asyncio.Event()
        self._settings = settings
        self._roles = roles
        self._namespaces = namespaces
        self._filter: RequestFilter
        self._change(settings.current)
        settings.listen(self._change)

    @property
    def is_ready(self) -> bool:
        return self._read.is_set()

    async def wait(self) -> None:
        """Until everything has been read for the first time."""
        await self._read.wait()

    def note_read(self) -> None:
        """Everything has been read."""
        self._read.set()

    @property
    def needs_roles(self) -> bool:
        return self._settings.current.needs_roles

    @property
    def is_exempt(self) -> RequestFilter:
        return self._filter

    def roles_of(self, caller: Caller, namespace: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self._roles.roles_of(caller, namespace)

    def recall_labels(self, namespace: str) -> Mapping[str, str] | None:
        if self._namespaces.object(namespace) is None:
            return None
        return self._namespaces.labels(namespace)

    async def find_labels(self, namespace: str) -> Mapping[str, str] | None:
        """The labels of a namespace, from the API server where we have not heard of it yet."""
        if self._namespaces.object(namespace) is None:
            try:
                async with asyncio.timeout(_NAMESPACE_SECONDS):
                    if await self._namespaces.ensure(namespace) is None:
                        return None
            except (ApiError, TimeoutError) as error:
                # Selectors must not be evaluated as if there were no labels.
                raise LookupFailedError(f"namespace {namespace}: {error}") from error
        return self._namespaces.labels(namespace)

    def _change(self, settings: Settings) -> None:
        self._filter = build_filter(settings, own_accounts=self._own_accounts)


class ClusterBackend(Backend):
    """Watches, events and lookups of one process. Belongs to its event loop."""

    def __init__(
        self, options: ServeOptions, counters: Counters, certificate: LiveCertificate
    ) -> None:
        flags, names = options.flags, options.names
        client = self._client = Client(load_config(flags.kubeconfig, flags.context))
        self._counters = counters
        self._certificate = certificate
        self._settings = SettingsWatch(client, names)
        follow_log_level(self._settings)
        self._namespaces = NamespaceCache(client)
        self._roles = RoleCache(client)
        loop = asyncio.get_running_loop()
        self._lookups = ClusterLookups(client, loop, flags, namespace=names.namespace)
        own_accounts = f"system:serviceaccount:{names.namespace}:"
        self.guard = GuardedLookups(
            self._lookups, self._namespaces.object, partial(_begin_request, own_accounts)
        )
        access = ServiceAccess(names.namespace, self._lookups.get_path, only_own=True)
        self._store = PolicyStore(client, flags, self.guard, access)
        self._events = EventSink(client, flags, lambda: self._settings.current)
        self._scans = flags.background_scan
        # The policies that these were listed from.
        self._listed: tuple[StoredPolicy, ...] = ()
        self._uids: Uids = {}
        self._scanned: frozenset[tuple[str, str]] = frozenset()
        self._reports = EphemeralReports(client, limit=flags.max_admission_reports)
        self._updates = UpdateRequests(
            client, names, limit=lambda: self._settings.current.update_request_threshold
        )
        self.sinks = tuple(self._list_sinks(options))
        self._watch_own_objects(client, flags.tls_secret_name or names.serving_secret(), names)
        self._has_own_certificate = options.certificate is not None
        self._state = WatchedClusterState(
            self._store, self._settings, self._roles, self._namespaces, own_accounts
        )
        super().__init__(self._state, self._make_reviewer(options), self.guard)

    def _watch_own_objects(self, client: Client, secret: str, names: Names) -> None:
        self._secret = _watch_one(client, SECRET, names.namespace, secret)
        self._secret.listen(self._take_secret)
        metrics = names.metrics_config_map
        self._metrics_map = _watch_one(client, CONFIG_MAP, names.namespace, metrics)
        self._metrics_map.listen(self._take_metrics)

    def _make_reviewer(self, options: ServeOptions) -> PolicyReviewer:
        flags = options.flags
        account = flags.cleanup_service_account_name or options.names.service_account("cleanup")
        return PolicyReviewer(
            flags,
            self._store,
            crds=self._store.crds.list,
            allows=ask_api_server(self._client),
            cleanup_account=account,
        )

    def _list_sinks(self, options: ServeOptions) -> Iterator[ResultSink]:
        """Where the results of answered requests go."""
        flags = options.flags
        background = flags.background_service_account_name
        account = background or options.names.service_account("background")
        settings = lambda: self._settings.current  # noqa: E731
        yield AdmissionEvents(self._events, settings, self._find_uids, self._is_scanned)
        yield AdmissionUpdates(self._updates, account, lambda: self._store.policies)
        if flags.admission_reports:
            yield AdmissionReports(self._reports, read_form(flags), self._is_scanned)

    async def run(self) -> None:
        """Keep everything in step until cancelled."""
        async with asyncio.TaskGroup() as group:
            for part in (
                self._settings, self._namespaces, self._roles, self._store, self._lookups,
                self._events, self._reports, self._updates, self._metrics_map,
            ):  # fmt: skip
                group.create_task(keep_running(part.run))
            if not self._has_own_certificate:
                group.create_task(keep_running(self._secret.run))
            await self._wait()
            self._state.note_read()
            log.info("ready to evaluate", extra={"policies": len(self._store.policies)})

    async def _wait(self) -> None:
        for part in (self._settings, self._namespaces, self._roles, self._store, self._lookups):
            await part.wait()

    def measure(self) -> None:
        self._counters.set_gauge(REPORTS_WAITING, len(self._reports))
        self._counters.set_gauge(UPDATES_WAITING, len(self._updates))

    async def drain(self, seconds: float) -> None:
        """Send the events, update requests and reports that are left."""
        await asyncio.gather(
            self._events.drain(seconds), self._updates.drain(seconds), self._reports.drain()
        )

    async def close(self) -> None:
        await self._client.close()

    def _take_secret(self, change: Change) -> None:
        if change.type is ChangeType.DELETED:
            # The certificate in use is good until a new one comes.
            return
        pair = read_secret(change.object)
        if pair is None:
            log.warning("the Secret with the serving certificate is not whole")
        elif self._certificate.load(*pair):
            self.has_certificate = True
            self._counters.count(CERTIFICATE_RELOADS)
            log.info("serving certificate taken into use")

    def _take_metrics(self, change: Change) -> None:
        gone = change.type is ChangeType.DELETED
        self.metrics = read_metrics_settings(None if gone else change.object)
        for problem in self.metrics.problems:
            log.warning("setting of metrics ignored", extra={"why": problem})

    def _is_scanned(self, policy: PolicyRef) -> bool:
        """Does the background scan report the results of this policy?"""
        self._list_policies()
        return self._scans and (policy.kind, policy.key) in self._scanned

    def _find_uids(self) -> Uids:
        self._list_policies()
        return self._uids

    def _list_policies(self) -> None:
        policies = self._store.policies
        if policies is self._listed:
            return
        keys = [(policy.resource.kind, policy.key) for policy in policies]
        self._uids = {key: each.uid for key, each in zip(keys, policies, strict=True)}
        self._scanned = frozenset(
            key for key, each in zip(keys, policies, strict=True) if each.background
        )
        self._listed = policies


def _begin_request(own_accounts: str, request: Request, deadline: float) -> None:
    """Lookups of a request; what must not be created on its behalf is settled here."""
    why_not = ""
    if request.admission is None or request.admission.get("dryRun"):
        why_not = "on a dry run"
    elif request.caller is None or request.caller.username.startswith(own_accounts):
        # A policy that creates what it matches would call itself without end. The name of the
        # caller comes from the API server; all policies are evaluated for the request all the same.
        why_not = "in answer to a request of lictor itself"
    begin_request(deadline, why_not=why_not)
