"""Why a stored policy is not ready."""

from types import SimpleNamespace

from webhook_samples import classic

from lictor.control.policy_faults import FaultBook
from lictor.lang.resource_names import builtin_names

SIGNED = {
    "verifyImages": [
        {
            "failureAction": "Enforce",
            "imageReferences": ["ghcr.io/*"],
            "attestors": [{"entries": [{"keys": {"publicKeys": "k"}}]}],
        }
    ]
}


def test_what_cannot_be_verified_yet_is_not_ready():
    book = FaultBook(SimpleNamespace(names=builtin_names(), find_reason=lambda _: ""))
    (told,) = book.find(classic("signed", ["Pod"], SIGNED))
    assert told.startswith("spec.rules[0].verifyImages: signatures of images cannot be verified")
    assert book.find(classic("fine", ["ConfigMap"])) == ()
