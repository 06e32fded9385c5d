"""Fields of JSON objects that were not validated: missing ones and other types count as empty."""

from lictor.core.raw import Json, JsonObject


def copy_json(value: Json) -> Json:
    """Maps and lists are new, all the way down; scalars are shared."""
    if type(value) is dict:
        return {
            key: copy_json(inner) if type(inner) in (dict, list) else inner
            for key, inner in value.items()
        }
    if type(value) is list:
        return [copy_json(inner) if type(inner) in (dict, list) else inner for inner in value]
    return value


def read_object(holder: Json, field: str) -> JsonObject:
    """A field that is an object; empty where it is not there, or something else."""
    value = holder.get(field) if isinstance(holder, dict) else None
    return value if isinstance(value, dict) else {}


def read_list(holder: Json, field: str) -> list[Json]:
    """A field that is a list; empty where it is not there, or something else."""
    value = holder.get(field) if isinstance(holder, dict) else None
    return value if isinstance(value, list) else []


def read_text(holder: Json, field: str) -> str:
    """A field that is text; empty where it is not there, or something else."""
    value = holder.get(field) if isinstance(holder, dict) else None
    return value if isinstance(value, str) else ""


def read_texts(holder: Json, field: str) -> tuple[str, ...]:
    """The texts of a field that is a list."""
    return tuple(each for each in read_list(holder, field) if isinstance(each, str))
