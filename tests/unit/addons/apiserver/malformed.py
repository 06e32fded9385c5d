"""Requests that no honest client would send, made from honest ones; the same for the same seed."""

import json
import random
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import yaml

TOKEN = "malformed"
_HONEST = {
    entry["object"]["kind"]: entry
    for entry in yaml.safe_load(
        (Path(__file__).parent / "honest_objects.yaml").read_text(encoding="utf-8")
    )
}
# Where objects of a kind live.
KINDS = {kind: entry["at"] for kind, entry in _HONEST.items()}
# What is asked, and not kept.
_REVIEWS = frozenset(kind for kind in KINDS if kind.endswith("Review"))
_METHODS = (*["GET"] * 3, *["POST"] * 4, *["PUT"] * 4, *["PATCH"] * 8, "DELETE", "DELETE")
_TYPES = {
    "json-patch": "application/json-patch+json",
    "merge-patch": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
    "json": "application/json",
    "yaml": "application/yaml",
    "nothing": "",
    "odd": "application/vnd.kubernetes.protobuf",
    "wrong": "text/\xe4;;;=",
}
_ACCEPTS = (
    "application/json",
    "*/*",
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v9;g=meta.k8s.io",
    "application/json;as=;v;g==",
    "application/vnd.kubernetes.protobuf",
    ";;;,,,",
    "a" * 500,
)
_OPTIONS = (
    "watch", "limit", "continue", "labelSelector", "fieldSelector", "resourceVersion", "dryRun",
    "resourceVersionMatch", "fieldManager", "force", "fieldValidation", "timeoutSeconds",
    "sendInitialEvents", "allowWatchBookmarks", "includeObject", "propagationPolicy",
    "gracePeriodSeconds", "pretty", "timeout", "orphanDependents",
)  # fmt: skip
_VALUES = (
    "", "true", "false", "All", "0", "1", "-1", "5", "99999999999999999999", "1e3", "None", "a=b",
    "a in (b", "a!=b,!c", "metadata.name=thing", "metadata.name", "spec.nodeName!=x,,", "Strict",
    "Warn", "Ignore", "Exact", "NotOlderThan", "Background", "Foreground", "Orphan", "Object",
    "eyJ9", "e30=", "%00", "\u00e4\u4e2d", "x" * 300, "{}", "[]", "null", "\x00", "a\nb", "%zz",
)  # fmt: skip
_NAMES = (*["thing"] * 25, "missing", "missing", "UPPER", "..", "a/b", "x" * 300, "\u4e2d", "%", "")
_PARTS = (
    *["status"] * 5,
    *["scale"] * 3,
    *["resize"] * 2,
    *["ephemeralcontainers"] * 2,
    "approval",
    "finalize",
    "token",
    "eviction",
    "binding",
    "log",
    "proxy/a/b",
    "what",
)
_LITERALS = (
    None, True, False, 0, 1, -1, 1.5, 1e308, 2**31, 2**63, -(2**63), "", "a", "1", "\x00", "\u4e2d",
    "x" * 2000, "$patch", "0.1.2", "100m", "-", "=", "*", "{{x}}", [], {}, [None], [[]], [{}],
    {"": None}, {"a": {"b": {}}}, ["a", "a"], [1, "a", None, {}], {"$patch": "delete"},
    {"$patch": "replace"}, {"$patch": 7}, {"$retainKeys": ["a"]}, {"$setElementOrder/a": [1]},
    {"$deleteFromPrimitiveList/finalizers": [{}]}, {"name": None}, {"f:a": {}}, "2020-13-40",
    "2020-01-01T00:00:00Z", "object.x ==", "(" * 50, "[" * 50, "^(a+)+$",
)  # fmt: skip
_FIELDS = (
    "metadata", "spec", "status", "name", "namespace", "labels", "annotations", "finalizers",
    "ownerReferences", "managedFields", "resourceVersion", "uid", "generation", "apiVersion",
    "kind", "deletionTimestamp", "generateName", "data", "$patch", "items", "replicas", "selector",
)  # fmt: skip


