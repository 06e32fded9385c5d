"""Which rights the status of a policy asks for."""

import asyncio
from types import SimpleNamespace

from webhook_samples import resource_rule, validating

from lictor.controllers.status.policies import StatusFacts


def test_rights_are_asked_for_objects_not_for_their_parts():
    asked = []

    async def allows(access):
        asked.append((access.verb, access.resource, access.subresource))
        return True

    async def find(_):
        return ()

    nothing = SimpleNamespace(is_ready=lambda _: True, refused={}, find=lambda _: ())
    faults = SimpleNamespace(find=find)
    facts = StatusFacts(nothing, nothing, faults, allows, "system:serviceaccount:a:reports")
    rule = {**resource_rule(), "resources": ["pods", "pods/status"]}
    asyncio.run(facts.read(validating("v", rule)))
    assert asked == [(verb, "pods", "") for verb in ("get", "list", "watch")]
