"""Label selectors and the labels they take."""

import msgspec
import pytest

from lictor.core.errors import CompileError
from lictor.core.match.metadata import compile_selector
from lictor.core.model.metadata import LabelSelector


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
        (expression("NotIn", "x" * 63), {}, True),
        (
            {"matchLabels": {"tier": "web"}, **expression("Exists", key="team")},
            {"tier": "web"},
            False,
        ),
    ],
)
def test_compile_selector(selector, labels, fits):
    assert compile_selector(msgspec.convert(selector, LabelSelector))(labels) is fits


@pytest.mark.parametrize(
    "selector",
    [
        # Wildcards are for matchLabels alone.
        expression("In", "w*"),
        expression("In"),
        expression("NotIn"),
        expression("Exists", "web"),
        expression("Near", "web"),
        expression("DoesNotExist", key="not a key"),
        expression("DoesNotExist", key="a/b/c"),
        expression("DoesNotExist", key="Upper.org/c"),
        expression("NotIn", "x" * 64),
        expression("NotIn", "-x"),
        {"matchLabels": {"tier": "two words"}},
    ],
)
def test_what_kubernetes_would_refuse_is_refused(selector):
    with pytest.raises(CompileError, match="the selector"):
        compile_selector(msgspec.convert(selector, LabelSelector))
