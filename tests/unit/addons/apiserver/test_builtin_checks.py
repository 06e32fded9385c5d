"""What is wrong with objects of built-in kinds, in the API server's words?"""

import copy

import pytest
import yaml

from lictor.addons.apiserver.kinds.catalogue import build_catalogue

CATALOGUE = build_catalogue()


def check(document, old=None):
    schema = CATALOGUE.find_kind(document["apiVersion"], document["kind"]).schema
    completed = schema.apply_defaults(schema.prune(document))
    return [f"{cause.field}: {cause.message}" for cause in schema.validate(completed, old)]


def complete(document):
    schema = CATALOGUE.find_kind(document["apiVersion"], document["kind"]).schema
    return schema.apply_defaults(document)


POD = yaml.safe_load("""
apiVersion: v1
kind: Pod
metadata: {name: a}
spec: {containers: [{name: a, image: a}]}
""")
DEPLOYMENT = yaml.safe_load("""
apiVersion: apps/v1
kind: Deployment
metadata: {name: a}
spec:
  selector: {matchLabels: {a: b}}
  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a}]}}
""")


def with_field(document, path, value):
    """A copy with one field set, or taken away."""
    changed = copy.deepcopy(document)
    *holders, last = path.split(".")
    holder = changed
    for step in holders:
        holder = holder[int(step)] if step.isdigit() else holder.setdefault(step, {})
    if value is None:
        holder.pop(last, None)
    else:
        holder[last] = value
    return changed


LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)


@pytest.mark.parametrize("document", [POD, DEPLOYMENT])
def test_what_is_fine_is_fine(document):
    assert check(document) == []
    assert check(document, complete(document)) == []


@pytest.mark.parametrize(
    ("path", "value", "faults"),
    [
        ("spec.containers", [], ["spec.containers: Required value"]),
        (
            "spec.containers",
            [{}],
            ["spec.containers[0].name: Required value", "spec.containers[0].image: Required value"],
        ),
        (
            "spec.containers.0.name",
            "A_",
            [f'spec.containers[0].name: Invalid value: "A_": {LABEL}'],
        ),
        (
            "spec.containers",
            [{"name": "a", "image": "a"}, {"name": "a", "image": "b"}],
            ['spec.containers[1].name: Duplicate value: "a"'],
        ),
        (
            "spec.containers.0.imagePullPolicy",
            "Foo",
            [
                'spec.containers[0].imagePullPolicy: Unsupported value: "Foo": supported values: '
                '"Always", "IfNotPresent", "Never"'
            ],
        ),
        (
            "spec.containers.0.volumeMounts",
            [{"name": "nope", "mountPath": "/a"}],
            ['spec.containers[0].volumeMounts[0].name: Not found: "nope"'],
        ),
        (
            "spec.containers.0.ports",
            [{"containerPort": 70000, "protocol": "FOO"}],
            [
                "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between "
                "1 and 65535, inclusive",
                'spec.containers[0].ports[0].protocol: Unsupported value: "FOO": supported values: '
                '"SCTP", "TCP", "UDP"',
            ],
        ),
        (
            "spec.containers.0.resources",
            {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}},
            [
                'spec.containers[0].resources.requests: Invalid value: "2": must be less than or '
                "equal to cpu limit of 1"
            ],
        ),
        (
            "spec.containers.0.env",
            [{"name": "a=b"}],
            [
                'spec.containers[0].env[0].name: Invalid value: "a=b": a valid environment '
                "variable name must consist only of printable ASCII characters other than '='"
            ],
        ),
        (
            "spec.volumes",
            [{"name": "v"}, {"name": "v"}],
            ['spec.volumes[1].name: Duplicate value: "v"'],
        ),
        (
            "spec.restartPolicy",
            "Foo",
            [
                'spec.restartPolicy: Unsupported value: "Foo": supported values: "Always", '
                '"OnFailure", "Never"'
            ],
        ),
        (
            "metadata.name",
            None,
            ["metadata.name: Required value: name or generateName is required"],
        ),
        (
            "metadata.labels",
            {"a": "b c"},
            [
                'metadata.labels: Invalid value: "b c": a valid label must be an empty string or '
                "consist of alphanumeric characters, '-', '_' or '.', and must start and end with "
                "an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex "
                "used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
            ],
        ),
        ("metadata.generateName", "x-", []),
        (
            "metadata.ownerReferences",
            [{"apiVersion": "v1", "kind": "Pod", "name": "x"}],
            ['metadata.ownerReferences.uid: Invalid value: "": must not be empty'],
        ),
        (
            "metadata.finalizers",
            ["foo"],
            [
                'metadata.finalizers[0]: Invalid value: "foo": name is neither a standard finalizer '
                "name nor is it fully qualified"
            ],
        ),
    ],
)
def test_pods(path, value, faults):
    assert check(with_field(POD, path, value)) == faults


