"""A scan asks a rule about images once, though a request asks it twice."""

from lictor.controllers.scan.plan import _choose_rules
from lictor.core.assembly import parse_policies
from lictor.core.model.program import Phase

POLICY = """
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: signed}
spec:
  rules:
  - name: verify
    match: {any: [{resources: {kinds: [Pod]}}]}
    verifyImages:
    - imageReferences: ["*"]
      attestors: [{entries: [{keys: {publicKeys: k}}]}]
  - name: labels
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {pattern: {metadata: {labels: {team: "?*"}}}}
"""


def test_rules_about_images_are_asked_once() -> None:
    [program] = parse_policies(POLICY)
    asked = {
        (rule.name, rule.phase) for rule in program.rules if not rule.name.startswith("autogen")
    }
    assert ("verify", Phase.VALIDATE) in asked
    chosen = {
        (rule.name, rule.phase)
        for rule in _choose_rules(program, (Phase.VALIDATE, Phase.VERIFY_IMAGES))
        if not rule.name.startswith("autogen")
    }
    assert chosen == {("verify", Phase.VERIFY_IMAGES), ("labels", Phase.VALIDATE)}
