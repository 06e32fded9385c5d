"""What the expressions of one rule may name, and the variables that are made on the way."""

import re

import msgspec

from lictor.convert.place import TEXT, Names, Place
from lictor.convert.subject import Subject
from lictor.convert.value import Value
from lictor.errors import CompileError


class Hoisted:
    """Variables of the new policy, in the order in which they are needed.

    With `inline`, there are none: what they would stand for is written out.
    """

    def __init__(self, *, inline: bool = False) -> None:
        self.expressions: dict[str, str] = {}
        self._inline = inline

    def add(self, name: str, expression: str) -> str:
        """Declare a variable, or find the one that says the same; gives how to refer to it."""
        if self._inline:
            return f"({expression})"
        for known, text in self.expressions.items():
            if text == expression:
                return f"variables.{known}"
        free, number = name, 2
        while free in self.expressions:
            free, number = f"{name}{number}", number + 1
        self.expressions[free] = expression
        return f"variables.{free}"


class Scope(msgspec.Struct, frozen=True):
    """The names that an expression may use."""

    subject: Subject
    hoisted: Hoisted
    # `element` and the rule's context entries.
    bindings: dict[str, Value] = {}
    names: Names = Names()
    # Texts of the resource may be wildcards themselves, as they are in roles.
    wildcards: bool = False
    # A path to what is not there is an error.
    strict: bool = True
    # Functions that only Kyverno has may be used.
    kyverno: bool = True

    def bind(self, **values: Value) -> "Scope":
        """The same with more names."""
        return msgspec.structs.replace(self, bindings={**self.bindings, **values})

    def hoist(self, name: str, text: str) -> str:
        """A variable for a text, unless it speaks of what only a loop knows."""
        if any(re.search(rf"\b{taken}\b", text) for taken in self.names.taken):
            return f"({text})"
        return self.hoisted.add(name, text)

    def find(self, name: str) -> Value:
        """The value of a name; CompileError where there is none."""
        found = self.bindings.get(name)
        if found is not None:
            return found
        if name == "serviceAccountName":
            return _SERVICE_ACCOUNT
        raise CompileError(f"the variable {name} has no equivalent")


_USER = "request.userInfo.username"
_SERVICE_ACCOUNT = Place(
    f'({_USER}.startsWith("system:serviceaccount:") ? {_USER}.split(":")[3] : "")',
    TEXT,
    risky=True,
)
