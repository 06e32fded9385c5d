"""Which of our own webhooks asks what about policies, exceptions and the like?"""

from collections.abc import Callable

from lictor.cluster.access import AccessCheck
from lictor.cluster.flags import Flags
from lictor.lang.resource_names import ResourceNames
from lictor.raw import JsonObject
from lictor.serve.exception_admission import review_exception
from lictor.serve.opinion import ACCEPTED, Opinion
from lictor.serve.permission_admission import Accounts, review_permissions
from lictor.serve.policy_admission import review_policy
from lictor.serve.ttl_admission import review_ttl

POLICY_PATHS = frozenset(["/policyvalidate", "/policymutate"])
EXCEPTION_PATHS = frozenset(["/exceptionvalidate", "/celexception/validate"])
GLOBAL_CONTEXT_PATH = "/globalcontextvalidate"
# Of the cleanup controller's own server.
CLEANUP_PATH = "/validate"
TTL_PATH = "/verifyttl"


class PolicyReviewer:
    """Answers for policies and what belongs to them, by the path that was asked."""

    def __init__(
        self,
        flags: Flags,
        names: Callable[[], ResourceNames],
        *,
        allows: AccessCheck | None = None,
        cleanup_account: str = "",
    ) -> None:
        self._flags = flags
        self._names = names
        self._allows = allows
        self._accounts = Accounts(
            background=flags.background_service_account_name,
            reports=flags.reports_service_account_name,
            cleanup=cleanup_account,
        )

    async def review(
        self, path: str, document: JsonObject | None, old: JsonObject | None
    ) -> Opinion:
        """What is said about an object that is created or changed; nothing about a deleted one."""
        if document is None or path == "/policymutate":
            return ACCEPTED
        if path == TTL_PATH:
            return review_ttl(document).shorten()
        if path in EXCEPTION_PATHS:
            return review_exception(document, old, self._flags).shorten()
        return (await self._review_policy(document, old)).shorten()

    async def _review_policy(self, document: JsonObject, old: JsonObject | None) -> Opinion:
        names = self._names()
        allow_http = self._flags.allow_http_in_namespaced_policies
        opinion = review_policy(document, old, names, allow_http=allow_http)
        # What is wrong anyhow needs no questions to the API server.
        if self._allows is None or not opinion.allowed:
            return opinion
        granted = await review_permissions(document, self._accounts, names, self._allows)
        is_same = old is not None and document.get("spec") == old.get("spec")
        return opinion + (granted.soften() if is_same else granted)