@pytest.mark.parametrize(
    ("path", "value", "faults"),
    [
        (
            "spec.selector",
            None,
            [
                "spec.selector: Required value",
                'spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not '
                "match template `labels`",
            ],
        ),
        (
            "spec.selector",
            {"matchLabels": {"a": "c"}},
            [
                'spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not '
                "match template `labels`"
            ],
        ),
        (
            "spec.selector",
            {},
            ["spec.selector: Invalid value: {}: empty selector is invalid for deployment"],
        ),
        (
            "spec.replicas",
            -1,
            ["spec.replicas: Invalid value: -1: must be greater than or equal to 0"],
        ),
        (
            "spec.template.spec.restartPolicy",
            "Never",
            [
                'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: '
                '"Always"'
            ],
        ),
        (
            "spec.template.spec.containers",
            None,
            ["spec.template.spec.containers: Required value"],
        ),
    ],
)
def test_deployments(path, value, faults):
    assert check(with_field(DEPLOYMENT, path, value)) == faults


OTHERS = yaml.safe_load("""
- of: {apiVersion: v1, kind: Service, metadata: {name: 1a}, spec: {}}
  faults: ["spec.ports: Required value"]
- of: {apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: a.static.k8s.io}}
  faults: ['metadata.name: Invalid value: "a.static.k8s.io": names ending with ".static.k8s.io" are reserved for static manifest-based configurations and cannot be managed via the API']
- of: {apiVersion: admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicyBinding, metadata: {name: a.static.k8s.io}, spec: {policyName: a}}
  faults: ['metadata.name: Invalid value: "a.static.k8s.io": names ending with ".static.k8s.io" are reserved for static manifest-based configurations and cannot be managed via the API']
- of: {apiVersion: admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicy, metadata: {name: a}, spec: {reinvocationPolicy: Never, matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, DELETE], resources: [pods]}]}, mutations: [{patchType: JSONPatch, jsonPatch: {expression: "[JSONPatch{op: 'remove', path: '/a'}]"}}]}}
  faults: ['spec.matchConstraints.resourceRules.operations: Unsupported value: "DELETE": supported values: "*", "CONNECT", "CREATE", "UPDATE"']
- of: {apiVersion: admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicy, metadata: {name: a}, spec: {reinvocationPolicy: Never, matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}, mutations: [{patchType: JSONPatch, jsonPatch: {expression: "[]"}}, {patchType: ApplyConfiguration, applyConfiguration: {expression: "true"}}]}}
  faults:
  - 'spec.mutations[0].jsonPatch.expression: Invalid value: "[]": must evaluate to list(JSONPatch) but got list(dyn)'
  - 'spec.mutations[1].applyConfiguration.expression: Invalid value: "true": must evaluate to Object but got bool'
- of: {apiVersion: admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicy, metadata: {name: a}, spec: {matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [pods]}]}}}
  faults: ["spec.mutations: Required value: mutations must contain at least one item", "spec.reinvocationPolicy: Required value"]
- of: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {x: y}, binaryData: {x: eA==}}
  faults: ['data[x]: Invalid value: "x": duplicate of key present in binaryData']
- of: {apiVersion: v1, kind: Secret, metadata: {name: a}, type: kubernetes.io/tls}
  faults: ["data[tls.crt]: Required value", "data[tls.key]: Required value"]
- of: {apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: "A:b"}, rules: [{verbs: [get], apiGroups: [""]}]}
  faults: ["rules[0].resources: Required value: resource rules must supply at least one resource"]
- of: {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a/b}}
  faults: ["metadata.name: Invalid value: \\"a/b\\": may not contain '/'"]
- of: {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: a}, roleRef: {kind: Role, name: x}}
  faults: ['roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"']
- of: {apiVersion: batch/v1, kind: CronJob, metadata: {name: a}, spec: {schedule: x, jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}}}}
  faults: ['spec.schedule: Invalid value: "x": expected exactly 5 fields, found 1: [x]']
- of: {apiVersion: batch/v1, kind: CronJob, metadata: {name: a}, spec: {schedule: "*/1 * * * ?", timeZone: Europe, jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}}}}
  faults: ['spec.timeZone: Invalid value: "Europe": unknown time zone Europe']
- of: {apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {template: {spec: {containers: [{name: a, image: a}]}}}}
  faults: ['spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"']
- of: {apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: a}}
  faults: ["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"]
- of: {apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a}}
  faults: ["spec.accessModes: Required value: at least 1 access mode is required", "spec.resources[storage]: Required value"]
- of: {apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: a}, webhooks: [{name: foo, clientConfig: {url: "http://x"}, sideEffects: Some, admissionReviewVersions: [v2]}]}
  faults:
  - 'webhooks[0].name: Invalid value: "foo": should be a domain with at least three segments separated by dots'
  - 'webhooks[0].sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"'
  - "webhooks[0].clientConfig.url: Invalid value: \\"http\\": 'https' is the only allowed URL scheme; desired format: https://host[/path]"
  - 'webhooks[0].admissionReviewVersions: Invalid value: ["v2"]: must include at least one of v1, v1beta1'
- of: {apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: a}, spec: {matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: ["*"], operations: ["*"], resources: [pods]}]}, variables: [{name: x, expression: "1"}], validations: [{expression: "1"}, {expression: "variables.x == 1"}, {expression: ""}]}}
  faults:
  - 'spec.validations[0].expression: Invalid value: "1": must evaluate to bool but got int'
  - "spec.validations[2].expression: Required value: expression is not specified"
- of: {apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: a}, spec: {policyName: p, validationActions: [Deny, Deny]}}
  faults: ['spec.validationActions[1]: Duplicate value: "Deny"']
- of: {apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: foo}, spec: {group: a.b, names: {plural: things, kind: Thing}, scope: Cluster, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {a: {}, b: {type: array}, c: {type: foo}}}}}]}}
  faults:
  - 'metadata.name: Invalid value: "foo": must be spec.names.plural+"."+spec.group'
  - "spec.versions[0].schema.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields"
  - "spec.versions[0].schema.openAPIV3Schema.properties[b].items: Required value: must be specified"
  - 'spec.versions[0].schema.openAPIV3Schema.properties[c].type: Unsupported value: "foo": supported values: "array", "boolean", "integer", "number", "object", "string"'
- of: {apiVersion: v1, kind: Namespace, metadata: {name: a.b}}
  faults: ["metadata.name: Invalid value: \\"a.b\\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"]
- of: {apiVersion: v1, kind: Event, metadata: {name: Any_Thing, namespace: n}, involvedObject: {namespace: n}}
  faults: []
""")


