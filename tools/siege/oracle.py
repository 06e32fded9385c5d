"""Is everything outside `red` as it was, and has nothing of it come to light?"""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
from cluster_objects import Address, list_collections, list_objects, read_object
from violations import ViolationLog

Object = dict[str, Any]
# What comes and goes by itself, as it is about requests.
CHURN = frozenset(
    ("leases", "events", "ephemeralreports", "clusterephemeralreports", "updaterequests")
)
REPORTS = frozenset(("policyreports", "clusterpolicyreports", "reports", "clusterreports"))
# Lictor keeps these in step with the policies of all namespaces.
_OWN = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
_NEVER_SAME = ("resourceVersion", "generation", "managedFields")


def spell(markers: dict[str, str]) -> dict[bytes, str]:
    """The markers in every form in which they could be carried out."""
    found: dict[bytes, str] = {}
    for where, word in markers.items():
        plain = word.encode()
        for form in (plain, plain[::-1], plain.upper(), plain.hex().encode()):
            found[form] = where
        found[base64.b64encode(plain)] = where
        # In the middle of a longer text that is encoded: what no neighbour changes.
        for before in (b"\0", b"\0\0"):
            found[base64.b64encode(before + plain)[4:-4]] = where
    return found


class Oracle:
    """Knows how it was before the first attack."""

    def __init__(
        self, client: httpx2.Client, markers: dict[str, str], violations: ViolationLog
    ) -> None:
        self._client = client
        self._forms = spell(markers)
        self._violations = violations
        self._versions: dict[Address, str] = {}
        self._contents: dict[Address, str] = {}
        self._searched: dict[Path, int] = {}
        for address, body in self._list_outside():
            self._remember(address, body)

    def search(self, text: str | bytes, where: str) -> None:
        """A marker in an answer, an event, a report, a log?"""
        content = text.encode() if isinstance(text, str) else text
        for form, owner in self._forms.items():
            if form in content:
                place = content.index(form)
                near = content[max(place - 300, 0) : place + 200].decode(errors="replace")
                self._violations.report("secret shown", f"{owner}'s in {where}", near=near)

    def search_log(self, path: Path) -> None:
        """What a log has more than the last time."""
        with path.open("rb") as file:
            file.seek(max(self._searched.get(path, 0) - 200, 0))
            content = file.read()
            self._searched[path] = file.tell()
        self.search(content, f"log {path.name}")

    def check_outside(self) -> None:
        """Objects that came, went or changed outside `red`."""
        found = dict(self._list_outside())
        for address, body in found.items():
            version = body["metadata"]["resourceVersion"]
            if self._versions.get(address) != version:
                self._check_changed(address, body)
        for address in [each for each in self._versions if each not in found]:
            self._violations.report("object deleted", str(address))
            del self._versions[address], self._contents[address]

    def _check_changed(self, address: Address, body: Object) -> None:
        before, after = self._contents.get(address), _normalise(body)
        self._remember(address, body)
        if before is None:
            self._violations.report("object created", str(address), content=after[:2000])
        elif before != after:
            self._violations.report(
                "object changed", str(address), before=before[:2000], after=after[:2000]
            )

    def check_shown(self) -> None:
        """All that is told about `red`'s policies, in `red` and elsewhere."""
        for collection in list_collections(self._client):
            is_told = collection.name in CHURN or collection.name in REPORTS
            if not is_told and not collection.namespaced:
                continue
            for address, body in list_objects(
                self._client, collection, "" if is_told else "red", whole=True
            ):
                self.search(json.dumps(body), str(address))
                if collection.name in REPORTS and address.namespace != "red":
                    self._check_report(address, body)

    def _check_report(self, address: Address, body: Object) -> None:
        for result in body.get("results") or ():
            if str(result.get("policy", "")).startswith("red/"):
                self._violations.report("judged outside", str(address), result=result)

    def _remember(self, address: Address, body: Object) -> None:
        self._versions[address] = body["metadata"]["resourceVersion"]
        self._contents[address] = _normalise(body)

    def _list_outside(self) -> Iterator[tuple[Address, Object]]:
        """All that should stay; whole only where it is not the version that is known."""
        for collection in list_collections(self._client):
            if collection.name in CHURN or collection.name in REPORTS or collection.name in _OWN:
                continue
            for address, body in list_objects(self._client, collection, "", whole=False):
                # What has no version is no object, but an answer about something else.
                if address.namespace == "red" or "resourceVersion" not in body["metadata"]:
                    continue
                if self._versions.get(address) == body["metadata"]["resourceVersion"]:
                    yield address, body
                elif (whole := read_object(self._client, address)) is not None:
                    yield address, whole


def _normalise(body: Object) -> str:
    metadata = {k: v for k, v in body["metadata"].items() if k not in _NEVER_SAME}
    rest = {k: v for k, v in body.items() if k not in ("status", "metadata")}
    return json.dumps({"metadata": metadata, **rest}, sort_keys=True)
