"""Who chooses the host that a rule asks: the author of the policy, or an object?"""

import orjson
import pytest

from lictor.core.assembly import compile_documents
from lictor.core.engine import Engine
from lictor.core.evaluate.cel.image_attestors import build_access
from lictor.core.evaluate.verify_images.attestors import read_access
from lictor.core.load.policies import load_documents
from lictor.core.model.cel_policy import ImageValidatingSpec
from lictor.core.model.policy import VerifyImages
from lictor.core.ports import NoLookups, RegistryAccess
from lictor.core.records import convert_record

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "evil.example"}}


class Listener(NoLookups):
    def __init__(self) -> None:
        self.calls = []
        self.access: list[RegistryAccess] = []

    def call_api(self, call):
        self.calls.append(call)
        return {}

    def image_data(self, reference, access=None):
        self.access.append(access)
        return {}


def run(entry) -> Listener:
    deny = {"conditions": {"all": [{"key": "{{ x }}", "operator": "Equals", "value": "never"}]}}
    rule = {
        "name": "r",
        "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
        "context": [{"name": "x", **entry}],
        "validate": {"deny": deny},
    }
    policy = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {"rules": [rule]},
    }
    listener = Listener()
    loaded = load_documents(orjson.dumps(policy), "p.yaml")
    Engine(compile_documents(loaded.records, lookups=listener)).evaluate(POD)
    return listener


@pytest.mark.parametrize(
    ("url", "is_chosen"),
    [
        ("http://checks.team.svc/x", False),
        ("http://checks.team.svc/{{ request.object.metadata.name }}", False),
        ("http://checks.team.svc:80/?q={{ request.object.metadata.name }}", False),
        ("http://{{ request.object.metadata.name }}/x", True),
        ("http://team@{{ request.object.metadata.name }}/x", True),
        ("http://checks.{{ request.object.metadata.name }}", True),
        ("http://checks.team.svc:{{ to_string(`80`) }}/x", True),
        ("{{ to_string('http://evil.example/') }}", True),
    ],
)
def test_hosts_of_services(url: str, *, is_chosen: bool) -> None:
    (call,) = run({"apiCall": {"method": "GET", "service": {"url": url}}}).calls
    assert call.is_chosen_by_object is is_chosen


@pytest.mark.parametrize(
    ("reference", "named"),
    [
        ("a.example/app:v1", None),
        ("a.example/{{ request.object.metadata.name }}:v1", {"a.example"}),
        ("{{ request.object.metadata.name }}/app:v1", set()),
    ],
)
def test_registries_of_images(reference: str, named) -> None:
    (access,) = run({"imageRegistry": {"reference": reference}}).access
    assert access.named == named


def test_registries_that_policies_about_images_name() -> None:
    block = {"imageReferences": ["a.example:5000/*", "*"], "repository": "b.example/signatures"}
    wanted = convert_record(block, VerifyImages)
    found = set(read_access(wanted, "", "c.example/more").named or ())
    assert found == {"a.example:5000", "b.example", "c.example"}
    globs = [{"glob": "a.example/*"}, {"glob": "*.example/*"}, {"expression": "true"}]
    signer = {"key": {"data": "k"}, "source": {"repository": "b.example/x"}}
    spec = {
        "matchImageReferences": globs,
        "attestors": [{"name": "a", "cosign": signer}],
        "validations": [],
    }
    found = set(build_access(convert_record(spec, ImageValidatingSpec), "").named or ())
    assert found == {"a.example", "b.example"}
