"""Of what type is an expression of a webhook or of an admission policy?"""

from lictor.embedded.reading import read_text
from lictor.lang.cel.environment import kubernetes_environment
from lictor.lang.cel.expression import NO_VARIABLES, compile_expression, declare_variable
from lictor.raw import Json


def find_type(text: str, variables: Json) -> str:
    """The type; SyntaxFaultError where the text makes no sense.

    `variables` are those that the policy declares, in the order in which they use each other.
    """
    environment = kubernetes_environment()
    known = NO_VARIABLES
    for each in variables or ():
        name = read_text(each, "name")
        known = declare_variable(known, name, read_text(each, "expression"), environment)
    return compile_expression(text, environment, known).result_type
