"""Messages: texts as they are, and texts with variables as expressions."""

import re

from lictor.convert.place import Place
from lictor.convert.query import translate_text
from lictor.convert.scope import Scope
from lictor.convert.value import as_place
from lictor.errors import CompileError
from lictor.lang.template import has_variables
from lictor.model.policy import Validate

_VARIABLE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


def translate_message(validate: Validate, scope: Scope) -> tuple[dict[str, str], tuple[str, ...]]:
    """The message of a rule, and what is to be said of it."""
    text = " ".join(validate.message.split()) if "\n" in validate.message else validate.message
    text = text.strip()
    if not text:
        return {}, ()
    if not has_variables(text):
        return {"message": text}, ()
    plain = _VARIABLE.sub(lambda found: found.group(1).strip(), text)
    try:
        place = as_place(translate_text(text, scope))
    except CompileError as error:
        return {"message": plain}, (f"the message is told without its variables: {error.message}",)
    return {"message": plain, "messageExpression": _as_text(place)}, ()


def _as_text(place: Place) -> str:
    return place.text if place.type == "string" else f"string({place.text})"
