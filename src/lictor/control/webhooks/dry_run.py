"""Will the API server take a webhook? It is asked by a dry run, once for each content.

One policy with a rule, selector or condition that the API server refuses would otherwise keep the
whole configuration, and so all other policies, from being written.
"""

import asyncio

import msgspec

from lictor.cluster.client import Client
from lictor.cluster.resource import VALIDATING_WEBHOOK
from lictor.control.webhooks.draft import Address, Draft, render_webhook
from lictor.errors import ApiError
from lictor.raw import JsonObject

_AT_ONCE = 4
_REFUSALS = (400, 422)
# The question is about policies: a fault in our own address must not speak against them.
_SOMEWHERE = Address(ca_bundle="", namespace="default", service="webhook")


class Judge:
    """Knows what the API server said; what it has not been asked yet counts as taken."""

    def __init__(self, client: Client, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        # Content -> why it is refused, or nothing.
        self._known: dict[bytes, str] = {}
        self._asked: dict[bytes, Draft] = {}

    def begin(self) -> None:
        """A new computation begins: only what it asks about is worth remembering."""
        self._asked = {}

    def explain(self, draft: Draft) -> str:
        """Why the API server refuses a webhook; nothing where it takes it."""
        content = _identify(draft)
        self._asked[content] = draft
        return self._known.get(content, "")

    async def learn(self) -> bool:
        """Ask about what is new. False: there was nothing, and all answers were known."""
        self._known = {key: why for key, why in self._known.items() if key in self._asked}
        new = [key for key in self._asked if key not in self._known]
        gate = asyncio.Semaphore(_AT_ONCE)
        answers = await asyncio.gather(*(self._ask(self._asked[key], gate) for key in new))
        self._known.update(zip(new, answers, strict=True))
        return bool(new)

    async def _ask(self, draft: Draft, gate: asyncio.Semaphore) -> str:
        webhook = render_webhook(draft, _SOMEWHERE, mutating=False)
        del webhook["clientConfig"]["caBundle"]
        body: JsonObject = {
            "apiVersion": VALIDATING_WEBHOOK.api_version,
            "kind": VALIDATING_WEBHOOK.kind,
            "metadata": {"name": f"{self._prefix}-check"},
            "webhooks": [webhook],
        }
        async with gate:
            try:
                path = VALIDATING_WEBHOOK.path()
                await self._client.request("POST", path, body=body, params={"dryRun": "All"})
            except ApiError as error:
                if error.status in _REFUSALS:
                    return str(error)
                raise
        return ""


def _identify(draft: Draft) -> bytes:
    parts = (
        draft.name,
        draft.path,
        draft.rules,
        draft.conditions,
        draft.namespace_selector,
        draft.object_selector,
        draft.timeout,
    )
    return msgspec.json.encode(parts, order="deterministic")
