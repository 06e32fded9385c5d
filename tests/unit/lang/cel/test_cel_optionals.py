import pytest

from lictor.errors import EvaluationError
from lictor.lang.cel.environment import kyverno_environment, make_activation
from lictor.lang.cel.expression import compile_expression


@pytest.mark.parametrize(
    "text",
    [
        "{'a': optional.of('a')}",
        "[optional.of(1)]",
        "{'a': {'b': optional.none()}}",
        "Object{metadata: Object.metadata{name: optional.of('a')}}",
    ],
)
def test_an_optional_inside_an_answer_is_an_error(text):
    expression = compile_expression(text, kyverno_environment("mutating"))
    with pytest.raises(EvaluationError, match="holds an optional"):
        expression(make_activation({"object": {}}))
