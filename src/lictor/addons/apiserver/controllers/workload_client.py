"""What workload controllers share: reads and writes, Pods, owner references, conditions."""

import logging
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import msgspec
import orjson

from lictor.addons.apiserver.kinds.catalogue import KindCatalogue
from lictor.addons.apiserver.loopback_client import LoopbackClient
from lictor.addons.apiserver.objects import find_controller, is_ending, read_clock
from lictor.addons.apiserver.service_account_tokens import name_controller
from lictor.addons.apiserver.store import GroupResource, Store
from lictor.core.errors import RefusedRequestError
from lictor.core.raw import JsonObject

log = logging.getLogger(__name__)
PODS: GroupResource = ("", "pods")
EVENTS: GroupResource = ("", "events")
CLAIMS: GroupResource = ("", "persistentvolumeclaims")
REPLICA_SETS: GroupResource = ("apps", "replicasets")
REVISIONS: GroupResource = ("apps", "controllerrevisions")
JOBS: GroupResource = ("batch", "jobs")
_MAX_MESSAGE = 1024
_MAX_REMEMBERED = 1000


class WriteAction(msgspec.Struct, frozen=True):
    """One write that a workload needs, and the Events that report it."""

    # create, update or delete
    verb: str
    resource: GroupResource
    document: JsonObject
    # Reason and message of the Event after it; {name} is the name of the object.
    reason: str = ""
    message: str = ""
    # The message of the Event after a refusal, before the error; without one the refusal is raised.
    failure: str = ""


class OwnedObjects:
    """Which objects does an owner control? Kept in step with the store."""

    def __init__(self) -> None:
        # Owner's uid and the resource of its children -> their namespaces and names.
        self._children: dict[tuple[str, GroupResource], set[tuple[str, str]]] = {}

    def note(self, resource: GroupResource, document: JsonObject, *, gone: bool) -> None:
        """An object came, changed or went."""
        reference = find_controller(document)
        if reference is None:
            return
        metadata = document["metadata"]
        key = (str(reference.get("uid")), resource)
        name = (str(metadata.get("namespace") or ""), str(metadata["name"]))
        if not gone:
            self._children.setdefault(key, set()).add(name)
            return
        known = self._children.get(key, set())
        known.discard(name)
        if not known:
            self._children.pop(key, None)

    def list(self, uid: str, resource: GroupResource) -> list[tuple[str, str]]:
        """Namespaces and names, in order."""
        return sorted(self._children.get((uid, resource), ()))


class ObjectRefusedError(Exception):
    """An object that a controller needs was refused, usually by a policy."""


class ControllerClient:
    """Reads and writes of one controller, under the user name that it has in any cluster."""

    def __init__(
        self,
        api: LoopbackClient,
        store: Store,
        catalogue: KindCatalogue,
        owned: OwnedObjects,
        controller: str,
    ) -> None:
        self._api = api
        self._store = store
        self._require = catalogue.require
        self._owned = owned
        self._controller = controller
        self._user = name_controller(controller)
        # The latest Events: a repeated one is counted up.
        self._recorded: OrderedDict[tuple[str, str, str], JsonObject] = OrderedDict()

    def find(self, resource: GroupResource, namespace: str, name: str) -> JsonObject | None:
        """One object."""
        return self._store.storage(*resource).objects.get((namespace, name))

    def list_children(self, owner: JsonObject, resource: GroupResource) -> list[JsonObject]:
        """What an owner controls, in the order of names."""
        keys = self._owned.list(owner["metadata"]["uid"], resource)
        found = (self.find(resource, *key) for key in keys)
        return [each for each in found if each is not None]

    async def carry_out(self, owner: JsonObject, actions: Iterable[WriteAction]) -> str:
        """Do what a plan lists, up to the first refusal; the error of that refusal."""
        for action in actions:
            try:
                name = await self._write(action)
            except ObjectRefusedError as refusal:
                if not action.failure:
                    raise
                message = f"{action.failure} {refusal}"
                await self.record(owner, "FailedCreate", message, warns=True)
                return str(refusal)
            if action.reason:
                await self.record(owner, action.reason, action.message.replace("{name}", name))
        return ""

    async def _write(self, action: WriteAction) -> str:
        """Carry out one action; the name of its object."""
        kind, document = self._require(*action.resource), action.document
        metadata = document["metadata"]
        if action.verb == "create":
            try:
                metadata = (await self._api.create(self._user, kind, document))["metadata"]
            except RefusedRequestError as error:
                raise ObjectRefusedError(error.message) from error
        elif action.verb == "update":
            await self._api.update(self._user, kind, document)
        else:
            options = {
                "propagationPolicy": "Background",
                "preconditions": {"uid": metadata["uid"]},
            }
            with self._unless_gone(action.resource, document):
                await self._api.delete(
                    self._user,
                    kind,
                    metadata["name"],
                    namespace=metadata["namespace"],
                    options=options,
                )
        return str(metadata["name"])

    async def write_status(
        self,
        resource: GroupResource,
        document: JsonObject,
        status: JsonObject,
        annotations: dict[str, str] | None = None,
    ) -> None:
        """Write the status where it changes, with the annotations that belong to it."""
        metadata = document["metadata"]
        given = metadata.get("annotations") or {}
        annotations = {**given, **(annotations or {})}
        if document.get("status") == status and annotations == given:
            return
        if annotations:
            metadata = {**metadata, "annotations": annotations}
        changed = {**document, "metadata": metadata, "status": status}
        with self._unless_gone(resource, document):
            await self._api.update(
                self._user, self._require(*resource), changed, subresource="status"
            )

    async def record(
        self, about: JsonObject, reason: str, message: str, *, warns: bool = False
    ) -> None:
        """Write an Event about an object; the count of a repeated one is raised."""
        message = message[:_MAX_MESSAGE]
        key = (about["metadata"]["uid"], reason, message)
        before = self._recorded.get(key)
        try:
            if before is None:
                event = build_event(about, reason, message, self._controller, warns=warns)
                self._remember(
                    key, await self._api.create(self._user, self._require(*EVENTS), event)
                )
            else:
                again = {**before, "count": before["count"] + 1, "lastTimestamp": read_clock()}
                self._remember(
                    key, await self._api.update(self._user, self._require(*EVENTS), again)
                )
        except RefusedRequestError as error:
            # The namespace may be terminating: a lost Event must not stop the controller.
            self._recorded.pop(key, None)
            log.debug("event not written", extra={"why": error.message[:200]})

    @contextmanager
    def _unless_gone(self, resource: GroupResource, document: JsonObject) -> Iterator[None]:
        """Ignore refusals about an object that is deleted, or replaced by one of the same name."""
        metadata = document["metadata"]
        try:
            yield
        except RefusedRequestError:
            found = self.find(resource, metadata["namespace"], metadata["name"])
            if found is not None and found["metadata"]["uid"] == metadata["uid"]:
                raise

    def _remember(self, key: tuple[str, str, str], event: JsonObject) -> None:
        self._recorded[key] = event
        self._recorded.move_to_end(key)
        if len(self._recorded) > _MAX_REMEMBERED:
            self._recorded.popitem(last=False)


