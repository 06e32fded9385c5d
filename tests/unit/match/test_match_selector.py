"""Label selectors and the labels they take."""

import msgspec
import pytest

from lictor.match.selector import compile_selector
from lictor.model.policy import LabelSelector


def expression(operator, *values, key="tier"):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("selector", "labels", "fits"),
    [
        ({}, {}, True),
        ({}, {"tier": "web"}, True),
        ({"matchLabels": {"tier": "web"}}, {"tier": "web", "team": "red"}, True),
        ({"matchLabels": {"tier": "web"}}, {"tier": "db"}, False),
        ({"matchLabels": {"tier": "web"}}, {}, False),
        ({"matchLabels": {"tier": ""}}, {"tier": ""}, True),
        ({"matchLabels": {"tier": ""}}, {}, False),
        ({"matchLabels": {"tier": "web", "team": "red"}}, {"tier": "web", "team": "red"}, True),
        ({"matchLabels": {"tier": "web", "team": "red"}}, {"tier": "web"}, False),
        # Wildcards in keys and values; an empty label set has no label that could fit.
        ({"matchLabels": {"tier": "w*"}}, {"tier": "web"}, True),
        ({"matchLabels": {"tier": "w?"}}, {"tier": "web"}, False),
        ({"matchLabels": {"t*": "web"}}, {"team": "red", "tier": "web"}, True),
        ({"matchLabels": {"t*": "web"}}, {"team": "red", "type": "db"}, False),
        ({"matchLabels": {"example.org/*": "*"}}, {"example.org/x": ""}, True),
        ({"matchLabels": {"*": "*"}}, {}, False),
        (expression("In", "web", "db"), {"tier": "db"}, True),
        (expression("In", "web", "db"), {"tier": "x"}, False),
        (expression("In", "web"), {}, False),
        (expression("NotIn", "web"), {"tier": "db"}, True),
        (expression("NotIn", "web"), {"tier": "web"}, False),
        (expression("NotIn", "web"), {}, True),
        (expression("Exists"), {"tier": ""}, True),
        (expression("Exists"), {}, False),
        (expression("DoesNotExist"), {}, True),
        (expression("DoesNotExist"), {"tier": "web"}, False),
        # Wildcards are for matchLabels alone.
        (expression("In", "w*"), {"tier": "web"}, False),
        # What Kubernetes would refuse takes nothing, even where the rest would fit.
        (expression("In"), {"tier": "web"}, False),
        (expression("NotIn"), {}, False),
        (expression("Exists", "web"), {"tier": "web"}, False),
        (expression("Near", "web"), {"tier": "web"}, False),
        (expression("DoesNotExist", key="not a key"), {}, False),
        (expression("DoesNotExist", key="a/b/c"), {}, False),
        (expression("DoesNotExist", key="Upper.org/c"), {}, False),
        (expression("NotIn", "x" * 64), {}, False),
        (expression("NotIn", "x" * 63), {}, True),
        (expression("NotIn", "-x"), {}, False),
        ({"matchLabels": {"tier": "two words"}}, {"tier": "two words"}, False),
        (
            {"matchLabels": {"tier": "web"}, **expression("Exists", key="team")},
            {"tier": "web"},
            False,
        ),
    ],
)
def test_compile_selector(selector, labels, fits):
    assert compile_selector(msgspec.convert(selector, LabelSelector))(labels) is fits
