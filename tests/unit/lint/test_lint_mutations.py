"""Good documents, broken in one place each: the right check must find it at the right line."""

import pytest

from lictor.cli.inputs.records import FILE_RECORDS
from lictor.lint.catalog import CHECKS
from lictor.lint.run import lint_texts

VALIDATE = """\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata:
  name: guard-pods
  annotations:
    pod-policies.kyverno.io/autogen-controllers: Deployment,CronJob
spec:
  background: true
  webhookConfiguration:
    timeoutSeconds: 10
  rules:
  - name: check-pods
    match:
      any:
      - resources:
          kinds:
          - Pod
          operations:
          - CREATE
          selector:
            matchLabels:
              app: shop
            matchExpressions:
            - {key: tier, operator: In, values: [web]}
    exclude:
      any:
      - resources:
          namespaces:
          - kube-system
    context:
    - name: allowed
      configMap:
        name: registries
        namespace: default
    - name: team
      variable:
        jmesPath: request.object.metadata.labels.team
        default: none
    preconditions:
      all:
      - key: "{{ request.operation }}"
        operator: AnyIn
        value: [CREATE, UPDATE]
      - key: "{{ length(request.object.spec.containers) }}"
        operator: GreaterThan
        value: 0
    validate:
      failureAction: Enforce
      message: >-
        {{ team }} may not do this with {{ allowed.data.names }}
      pattern:
        metadata:
          labels:
            team: "?*"
        spec:
          ^(containers):
          - (name): main
            resources:
              requests:
                memory: "?*"
              limits:
                memory: "<=$(./../../requests/memory)"
  - name: check-images
    match:
      all:
      - resources:
          kinds: [Pod]
      - resources:
          namespaces: [shop]
          kinds: [Pod]
    validate:
      message: refused
      foreach:
      - list: request.object.spec.containers
        deny:
          conditions:
            any:
            - key: "{{ element.image }}"
              operator: AnyNotIn
              value: "{{ request.object.metadata.annotations.images }}"
  - name: check-security
    match:
      any:
      - resources:
          kinds: [Pod]
    validate:
      podSecurity:
        level: baseline
        version: latest
        exclude:
        - controlName: Capabilities
          images: ["registry.example/*"]
"""
MUTATE = """\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata:
  name: label-all
spec:
  rules:
  - name: patch
    match:
      any:
      - resources:
          kinds: [ConfigMap]
    mutate:
      patchesJson6902: |-
        - op: add
          path: /metadata/labels/team
          value: "{{ request.object.metadata.name }}"
  - name: existing
    match:
      any:
      - resources:
          kinds: [Secret]
    mutate:
      targets:
      - apiVersion: v1
        kind: ConfigMap
        name: copy
        namespace: "{{ request.namespace }}"
      patchStrategicMerge:
        data:
          +(seen): "{{ target.metadata.name }}"
"""

GENERATE = """\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata:
  name: make-config
spec:
  rules:
  - name: config
    match:
      any:
      - resources:
          kinds: [Namespace]
    generate:
      apiVersion: v1
      kind: ConfigMap
      name: settings
      namespace: "{{ request.object.metadata.name }}"
      synchronize: true
      data:
        data:
          key: value
"""

IMAGES = """\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata:
  name: signed
spec:
  rules:
  - name: signed
    match:
      any:
      - resources:
          kinds: [Pod]
    verifyImages:
    - imageReferences:
      - "registry.example/*"
      failureAction: Enforce
      attestors:
      - count: 1
        entries:
        - keys:
            kms: azurekms://vault/key
"""

NAMESPACED = """\
apiVersion: kyverno.io/v1
kind: Policy
metadata:
  name: local
  namespace: shop
spec:
  rules:
  - name: labelled
    match:
      any:
      - resources:
          kinds: [Service]
          names: ["web-*"]
    validate:
      message: refused
      deny: {}
"""

