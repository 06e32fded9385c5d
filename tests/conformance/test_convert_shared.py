"""`convert` on policies that others wrote: one policy for each, in the short form, that judges alike."""

import pytest
from shared_cases import SHARED

from lictor.addons.convert.conversion import ConversionTarget
from lictor.addons.convert.conversions import PolicyConverter, list_convertible
from lictor.core.load.policies import load_documents

FILES = sorted((SHARED / "bench" / "pss").glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_one_policy_for_each(path):
    (policy,) = list_convertible(load_documents(path.read_bytes(), str(path)))
    converted = PolicyConverter(ConversionTarget.AUTO, [], as_json=False).convert(policy)
    assert converted.agrees, converted.messages
    assert converted.text.count("\nkind: ValidatingPolicy\n") == 1
