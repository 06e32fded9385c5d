"""How objects of built-in kinds are read, completed and checked."""

from http import HTTPStatus

from lictor.apiserver.checks.builtin import check_builtin
from lictor.apiserver.defaults.builtin import complete_builtin
from lictor.apiserver.kind import Cause
from lictor.apiserver.kinds.builtin_forms import ANYTHING, find_place
from lictor.apiserver.kinds.decoding import explain_mismatch
from lictor.apiserver.kinds.fields import Pruner, list_unknown_fields
from lictor.errors import RefusedRequestError
from lictor.lang.kind_schema import DEDUCED, Form, find_form
from lictor.raw import JsonObject


class BuiltinShape:
    """One kind of Kubernetes itself. Its form is linked when first asked for."""

    __slots__ = ("_api_version", "_form", "_kind")

    def __init__(self, api_version: str, kind: str) -> None:
        self._api_version = api_version
        self._kind = kind
        self._form: Form | None = None

    @property
    def form(self) -> Form:
        if self._form is None:
            self._form = find_form(self._api_version, self._kind) or DEDUCED
        return self._form

    def list_unknown(self, document: JsonObject) -> list[str]:
        return list_unknown_fields(document, self.form)

    def prune(self, document: JsonObject) -> JsonObject:
        pruner = Pruner()
        place = find_place(self._api_version, self._kind) or ANYTHING
        pruned: JsonObject = pruner.prune(document, place)
        # Only a look at the text tells whether it is base64.
        if pruner.is_suspicious or self._kind == "Secret":
            self._refuse_mismatch(document)
        return pruned

    def _refuse_mismatch(self, document: JsonObject) -> None:
        told = explain_mismatch(self._api_version, self._kind, document)
        if told:
            raise RefusedRequestError(told, code=HTTPStatus.BAD_REQUEST, reason="BadRequest")

    def complete(self, document: JsonObject) -> JsonObject:
        # Whoever changed it meanwhile may write quantities in ways of their own.
        return complete_builtin(self._kind, self.prune(document))

    def check(self, document: JsonObject, old: JsonObject | None) -> list[Cause]:
        return check_builtin(self._kind, document, old)