@pytest.mark.parametrize(
    "case", OTHERS, ids=[f"{i}-{c['of']['kind']}" for i, c in enumerate(OTHERS)]
)
def test_other_kinds(case):
    assert check(case["of"]) == case["faults"]


NEW_FUNCTION = yaml.safe_load("""
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: a}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations: [{expression: "[1].includes(1)"}]
""")


def test_a_new_expression_has_the_functions_of_the_release_before():
    (fault,) = check(NEW_FUNCTION)
    assert fault.startswith("spec.validations[0].expression: Invalid value:")
    assert "undeclared reference to 'includes'" in fault
    # What is stored stays valid, and so do other changes.
    stored = complete(NEW_FUNCTION)
    changed = with_field(NEW_FUNCTION, "metadata.labels", {"a": "b"})
    assert check(changed, stored) == []


def test_a_name_that_is_stored_stays_valid():
    webhooks = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "a.static.k8s.io"},
    }
    assert check(webhooks, complete(webhooks)) == []


FIXED = "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"


@pytest.mark.parametrize(
    ("document", "path", "value", "fault"),
    [
        (POD, "spec.containers.0.image", "b", ""),
        (POD, "spec.activeDeadlineSeconds", 5, ""),
        (POD, "spec.hostname", "b", FIXED),
        (POD, "spec.containers.0.command", ["b"], FIXED),
        (
            POD,
            "spec.containers",
            [{"name": "a", "image": "a"}, {"name": "b", "image": "b"}],
            "spec.containers: Forbidden: pod updates may not add or remove containers",
        ),
        (DEPLOYMENT, "spec.replicas", 3, ""),
        (
            with_field(DEPLOYMENT, "spec.template.metadata.labels", {"a": "b", "c": "d"}),
            "spec.selector",
            {"matchLabels": {"c": "d"}},
            'spec.selector: Invalid value: {"matchLabels":{"c":"d"}}: field is immutable',
        ),
        (
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "immutable": True},
            "data",
            {"a": "b"},
            "data: Forbidden: field is immutable when `immutable` is set",
        ),
        (
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}},
            "type",
            "b",
            'type: Invalid value: "b": field is immutable',
        ),
        (
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": {"name": "a"},
                "roleRef": {"kind": "Role", "name": "a"},
            },
            "roleRef",
            {"kind": "Role", "name": "b"},
            'roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"Role",'
            '"Name":"b"}: cannot change roleRef',
        ),
    ],
)
def test_changes(document, path, value, fault):
    faults = check(with_field(document, path, value), complete(document))

    assert len(faults) == bool(fault)
    assert "".join(faults).startswith(fault)
