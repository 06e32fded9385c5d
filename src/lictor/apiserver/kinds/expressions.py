"""Of what type is an expression of a webhook or of an admission policy?"""

from lictor.apiserver.reading import read_text
from lictor.errors import SyntaxFaultError
from lictor.lang.cel.environment import kubernetes_environment
from lictor.lang.cel.expression import NO_VARIABLES, compile_expression, declare_variable
from lictor.lang.cel.tokens import read_tokens
from lictor.raw import Json

# Kubernetes leaves these out of `request`: they are variables of their own.
_NOT_IN_REQUEST = frozenset(("object", "oldObject"))


def find_type(text: str, variables: Json) -> str:
    """The type; SyntaxFaultError where the text makes no sense.

    `variables` are those that the policy declares, in the order in which they use each other.
    """
    _check_request(text)
    environment = kubernetes_environment()
    known = NO_VARIABLES
    for each in variables or ():
        name = read_text(each, "name")
        known = declare_variable(known, name, read_text(each, "expression"), environment)
    return compile_expression(text, environment, known).result_type


def _check_request(text: str) -> None:
    tokens = read_tokens(text) if "request" in text else []
    before = ""
    for number, token in enumerate(tokens[:-2]):
        dot, field = tokens[number + 1], tokens[number + 2]
        is_request = token.text == "request" and before != "." and dot.text == "."
        if is_request and field.text in _NOT_IN_REQUEST:
            raise SyntaxFaultError(f"undefined field '{field.text}'", text=text)
        before = token.text