CLEANUP = """\
apiVersion: kyverno.io/v2
kind: ClusterCleanupPolicy
metadata:
  name: sweep
spec:
  schedule: "*/5 * * * *"
  match:
    any:
    - resources:
        kinds: [Pod]
  conditions:
    all:
    - key: "{{ target.metadata.name }}"
      operator: Equals
      value: old
"""

EXCEPTION = """\
apiVersion: kyverno.io/v2
kind: PolicyException
metadata:
  name: spare
  namespace: shop
spec:
  exceptions:
  - policyName: guard-pods
    ruleNames:
    - check-pods
    - autogen-check-*
  match:
    any:
    - resources:
        kinds: [Pod]
        names: [legacy]
"""

DOCUMENTS = {
    "validate": VALIDATE,
    "mutate": MUTATE,
    "generate": GENERATE,
    "images": IMAGES,
    "namespaced": NAMESPACED,
    "cleanup": CLEANUP,
    "exception": EXCEPTION,
}


def lint(text: str, *others: str):
    texts = [("given.yaml", text.encode())]
    texts += [(f"other-{i}.yaml", other.encode()) for i, other in enumerate(others)]
    found = lint_texts(texts, FILE_RECORDS).findings
    return [finding for finding in found if finding.location.file == "given.yaml"]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_good_documents_have_no_problems(name):
    # Roles are in other files.
    found = [each for each in lint(DOCUMENTS[name], VALIDATE) if each.check != "missing-rights"]
    assert found == []


