"""A copy of JSON that may be filled in without harm to anyone."""

from lictor.raw import Json


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
