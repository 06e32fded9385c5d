"""What is wrong with what holds data: ConfigMaps, Secrets, quotas, limits, leases, events?"""

from lictor.apiserver.checks.check_basics import Say, check_counts, check_same, say_all
from lictor.apiserver.checks.name_rules import check_config_key, check_qualified
from lictor.apiserver.field_errors import forbidden, invalid, required, too_long
from lictor.apiserver.object_reader import read_list, read_object, read_text
from lictor.lang.quantity import Quantity, parse_quantity
from lictor.raw import Json, JsonObject

_MAX_SIZE = 1024 * 1024
_SECRET_KEYS = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
_ACCOUNT_TOKEN = "kubernetes.io/service-account-token"  # noqa: S105  (a type of Secrets)
_ACCOUNT_NAME = "kubernetes.io/service-account.name"
_FROZEN = "field is immutable when `immutable` is set"


def check_config_map(config_map: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A ConfigMap."""
    data, binary = read_object(config_map, "data"), read_object(config_map, "binaryData")
    for key in sorted(data):
        say_all((invalid(f"data[{key}]", key, why) for why in check_config_key(key)), say)
        if key in binary:
            say(invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
    for key in sorted(binary):
        say_all((invalid(f"binaryData[{key}]", key, why) for why in check_config_key(key)), say)
    if sum(map(_weigh, (*data.values(), *binary.values()))) > _MAX_SIZE:
        say(too_long("", _MAX_SIZE))
    _check_frozen(config_map, old, ("data", "binaryData"), say)


def _weigh(value: Json) -> int:
    return len(value) if isinstance(value, str) else 0


def _check_frozen(
    document: JsonObject, old: JsonObject | None, fields: tuple[str, ...], say: Say
) -> None:
    if old is None or old.get("immutable") is not True:
        return
    if document.get("immutable") is not True:
        say(forbidden("immutable", _FROZEN))
    for field in fields:
        if read_object(document, field) != read_object(old, field):
            say(forbidden(field, _FROZEN))


def check_secret(secret: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A Secret."""
    data, kind = read_object(secret, "data"), read_text(secret, "type")
    check_same(secret, old, ("type",), "", say)
    for key in sorted(data):
        say_all((invalid(f"data[{key}]", key, why) for why in check_config_key(key)), say)
    if sum(map(_weigh, data.values())) > _MAX_SIZE * 4 // 3:
        say(too_long("data", _MAX_SIZE))
    for key in _SECRET_KEYS.get(kind, ()):
        if key not in data:
            say(required(f"data[{key}]"))
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & set(data):
        say(required("data[username]"))
        say(required("data[password]"))
    annotations = read_object(read_object(secret, "metadata"), "annotations")
    if kind == _ACCOUNT_TOKEN and not annotations.get(_ACCOUNT_NAME):
        say(required(f"metadata.annotations[{_ACCOUNT_NAME}]"))
    _check_frozen(secret, old, ("data",), say)


def check_limits(limit_range: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A LimitRange."""
    del old
    for index, item in enumerate(read_list(read_object(limit_range, "spec"), "limits")):
        path, kind = f"spec.limits[{index}]", read_text(item, "type")
        say_all((invalid(f"{path}.type", kind, why) for why in check_qualified(kind)), say)
        least, most = read_object(item, "min"), read_object(item, "max")
        for name, amount in least.items():
            limit = most.get(name)
            if limit is not None and _read(amount) > _read(limit):
                told = f"min value {amount} is greater than max value {limit}"
                say(invalid(f"{path}.min[{name}]", amount, told))


def check_quota(quota: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A ResourceQuota."""
    del old
    for name, amount in read_object(read_object(quota, "spec"), "hard").items():
        if _read(amount) < Quantity(0):
            told = "must be greater than or equal to 0"
            say(invalid(f"spec.hard[{name}]", amount, told))


def _read(amount: Json) -> Quantity:
    try:
        return parse_quantity(str(amount))
    except ValueError:
        return Quantity(0)


def check_lease(lease: JsonObject, old: JsonObject | None, say: Say) -> None:
    """A Lease."""
    del old
    spec = read_object(lease, "spec")
    duration = spec.get("leaseDurationSeconds")
    if isinstance(duration, int) and duration <= 0:
        say(invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    check_counts(spec, ("leaseTransitions",), "spec", say)


def check_event(event: JsonObject, old: JsonObject | None, say: Say) -> None:
    """An Event lies where the object lies that it is about."""
    field = "involvedObject" if "involvedObject" in event else "regarding"
    about = read_text(read_object(event, field), "namespace")
    own = read_text(read_object(event, "metadata"), "namespace")
    # What is about the cluster as a whole lies in `default`, or in the cluster's own namespaces.
    if old is None and about and about != own:
        say(invalid(f"{field}.namespace", about, "does not match event.namespace"))