# Document, what is replaced, by what, the check that must see it, and (part of) the line where.
MUTATIONS = [
    ("validate", "kind: ClusterPolicy", "kind: ClusterPolcy", "unknown-kind", "kind: ClusterPolcy"),
    ("validate", "kyverno.io/v1\n", "kyverno.io/v7\n", "unknown-kind", "kyverno.io/v7"),
    ("validate", "kyverno.io/v1\n", "kiverno.io/v1\n", "unknown-kind", "kiverno.io/v1"),
    ("validate", "  name: guard-pods\n", "", "bad-name", "metadata:"),
    ("validate", "guard-pods", "g" * 64, "bad-name", "g" * 64),
    ("validate", "background: true", "backgroun: true", "unknown-field", "backgroun:"),
    ("validate", "background: true", "background: 7", "bad-field", "background: 7"),
    ("validate", "background: true", "background: true\n  background: true", "duplicate-key", None),
    ("validate", "Deployment,CronJob", "Deployment,Cronjob", "unknown-controller", "Cronjob"),
    ("validate", "Deployment,CronJob", "all", "bad-settings", "autogen-controllers: all"),
    ("validate", "timeoutSeconds: 10", "timeoutSeconds: 31", "bad-settings", "timeoutSeconds: 31"),
    ("validate", "- name: check-images", "- name: check-pods", "duplicate-name", None),
    ("validate", "- name: check-images", "- nam: check-images", "bad-field", "- nam:"),
    ("validate", "check-images", "c" * 64, "bad-name", "c" * 64),
    ("validate", "          - Pod\n", "          - Pods\n", "unknown-resource", "- Pods"),
    ("validate", "          - Pod\n", "          - a/b/c/d/e\n", "never-matches", "- a/b/c/d/e"),
    ("validate", "          - CREATE\n", "          - CRATE\n", "bad-field", "- CRATE"),
    ("validate", "              app: shop", "              app: 'sh op'", "bad-selector", "sh op"),
    ("validate", "operator: In,", "operator: Is,", "bad-selector", "operator: Is,"),
    ("validate", "values: [web]", "values: []", "bad-selector", "values: []"),
    ("validate", "kinds: [Pod]\n      - resources", "kinds: [Job]\n      - resources", "never-matches", "      - resources:\n          namespaces: [shop]"),
    ("validate", "          - kube-system", "          - '{{ request.namespace }}'", "misplaced-variable", "'{{ request.namespace }}'"),
    ("validate", "- name: team", "- name: element", "bad-context", "- name: element"),
    ("validate", "        namespace: default\n", "", "bad-context", "configMap:"),
    ("validate", "      configMap:", "      variable: {value: 1}\n      configMap:", "bad-context", "- name: allowed"),
    ("validate", "jmesPath: request.object.metadata", "jmesPath: request.object..metadata", "bad-expression", "request.object..metadata"),
    ("validate", "operator: GreaterThan", "operator: GreaterThen", "bad-condition", "GreaterThen"),
    ("validate", "[CREATE, UPDATE]", "[CREATE, PATCH]", "bad-condition", "[CREATE, PATCH]"),
    ("validate", "        value: 0\n", "", "bad-condition", '- key: "{{ length('),
    ("validate", "{{ length(", "{{ lenght(", "unknown-function", "lenght"),
    ("validate", "length(request.object.spec.containers)", "length(request.object, `1`)", "wrong-arguments", "length(request.object, `1`)"),
    ("validate", "length(request.object.spec.containers) }}", "length(request.object.spec.containers }}", "bad-expression", "spec.containers }}"),
    ("validate", "{{ request.operation }}", "{{ request.operation }", "unbalanced-braces", "{{ request.operation }\""),
    ("validate", "{{ request.operation }}", "{{ element.operation }}", "misplaced-variable", "element.operation"),
    ("validate", "{{ request.operation }}", "{{ target.operation }}", "misplaced-variable", "target.operation"),
    ("validate", "{{ request.operation }}", "{{ request.userInfo.username }}", "background", "request.userInfo"),
    ("validate", "{{ request.operation }}", "{{ serviceAccountName }}", "background", "serviceAccountName"),
    ("validate", "{{ request.operation }}", "{{ requst.operation }}", "unknown-variable", "requst"),
    ("validate", "{{ request.operation }}", "{{ request.operations }}", "unknown-variable", "request.operations"),
    ("validate", "{{ team }}", "{{ tem }}", "unknown-variable", "{{ tem }}"),
    ("validate", "{{ team }} may", "may", "unused-context", "- name: team"),
    ("validate", "- name: team", "- name: allowed", "duplicate-context", None),
    ("validate", "failureAction: Enforce", "failureAction: enforce", "bad-field", "failureAction: enforce"),
    ("validate", 'team: "?*"', "team: 7", "bad-pattern", "team: 7"),
    ("validate", "^(containers):", "?(containers):", "bad-pattern", "?(containers):"),
    ("validate", "^(containers):", "+(containers):", "bad-pattern", "+(containers):"),
    ("validate", "^(containers):", "^(containers:", "bad-pattern", "^(containers:"),
    ("validate", "requests/memory)", "request/memory)", "bad-pattern", "      pattern:"),
    ("validate", "      pattern:", "      deny: {}\n      pattern:", "bad-validate", "    validate:"),
    ("validate", "      - list: request.object.spec.containers\n        deny:", "      - deny:", "bad-validate", "      - deny:"),
    ("validate", "element.image", "element[image", "bad-expression", "element[image"),
    ("validate", "level: baseline", "level: basline", "bad-field", "level: basline"),
    ("validate", "version: latest", "version: v1-22", "bad-pod-security", "version: v1-22"),
    ("validate", "controlName: Capabilities", "controlName: Capability", "bad-field", "Capability"),
    ("validate", '          images: ["registry.example/*"]\n', "", "bad-pod-security", "controlName"),
    ("validate", "    exclude:\n      any:\n      - resources:\n          namespaces:\n          - kube-system", "    exclude:\n      any:\n      - resources:\n          kinds:\n          - '*d'", "never-matches", "      - resources:\n          kinds:\n          - Pod"),
    ("mutate", "    mutate:\n      patchesJson6902", "    validate: {deny: {}}\n    mutate:\n      patchesJson6902", "bad-rule", "- name: patch"),
    ("mutate", "op: add", "op: ad", "bad-mutate", "patchesJson6902"),
    ("mutate", "path: /metadata", "path: metadata", "bad-mutate", "patchesJson6902"),
    ("mutate", "path: /metadata/labels/team", "path: /metadata/{{ request.name }}", "misplaced-variable", "patchesJson6902"),
    ("mutate", "path: /metadata/labels/team", "path: /spec/volumes/-", "repeated-patch", "patchesJson6902"),
    ("mutate", 'value: "{{ request.object', 'valu: "{{ request.object', "bad-mutate", "patchesJson6902"),
    ("mutate", '"{{ request.object.metadata.name }}"', '"{{ request.object.metadata.name) }}"', "bad-expression", "metadata.name) }}"),
    ("mutate", "+(seen)", "+seen)", "bad-pattern", "+seen)"),
    ("mutate", "{{ request.namespace }}", "{{ target.namespace }}", "misplaced-variable", "target.namespace"),
    ("mutate", "spec:\n", "spec:\n  admission: false\n", "bad-settings", "admission: false"),
    ("generate", "      name: settings\n", "", "bad-generate", "    generate:"),
    ("generate", "      namespace: \"{{ request.object.metadata.name }}\"\n", "", "bad-generate", "    generate:"),
    ("generate", "      data:\n        data:", "      clone: {name: a, namespace: b}\n      data:\n        data:", "bad-generate", "    generate:"),
    ("generate", "          key: value", "          (key): value", "bad-generate", "(key)"),
    ("generate", "kinds: [Namespace]", "kinds: ['*']", "wildcard-kind", "kinds: ['*']"),
    ("images", "    - imageReferences:\n      - \"registry.example/*\"\n      failureAction", "    - failureAction", "bad-images", "    - failureAction"),
    ("images", "failureAction: Enforce", "failureAction: Audit", "bad-images", "- imageReferences"),
    ("images", "count: 1", "count: 2", "bad-images", "count: 2"),
    ("images", "count: 1", "count: 0", "bad-images", "count: 0"),
    ("images", "registry.example/*", "registry.example/app:v*", "weak-images", "app:v*"),
    ("images", "      attestors:", "      attestations: [{type: t}]\n      attestors:", "weak-images", "attestations"),
    ("images", "kms: azurekms://vault/key", "kms: ''", "bad-images", "- keys:"),
    ("namespaced", "kinds: [Service]", "kinds: [Namespace]", "bad-scope", "kinds: [Namespace]"),
    ("namespaced", "names: [", "namespaces: [", "bad-scope", "namespaces: ["),
    ("namespaced", "          kinds: [Service]\n", "", "bad-match", "- resources:"),
    ("namespaced", "kind: Policy", "kind: ClusterPolicy", "bad-scope", "namespace: shop"),
    ("namespaced", "deny: {}", "dny: {}", "unknown-field", "dny: {}"),
    ("namespaced", "kinds: [Service]", "kinds: [Service/status]", "background", "Service/status"),
    ("cleanup", "*/5 * * * *", "*/5 * * *", "bad-schedule", "schedule"),
    ("cleanup", "*/5 * * * *", "99 * * * *", "bad-schedule", "schedule"),
    ("cleanup", "operator: Equals", "operator: Equal", "deprecated", "operator: Equal"),
    ("cleanup", "    - resources:\n", "    - subjects: [{kind: User, name: a}]\n      resources:\n", "bad-match", "- subjects"),
    ("exception", "policyName: guard-pods", "policyName: guard-pod", "unknown-reference", "policyName"),
    ("exception", "    - check-pods", "    - check-pod", "unknown-reference", "- check-pod"),
    ("exception", "exceptions:", "exception:", "unknown-field", "exception:"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new", "check", "where"), MUTATIONS)
def test_every_mistake_is_found_at_its_line(name, old, new, check, where):
    good = DOCUMENTS[name]
    assert old in good
    broken = good.replace(old, new, 1)
    place = broken.index(new) if where is None else broken.index(where)
    line = broken.count("\n", 0, place) + 1
    found = [(finding.check, finding.location.line) for finding in lint(broken, VALIDATE)]
    expected = (check, line) if where is not None else check
    assert expected in (found if where is not None else [check for check, _ in found])
    assert all(found_check in CHECKS for found_check, _ in found)
