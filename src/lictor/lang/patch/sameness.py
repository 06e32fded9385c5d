"""Are two JSON values the same? Strictly: 1, 1.0, true and "1" are four values."""

from lictor.raw import Json


def is_same(left: Json, right: Json) -> bool:
    """Compare by type and value; shared parts are the same without a look into them."""
    if left is right:
        return True
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(
            [is_same(value, right[key]) for key, value in left.items()]
        )
    if isinstance(left, list):
        return len(left) == len(right) and all(map(is_same, left, right))
    return bool(left == right)
