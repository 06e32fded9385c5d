"""The volume with its account's token that every Pod gets, unless it or the account says no."""

import secrets

from lictor.apiserver.reading import read_list, read_text
from lictor.raw import Json, JsonObject

_PLACE = "/var/run/secrets/kubernetes.io/serviceaccount"
_PREFIX = "kube-api-access-"
# Without vowels and digits that look like letters, as the API server names things.
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
# An hour and a bit: so kubelets can tell the usual token from one that was asked for.
_SECONDS = 3607
_MODE = 0o644


def add_token_volume(spec: JsonObject, account: JsonObject) -> JsonObject:
    """The spec of a Pod with its account's token where containers look for it."""
    wanted = spec.get("automountServiceAccountToken")
    if wanted is None:
        wanted = account.get("automountServiceAccountToken")
    if wanted is False:
        return spec
    name = _find_volume(spec) or _PREFIX + "".join(secrets.choice(_LETTERS) for _ in range(5))
    mounted = {
        field: [_mount(container, name) for container in read_list(spec, field)]
        for field in ("initContainers", "containers")
        if spec.get(field)
    }
    if all(mounted[field] == spec[field] for field in mounted):
        return spec
    volumes = read_list(spec, "volumes")
    if not any(read_text(each, "name") == name for each in volumes):
        volumes = [*volumes, _build_volume(name)]
    return {**spec, **mounted, "volumes": volumes}


def add_pull_secrets(spec: JsonObject, account: JsonObject) -> JsonObject:
    """The spec with its account's pull secrets where it names none."""
    own = read_list(account, "imagePullSecrets")
    return spec if not own or spec.get("imagePullSecrets") else {**spec, "imagePullSecrets": own}


def _find_volume(spec: JsonObject) -> str:
    names = (read_text(each, "name") for each in read_list(spec, "volumes"))
    return next((name for name in names if name.startswith(_PREFIX)), "")


def _mount(container: Json, name: str) -> Json:
    if not isinstance(container, dict):
        return container
    mounts = read_list(container, "volumeMounts")
    if any(read_text(each, "mountPath") == _PLACE for each in mounts):
        return container
    mount = {"name": name, "readOnly": True, "mountPath": _PLACE}
    return {**container, "volumeMounts": [*mounts, mount]}


def _build_volume(name: str) -> JsonObject:
    place = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    return {
        "name": name,
        "projected": {
            "defaultMode": _MODE,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": _SECONDS, "path": "token"}},
                {
                    "configMap": {
                        "name": "kube-root-ca.crt",
                        "items": [{"key": "ca.crt", "path": "ca.crt"}],
                    }
                },
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": place}]}},
            ],
        },
    }
