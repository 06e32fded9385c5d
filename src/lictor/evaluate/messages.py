"""Messages of failed rules: the author's text with its variables, and what went wrong."""

import msgspec

from lictor.errors import EvaluationError, LookupFailedError
from lictor.evaluate.setting import Setting
from lictor.lang.template import CompiledDocument
from lictor.model.program import Case


class Message(msgspec.Struct, frozen=True):
    """A rule's message; filled in only when the rule fails."""

    rule: str
    text: str
    document: CompiledDocument

    def of_path(self, case: Case, path: str) -> str:
        """A pattern that does not fit at `path`."""
        failed = f"rule {self.rule} failed at path {path}"
        if not self.text:
            return f"validation error: {failed}"
        text = self._fill(case)
        if text is None:
            return self._unfilled(failed)
        return f"validation error: {_with_stop(text)} {failed}"

    def of_error(self, case: Case, reason: str) -> str:
        """A pattern that could not be decided."""
        failed = f"rule {self.rule} execution error: {reason}"
        if not self.text:
            return f"validation error: {failed}"
        text = self._fill(case)
        return (
            self._unfilled(reason)
            if text is None
            else f"validation error: {_with_stop(text)} {failed}"
        )

    def of_reasons(self, case: Case, reasons: str) -> str:
        """None of several patterns fits."""
        if not self.text:
            return f"validation error: {reasons}"
        text = self._fill(case)
        if text is None:
            return self._unfilled(reasons)
        return f"validation error: {_with_stop(text)} {reasons}"

    def of_denial(self, case: Case, conditions: str, setting: Setting) -> str:
        """Conditions that deny; `conditions` are their own messages."""
        if not self.text and not conditions:
            return f"validation error: rule {self.rule} failed"
        joined = "; ".join(filter(None, (self.text, conditions)))
        document = self.document if not conditions else setting.expressions.template(joined)
        text = _filled(document, case)
        return conditions if text is None else text

    def _fill(self, case: Case) -> str | None:
        return _filled(self.document, case)

    def _unfilled(self, reason: str) -> str:
        return (
            f"validation error: variables substitution error in rule {self.rule} "
            f"execution error: {reason}"
        )


def compile_message(text: str, setting: Setting) -> Message:
    """Compile a rule's message."""
    return Message(setting.rule, text, setting.expressions.template(text))


def _filled(document: CompiledDocument, case: Case) -> str | None:
    if document.is_constant:
        return str(document.constant)
    try:
        made = document.fill(case.scope)
    except (EvaluationError, LookupFailedError):
        return None
    if isinstance(made, str):
        return made
    return "the produced message didn't resolve to a string, check your policy definition."


def _with_stop(text: str) -> str:
    return text if text.endswith(".") else f"{text}."
