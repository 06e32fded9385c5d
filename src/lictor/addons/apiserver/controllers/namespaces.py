"""Namespaces: what each has from the start, and how one goes with all that is in it."""

from lictor.addons.apiserver.deletion import DeleteOptions
from lictor.addons.apiserver.kind import ServedKind
from lictor.addons.apiserver.kinds.catalogue import KindCatalogue
from lictor.addons.apiserver.loopback_client import LoopbackClient
from lictor.addons.apiserver.objects import is_ending, read_clock, version_of
from lictor.addons.apiserver.request import ApiUser
from lictor.addons.apiserver.service_account_tokens import name_controller
from lictor.addons.apiserver.store import DELETED, Store, StoreChange
from lictor.core.errors import RefusedRequestError
from lictor.core.raw import JsonObject
from lictor.kubernetes.work_queue import WorkQueue

REMOVER = name_controller("namespace-controller")
_ACCOUNTS = name_controller("service-account-controller")
_PUBLISHER = name_controller("root-ca-cert-publisher")
_FINALIZER = "kubernetes"
_ROOT_CA = "kube-root-ca.crt"
_ROOT_CA_NOTE = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal "
    "endpoints such as the internal service IP or kubernetes.default.svc. "
    "No other usage is guaranteed across distributions of Kubernetes clusters."
)
_NOT_FOUND, _CONFLICT = 404, 409


class NamespaceController:
    """Creates what each namespace has, and empties those that are deleted."""

    def __init__(
        self, api: LoopbackClient, store: Store, catalogue: KindCatalogue, authority: str = ""
    ) -> None:
        self._api = api
        self._store = store
        self._catalogue = catalogue
        self._authority = authority
        self._kind = catalogue.require("", "namespaces")
        self._accounts = catalogue.require("", "serviceaccounts")
        self._config_maps = catalogue.require("", "configmaps")
        self._queue: WorkQueue[str] = WorkQueue("namespaces", self._reconcile)
        store.subscribe("", "namespaces", self._on_change)
        # These are created again after a deletion.
        store.subscribe("", "serviceaccounts", self._on_content_change)
        store.subscribe("", "configmaps", self._on_content_change)
        # The last that leaves a namespace which goes closes the door.
        store.subscribe_all(self._on_deletion)

    async def run(self) -> None:
        """Look after namespaces until cancelled."""
        for document in self._store.list(self._kind):
            self._queue.add(document["metadata"]["name"])
        await self._queue.run()

    def _on_change(self, change: StoreChange) -> None:
        if change.type != DELETED:
            self._queue.add(change.key[1])

    def _on_content_change(self, change: StoreChange) -> None:
        if change.type == DELETED and change.key[1] in ("default", _ROOT_CA):
            self._queue.add(change.key[0])

    def _on_deletion(self, change: StoreChange) -> None:
        namespace = change.key[0]
        if change.type != DELETED or not namespace:
            return
        found = self._store.get(self._kind, "", namespace)
        if found is not None and is_ending(found):
            self._queue.add(namespace)

    async def _reconcile(self, name: str) -> bool:
        document = self._store.get(self._kind, "", name)
        if document is None:
            return True
        if is_ending(document):
            return await self._clear(document)
        await self._create_contents(name)
        return True

    # --- what each has

    async def _create_contents(self, namespace: str) -> None:
        account: JsonObject = {"apiVersion": "v1", "kind": "ServiceAccount"}
        account["metadata"] = {"name": "default", "namespace": namespace}
        await self._ensure(_ACCOUNTS, self._accounts, account)
        bundle: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap"}
        bundle["metadata"] = {
            "name": _ROOT_CA,
            "namespace": namespace,
            "annotations": {"kubernetes.io/description": _ROOT_CA_NOTE},
        }
        bundle["data"] = {"ca.crt": self._authority}
        await self._ensure(_PUBLISHER, self._config_maps, bundle)

    async def _ensure(self, user: ApiUser, kind: ServedKind, document: JsonObject) -> None:
        metadata = document["metadata"]
        if self._store.get(kind, metadata["namespace"], metadata["name"]) is not None:
            return
        try:
            await self._api.create(user, kind, document, namespace=metadata["namespace"])
        except RefusedRequestError as error:
            # Someone else was faster, or the namespace is gone again.
            if error.code not in (_CONFLICT, _NOT_FOUND):
                raise

    # --- its end

    async def _clear(self, document: JsonObject) -> bool:
        name = document["metadata"]["name"]
        refusals: list[str] = []
        left = 0
        for kind in self._list_kinds():
            for item in self._store.list(kind, name):
                left += not await self._remove(kind, item, refusals)
        if not left:
            await self._close(document)
            return True
        await self._write_conditions(name, left, refusals)
        # What waits for a finalizer wakes us up when it goes; what was refused is tried again.
        return not refusals

    def _list_kinds(self) -> list[ServedKind]:
        """Each kind in one version; Pods last, as others may need them."""
        found = {(kind.group, kind.plural): kind for kind in self._catalogue if kind.namespaced}
        preferred = [self._catalogue.preferred(*place) for place in found]
        kinds = [kind for kind in preferred if kind is not None and "delete" in kind.verbs]
        return sorted(kinds, key=lambda kind: (kind.plural == "pods", kind.group, kind.plural))

    async def _remove(self, kind: ServedKind, item: JsonObject, refusals: list[str]) -> bool:
        """Whether it is gone."""
        metadata = item["metadata"]
        if not is_ending(item):
            try:
                await self._api.delete(
                    REMOVER,
                    kind,
                    metadata["name"],
                    namespace=metadata["namespace"],
                    options=DeleteOptions(propagation_policy="Background"),
                )
            except RefusedRequestError as error:
                if error.code != _NOT_FOUND:
                    refusals.append(error.message)
        return self._store.get(kind, metadata["namespace"], metadata["name"]) is None

    async def _close(self, document: JsonObject) -> None:
        current = self._store.get(self._kind, "", document["metadata"]["name"])
        if current is None:
            return
        spec = current.get("spec") or {}
        left = [each for each in spec.get("finalizers") or () if each != _FINALIZER]
        changed = {**current, "spec": {**spec, "finalizers": left}}
        await self._api.update(REMOVER, self._kind, changed, subresource="finalize")

    async def _write_conditions(self, name: str, left: int, refusals: list[str]) -> None:
        """Write to the status what delays the deletion of the namespace."""
        current = self._store.get(self._kind, "", name)
        if current is None:
            return
        now = read_clock()
        detail = f"Some content in the namespace remains: {left} objects"
        conditions = [_describe("NamespaceContentRemaining", "SomeResourcesRemain", detail, now)]
        if refusals:
            detail = "Failed to delete all resource types: " + "; ".join(refusals)[:500]
            conditions.append(
                _describe("NamespaceDeletionContentFailure", "ContentDeletionFailed", detail, now)
            )
        before = (current.get("status") or {}).get("conditions") or []
        if [_facts(each) for each in before] == [_facts(each) for each in conditions]:
            return
        status = {**(current.get("status") or {}), "conditions": conditions}
        changed = {**current, "status": status, "metadata": {**current["metadata"]}}
        changed["metadata"]["resourceVersion"] = version_of(current)
        await self._api.update(REMOVER, self._kind, changed, subresource="status")


def _describe(type_: str, reason: str, message: str, now: str) -> JsonObject:
    return {
        "type": type_,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
    }


def _facts(condition: JsonObject) -> tuple[str, str]:
    return str(condition.get("type")), str(condition.get("message"))