def build_event(
    about: JsonObject, reason: str, message: str, source: str, *, warns: bool
) -> JsonObject:
    """An Event as controllers write them."""
    metadata = about["metadata"]
    now = read_clock()
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{metadata['name']}.{secrets.token_hex(8)}",
            "namespace": metadata["namespace"],
        },
        "involvedObject": {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
        },
        "type": "Warning" if warns else "Normal",
        "reason": reason,
        "message": message,
        "source": {"component": source},
        "reportingComponent": source,
        "reportingInstance": "",
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "eventTime": None,
    }


# Kubernetes' own alphabet: no vowels, so that no hash is a word.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_FNV_START = 2166136261
_FNV_PRIME = 16777619
_TEMPLATE_PARTS = ("labels", "annotations", "finalizers")


def build_child(
    owner: JsonObject, api_version: str, kind: str, metadata: JsonObject, **fields: object
) -> JsonObject:
    """An object in the namespace of its owner, controlled by it."""
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    home = {"namespace": owner["metadata"]["namespace"], "ownerReferences": [reference]}
    return {"apiVersion": api_version, "kind": kind, "metadata": {**metadata, **home}, **fields}


def build_pod(
    owner: JsonObject, template: JsonObject, labels: Mapping[str, str] | None = None
) -> JsonObject:
    """A Pod of the owner, still without a name."""
    given = template.get("metadata") or {}
    metadata: JsonObject = {part: given[part] for part in _TEMPLATE_PARTS if given.get(part)}
    if labels:
        metadata["labels"] = {**(given.get("labels") or {}), **labels}
    return build_child(owner, "v1", "Pod", metadata, spec=template.get("spec") or {})


def add_pods(owner: JsonObject, count: int) -> list[WriteAction]:
    """Actions that create Pods with generated names."""
    pod = build_pod(owner, owner["spec"]["template"])
    pod["metadata"]["generateName"] = f"{owner['metadata']['name']}-"
    event = ("SuccessfulCreate", "Created pod: {name}", "Error creating:")
    return [WriteAction("create", PODS, pod, *event)] * max(0, count)


def hash_template(template: JsonObject) -> str:
    """A short name for a template: the same for the same content."""
    number = _FNV_START
    for byte in orjson.dumps(template, option=orjson.OPT_SORT_KEYS):
        number = ((number ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(number))


def read_phase(pod: JsonObject) -> str:
    """Pending, Running, Succeeded or Failed."""
    return str((pod.get("status") or {}).get("phase") or "")


def is_active(pod: JsonObject) -> bool:
    """Is the Pod neither finished nor being deleted?"""
    return read_phase(pod) not in ("Succeeded", "Failed") and not is_ending(pod)


def has_condition(document: JsonObject, *kinds: str) -> bool:
    """Is a condition of one of these types true?"""
    conditions = (document.get("status") or {}).get("conditions") or ()
    return any(each.get("type") in kinds and each.get("status") == "True" for each in conditions)


def is_ready(pod: JsonObject) -> bool:
    """Is the condition Ready true? Without a kubelet, only a test sets it."""
    return has_condition(pod, "Ready")


def count_ready(pods: Iterable[JsonObject]) -> int:
    """The number of ready Pods."""
    return sum(is_ready(pod) for pod in pods)


def find_condition(conditions: list[JsonObject], kind: str) -> JsonObject | None:
    """The condition of a type."""
    return next((each for each in conditions if each.get("type") == kind), None)


def put_condition(
    conditions: list[JsonObject], wanted: JsonObject, *, is_stamped: bool = False
) -> None:
    """Replace the condition of the same type; `is_stamped`: with the time of the update.

    One with the same status and reason stays, even with another message: the message may contain
    the generated name of a Pod.
    """
    old = find_condition(conditions, wanted["type"])
    now = read_clock()
    if old is not None:
        if all(old.get(name) == wanted.get(name) for name in ("status", "reason")):
            return
        conditions.remove(old)
    is_same = old is not None and old.get("status") == wanted["status"]
    made = {**wanted, "lastTransitionTime": old["lastTransitionTime"] if old and is_same else now}
    if is_stamped:
        made["lastUpdateTime"] = now
    conditions.append(made)
