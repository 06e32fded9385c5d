"""Webhook configurations of lictor that an earlier run left in the data folder.

They lead to a port where nobody listens any more, or somebody else. The controllers write them
anew as soon as they run; until then they refuse as a webhook does that cannot be reached, so that
nothing slips past policies meanwhile.
"""

from collections.abc import Iterator

from lictor.apiserver.kind import ServedKind
from lictor.apiserver.server import Server
from lictor.cli.up.plan import LOOPBACK, Plan
from lictor.cluster.manifests.rights import list_webhook_names
from lictor.raw import JsonObject

_GROUP = "admissionregistration.k8s.io"
_PLURALS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_LABEL = "webhook.kyverno.io/managed-by"
_OWN_URLS = f"https://{LOOPBACK}:"


def renew_webhooks(server: Server, plan: Plan) -> None:
    """Point them to this run's port, and let them trust nobody until the controllers say whom."""
    ours = set(list_webhook_names(plan.names))
    for kind, found in _list_configurations(server):
        name = found["metadata"]["name"]
        if name not in ours:
            # Of a run under another prefix: nobody would ever write it anew.
            server.store.remove(kind, "", name)
            continue
        hooks = [_renew(hook, plan.flags.server_ip) for hook in found.get("webhooks") or ()]
        server.store.put(kind, {**found, "webhooks": hooks}, expected=None)


def are_current(server: Server) -> bool:
    """Have the controllers written all of them since the start?"""
    return all(
        hook["clientConfig"].get("caBundle")
        for _, found in _list_configurations(server)
        for hook in found.get("webhooks") or ()
    )


def _renew(hook: JsonObject, server_ip: str) -> JsonObject:
    url = hook["clientConfig"].get("url") or ""
    path = url.removeprefix(_OWN_URLS).partition("/")[2]
    return {**hook, "clientConfig": {"url": f"https://{server_ip}/{path}"}}


def _list_configurations(server: Server) -> Iterator[tuple[ServedKind, JsonObject]]:
    """Those that an embedded lictor has made: managed by us, and leading to this machine."""
    for plural in _PLURALS:
        kind = server.catalogue.preferred(_GROUP, plural)
        if kind is None:
            continue
        for found in server.store.list(kind):
            labels = found["metadata"].get("labels") or {}
            urls = [hook["clientConfig"].get("url") or "" for hook in found.get("webhooks") or ()]
            if _LABEL in labels and urls and all(url.startswith(_OWN_URLS) for url in urls):
                yield kind, found
