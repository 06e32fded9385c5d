"""Kyverno's `parseServiceAccount(username)`: the namespace and name inside a user's name."""

from lictor.lang.cel.declaration import function

_PREFIX = "system:serviceaccount:"


def _parse(username: str) -> dict[str, str]:
    namespace, colon, name = username.removeprefix(_PREFIX).partition(":")
    if not colon or not username.startswith(_PREFIX):
        namespace = name = ""
    return {"Name": name, "Namespace": namespace}


OVERLOADS = tuple(
    function(f"{prefix}parseServiceAccount", "string -> map<string,string>", _parse)
    for prefix in ("", "user.")
)
