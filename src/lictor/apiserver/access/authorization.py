"""May this user do that? With a Status in Kubernetes' words where they may not."""

from typing import NoReturn

from lictor.apiserver.access.rbac import Question, Rbac
from lictor.apiserver.attributes import ApiUser, RequestAttributes
from lictor.apiserver.kind import Catalogue
from lictor.apiserver.reading import ObjectReader, ObjectSource
from lictor.errors import RefusedRequestError
from lictor.raw import JsonObject

MASTERS = "system:masters"


class Authorization:
    """RBAC, and the one group that needs none."""

    def __init__(self, objects: ObjectSource, catalogue: Catalogue) -> None:
        self.rbac = Rbac(ObjectReader(objects, catalogue))

    def check(self, attributes: RequestAttributes) -> None:
        """Raise RefusedRequestError 403 where the request is not allowed."""
        if MASTERS in attributes.user.groups:
            return
        kind = attributes.kind
        self.require(
            Question(
                attributes.user,
                attributes.verb,
                kind.group,
                kind.plural,
                attributes.subresource,
                attributes.namespace,
                attributes.name,
            )
        )

    def check_path(self, user: ApiUser, verb: str, path: str) -> None:
        """The same for a path that leads to no resource; `verb` is the method in lower case."""
        if MASTERS not in user.groups:
            self.require(Question(user, verb, path=path))

    def require(self, question: Question) -> None:
        """The same for any question."""
        allowed, reason = self.decide(question)
        if not allowed:
            _refuse(question, reason)

    def decide(self, question: Question) -> tuple[bool, str]:
        """Whether it is allowed, and why or why not, as far as there is something to say."""
        if MASTERS in question.user.groups:
            return True, ""
        return self.rbac.decide(question)


def _refuse(question: Question, reason: str) -> NoReturn:
    told = _escape(_describe(question)) + (f": {reason}" if reason else "")
    if question.path:
        raise RefusedRequestError(f"forbidden: {told}", code=403, reason="Forbidden", details={})
    raise forbid(question.group, question.resource, question.name, told)


def forbid(group: str, resource: str, name: str, why: str) -> RefusedRequestError:
    """A Status 403 about an object, or about a kind where there is no name."""
    qualified = f"{resource}.{group}" if group else resource
    named = f'{qualified} "{name}"' if name else qualified
    details: JsonObject = {"name": name, "group": group, "kind": resource}
    return RefusedRequestError(
        f"{named} is forbidden: {why}",
        code=403,
        reason="Forbidden",
        details={field: text for field, text in details.items() if text},
    )


def _describe(question: Question) -> str:
    who = f'User "{question.user.name}" cannot {question.verb}'
    if question.path:
        return f'{who} path "{question.path}"'
    resource = question.resource
    if question.subresource:
        resource = f"{resource}/{question.subresource}"
    where = f'in the namespace "{question.namespace}"' if question.namespace else ""
    return (
        f'{who} resource "{resource}" in API group "{question.group}" '
        f"{where or 'at the cluster scope'}"
    )


def _escape(text: str) -> str:
    """No message may look like HTML to a browser."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
