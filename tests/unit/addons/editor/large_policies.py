"""Policies of about 500 lines, without mistakes and with many, for tests of what edits cost."""

_CLASSIC = """\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata:
  name: edited
spec:
  rules:
"""
_RULE = """\
  - name: rule-{number}
    match:
      any:
      - resources:
          kinds: [Pod]
    preconditions:
      all:
      - key: "{{{{ request.operation }}}}"
        operator: AnyIn
        value: [CREATE, UPDATE]
    context:
    - name: teams
      configMap: {{name: teams, namespace: shop}}
    validate:
      message: "label {{{{ request.object.metadata.name }}}} {{{{ teams.data.known }}}}"
      pattern:
        spec:
          containers:
          - name: "*"
            resources: {{limits: {{shop.example/card-{number}: "<=1Gi"}}}}
"""
CLASSIC = _CLASSIC + "".join(_RULE.format(number=number) for number in range(25))
# Three mistakes in each rule.
CLASSIC_MISTAKEN = (
    CLASSIC.replace("AnyIn", "In").replace("containers:", "container:").replace("metadata.", "met.")
)

_IN_CEL = """\
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata:
  name: edited
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  variables:
"""
_VARIABLE = """\
  - name: named{number}
    expression: object.spec.containers.filter(c, c.name == 'rule-{number}')
"""
_VALIDATION = """\
  - message: not so many
    expression: >-
      variables.named{variable}.size() < {number} && object.spec.hostNetwork == false
"""
IN_CEL = "".join(
    (
        _IN_CEL,
        *(_VARIABLE.format(number=number) for number in range(40)),
        "  validations:\n",
        *(_VALIDATION.format(variable=number % 40, number=number) for number in range(137)),
    )
)
IN_CEL_MISTAKEN = IN_CEL.replace("hostNetwork", "hostNetwrk")