@dataclass(frozen=True)
class Wild:
    """One request."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def write(self) -> bytes:
        """What goes over the wire."""
        lines = [f"{self.method} {self.path} HTTP/1.1", "host: x"]
        if not any(name == "authorization" for name, _ in self.headers):
            lines.append(f"authorization: Bearer {TOKEN}")
        lines += [f"{name}: {value}" for name, value in self.headers]
        lines.append(f"content-length: {len(self.body)}")
        return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + self.body


def make_honest(kind: str, name: str = "thing") -> dict:
    """An object as it should be."""
    document = json.loads(json.dumps(_HONEST[kind]["object"]))
    document["metadata"] = {"name": name, **document.get("metadata", {})}
    return document


class Generator:
    """Makes requests, each from the numbers that came before it."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def make(self) -> Wild:
        pick = self._random
        kind = pick.choice(list(KINDS))
        method = pick.choice(_METHODS)
        if kind in _REVIEWS:
            method = "POST"
        if pick.random() < 0.03:
            method = pick.choice(("HEAD", "OPTIONS", "TRACE", "CONNECT", "QUERY"))
        content = self._choose_content(method)
        headers = [("accept", pick.choice(_ACCEPTS[:4] if pick.random() < 0.95 else _ACCEPTS))]
        if content:
            headers.append(("content-type", _TYPES[content]))
        if pick.random() < 0.03:
            name = pick.choice(("impersonate-user", "impersonate-group", "authorization"))
            headers.append((name, pick.choice(("Bearer x", "Bearer a.b.c", "me", "system:x", ""))))
        path = self._make_path(kind, method) + self._make_query(content)
        return Wild(method, path, tuple(headers), self._make_body(kind, method, content))

    def _choose_content(self, method: str) -> str:
        pick = self._random
        if pick.random() < 0.1:
            return pick.choice(list(_TYPES))
        if method == "PATCH":
            return pick.choice(("json-patch", "merge-patch", "strategic", "apply"))
        return "json" if method in ("POST", "PUT", "DELETE") else ""

    def _make_path(self, kind: str, method: str) -> str:
        pick = self._random
        if pick.random() < 0.05:
            return self._make_odd_path()
        path = KINDS[kind]
        named = method in ("PUT", "PATCH") or (method in ("GET", "DELETE") and pick.random() < 0.6)
        if named != (pick.random() < 0.05):
            name = pick.choice(_NAMES)
            if kind == "CustomResourceDefinition" and name == "thing":
                # What the others need stays.
                name = "others.lictor.test"
            path += f"/{quote(name, safe='' if pick.random() < 0.8 else '/%')}"
            if pick.random() < 0.15:
                path += f"/{pick.choice(_PARTS)}"
        if method == "DELETE" and not named and kind in ("CustomResourceDefinition", "Namespace"):
            path += "/missing"
        return path

    def _make_odd_path(self) -> str:
        pick = self._random
        words = (
            "api", "apis", "v1", "apps", "namespaces", "default", "pods", "", "..", "%2f", "%00",
            "openapi", "v3", "v2", "healthz", "readyz", "version", "metrics", "%e4", "lictor.test",
            "status", "watch", "*", "~", "%", "%zz", "a" * 100,
        )  # fmt: skip
        return "/" + "/".join(pick.choice(words) for _ in range(pick.randrange(8)))

    def _make_query(self, content: str) -> str:
        pick = self._random
        options = [("fieldManager", pick.choice(("one", "two", "kubectl")))] if content else []
        if content == "apply" and pick.random() < 0.5:
            options.append(("force", "true"))
        while pick.random() < 0.3:
            options.append((pick.choice(_OPTIONS), pick.choice(_VALUES)))
        if pick.random() < 0.02:
            options += [("a", "b")] * 100
        text = "&".join(f"{name}={quote(value)}" for name, value in options)
        if pick.random() < 0.02:
            text += pick.choice(("&&&=", "%%%", ";", "=\x7f", "&a=%ff%fe", "?"))
        return f"?{text}" if text else ""

    def _make_body(self, kind: str, method: str, content: str) -> bytes:
        pick = self._random
        if method in ("GET", "HEAD", "OPTIONS"):
            return b""
        if method == "DELETE":
            return self._write(self._make_delete_options())
        if pick.random() < 0.03:
            return self._make_garbage()
        if content == "json-patch":
            return self._write([self._make_operation(kind) for _ in range(pick.randrange(6))])
        document = make_honest(kind, pick.choice((*["thing"] * 8, "other", "Bad Name")))
        if content in ("merge-patch", "strategic") and pick.random() < 0.7:
            document = {key: document[key] for key in document if pick.random() < 0.6}
        spoiled = self.spoil(document, pick.choice((0, 1, 1, 2, 5, 20)))
        return self._write(self._restore(spoiled, document) if pick.random() < 0.85 else spoiled)

    def _restore(self, spoiled: dict, honest: dict) -> dict:
        """With its identity, or it would go no further than the door."""
        kept = {key: honest[key] for key in ("apiVersion", "kind") if key in honest}
        metadata = spoiled.get("metadata")
        if isinstance(metadata, dict) and "metadata" in honest:
            kept["metadata"] = {**metadata, "name": honest["metadata"]["name"]}
        return {**spoiled, **kept}

    def spoil(self, document: dict, times: int) -> dict:
        """The document with so many things that should not be so."""
        for _ in range(times):
            document = self._spoil(document)
        return document

    def _write(self, value) -> bytes:
        pick = self._random
        body = json.dumps(value, ensure_ascii=pick.random() < 0.9).encode("utf-8", "surrogatepass")
        if pick.random() < 0.03 and body:
            at = pick.randrange(len(body))
            body = body[:at] + bytes([pick.randrange(256)]) + body[at + pick.randrange(3) :]
        return body

    def _make_garbage(self) -> bytes:
        pick = self._random
        return pick.choice((
            b"", b"null", b"[]", b"1", b'"a"', b"{", b"\xff\xfe", b"a: b: c", b"- 1\n- 2", b"\x00",
            b"&a [*a, *a]", b"a: &a [*a]", b"[" * 5000, b'{"a":' * 1500 + b"1" + b"}" * 1500,
            b'{"a":' * 190 + b"1" + b"}" * 190, b"!!python/object:os.system {}", b"---\n---\n",
            b"{}{}", b'{"a":1,"a":2}', b"NaN", b'{"metadata":{"name":"\\ud800"}}', b"1e999",
            bytes(pick.randrange(256) for _ in range(200)),
        ))  # fmt: skip

    def _make_delete_options(self):
        pick = self._random
        if pick.random() < 0.5:
            return {}
        return {
            "apiVersion": pick.choice(("v1", "meta.k8s.io/v1", 7)),
            "kind": pick.choice(("DeleteOptions", "Pod", None)),
            pick.choice(("propagationPolicy", "gracePeriodSeconds", "preconditions", "dryRun")): (
                pick.choice((*_LITERALS, "Orphan", "Foreground", {"uid": "x"}, ["All"]))
            ),
        }

    def _make_operation(self, kind: str):
        pick = self._random
        places = self._list_places(make_honest(kind))
        spots = [*places, "/", "", "/metadata/-", "/spec/~2", "/a/b/c", "x", "/metadata/labels/-1"]
        operation: dict[str, object] = {
            "op": pick.choice(("add", "remove", "replace", "move", "copy", "test", "what", None)),
            "path": pick.choice((*spots, *spots, None, 7)),
        }
        if pick.random() < 0.8:
            operation["value"] = pick.choice(_LITERALS)
        if pick.random() < 0.4:
            operation["from"] = pick.choice(spots)
        return operation if pick.random() < 0.97 else pick.choice(_LITERALS)

    def _list_places(self, value, path: str = "") -> list[str]:
        inner = enumerate(value) if isinstance(value, list) else value.items()
        places = []
        for key, each in inner:
            place = f"{path}/{key}"
            places.append(place)
            if isinstance(each, (dict, list)):
                places += self._list_places(each, place)
        return places

    def _spoil(self, value, depth: int = 0):
        """The same with one thing that should not be so."""
        pick = self._random
        if not isinstance(value, (dict, list)) or not value or (depth and pick.random() < 0.2):
            return pick.choice(_LITERALS) if depth else self._spoil_object(dict(value or {}))
        if isinstance(value, list):
            at = pick.randrange(len(value))
            return [*value[:at], self._spoil(value[at], depth + 1), *value[at + 1 :]]
        if pick.random() < 0.2:
            return self._spoil_object(dict(value))
        key = pick.choice(list(value))
        return {**value, key: self._spoil(value[key], depth + 1)}

    def _spoil_object(self, value: dict) -> dict:
        pick = self._random
        if value and pick.random() < 0.4:
            del value[pick.choice(list(value))]
        else:
            value[pick.choice(_FIELDS)] = pick.choice(_LITERALS)
        return value
