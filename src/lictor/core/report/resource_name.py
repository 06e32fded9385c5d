"""How a resource is called in answers to people. Odd JSON never breaks a report."""

from lictor.core.raw import Json, JsonObject


def read_text(value: Json) -> str:
    """A field that should be text, as text: a number is shown, anything else is empty."""
    if isinstance(value, str):
        return value
    # Python refuses to print a number of many thousand digits.
    if isinstance(value, (int, float)) and abs(value) < 1e18:
        return str(value)
    return ""


def read_metadata(resource: JsonObject) -> JsonObject:
    """The metadata, or nothing where it is no object."""
    metadata = resource.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def describe_resource(resource: JsonObject) -> str:
    """`namespace/Kind/name`, with empty parts kept; a bare payload has no name at all."""
    metadata = read_metadata(resource)
    namespace = read_text(metadata.get("namespace"))
    kind = read_text(resource.get("kind"))
    name = read_text(metadata.get("name"))
    described = f"{namespace}/{kind}/{name}" if namespace or kind or name else "JSON payload"
    # No cluster has such names, but files do: they must not steer a terminal, nor begin a line.
    return described if described.isprintable() else repr(described)[1:-1]


def name_resource(resource: JsonObject) -> str:
    """`namespace/Kind/name`, or `Kind/name` for what lives in no namespace."""
    return describe_resource(resource).removeprefix("/")
