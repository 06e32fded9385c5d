"""Which of our own webhooks asks what about policies, exceptions and the like?"""

from collections.abc import Callable, Iterable

from lictor.cluster.access import AccessCheck
from lictor.cluster.compile_trial import current_trials
from lictor.cluster.flags import Flags
from lictor.lang.resource_names import ResourceNames
from lictor.raw import JsonObject
from lictor.serve.exception_admission import review_exception
from lictor.serve.opinion import ACCEPTED, Opinion
from lictor.serve.permission_admission import Accounts, review_permissions
from lictor.serve.policy_admission import review_policy
from lictor.serve.policy_trial import PolicyReview, review_within_limits
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
        crds: Callable[[], Iterable[JsonObject]] | None = None,
    ) -> None:
        self._flags = flags
        self._names = names
        # The definitions of custom kinds, where there is a cluster.
        self._crds = crds
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

    async def _review_text(
        self, document: JsonObject, old: JsonObject | None, names: ResourceNames
    ) -> Opinion:
        """From the text alone: in another process where there is one, as it may take for ever."""
        allow_http = self._flags.allow_http_in_namespaced_policies
        trials = current_trials()
        if trials is None or self._crds is None:
            return review_policy(document, old, names, allow_http=allow_http)
        review = PolicyReview(document, old, tuple(self._crds()), allow_http)
        return await review_within_limits(review, trials)

    async def _review_policy(self, document: JsonObject, old: JsonObject | None) -> Opinion:
        names = self._names()
        opinion = await self._review_text(document, old, names)
        # What is wrong anyhow needs no questions to the API server.
        if self._allows is None or not opinion.allowed:
            return opinion
        granted = await review_permissions(document, self._accounts, names, self._allows)
        is_same = old is not None and document.get("spec") == old.get("spec")
        return opinion + (granted.soften() if is_same else granted)
