"""What do objects of built-in kinds hold where nothing was said?"""

import copy

import pytest
import yaml

from lictor.addons.apiserver.kinds.catalogue import build_catalogue

CATALOGUE = build_catalogue()


def complete(document):
    kind = CATALOGUE.find_kind(document["apiVersion"], document["kind"])
    return kind.schema.apply_defaults(document)


def look(document, path):
    for step in path.split("."):
        document = document[int(step)] if step.isdigit() else document[step]
    return document


CASES = yaml.safe_load("""
- of: {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, image: nginx}]}}
  is:
    spec.restartPolicy: Always
    spec.dnsPolicy: ClusterFirst
    spec.schedulerName: default-scheduler
    spec.terminationGracePeriodSeconds: 30
    spec.enableServiceLinks: true
    spec.priority: 0
    spec.securityContext: {}
    spec.containers.0.imagePullPolicy: Always
    spec.containers.0.terminationMessagePath: /dev/termination-log
    spec.containers.0.resources: {}
    spec.tolerations.1.key: node.kubernetes.io/unreachable
    status: {phase: Pending, qosClass: BestEffort}
- of:
    apiVersion: v1
    kind: Pod
    metadata: {name: a}
    spec:
      hostNetwork: true
      serviceAccountName: me
      terminationGracePeriodSeconds: 0
      priorityClassName: system-node-critical
      tolerations: [{operator: Exists}]
      containers:
      - name: a
        image: registry:5000/nginx:1.2
        ports: [{containerPort: 80}]
        resources: {limits: {cpu: 1, memory: 1Gi}}
        livenessProbe: {httpGet: {port: 80}, periodSeconds: 3}
        env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
      - {name: b, image: "nginx@sha256:0000000000000000000000000000000000000000000000000000000000000000"}
      volumes:
      - {name: a}
      - {name: b, secret: {secretName: s}}
      - {name: c, hostPath: {path: /}}
      - {name: d, projected: {sources: [{serviceAccountToken: {path: t}}]}}
  is:
    spec.serviceAccount: me
    spec.terminationGracePeriodSeconds: 0
    spec.priority: 2000001000
    spec.tolerations: [{operator: Exists}]
    spec.containers.0.imagePullPolicy: IfNotPresent
    spec.containers.0.ports: [{containerPort: 80, hostPort: 80, protocol: TCP}]
    spec.containers.0.resources.requests: {cpu: "1", memory: 1Gi}
    spec.containers.0.livenessProbe:
      {httpGet: {port: 80, path: /, scheme: HTTP}, periodSeconds: 3, timeoutSeconds: 1, successThreshold: 1, failureThreshold: 3}
    spec.containers.0.env.0.valueFrom.fieldRef.apiVersion: v1
    spec.containers.1.imagePullPolicy: IfNotPresent
    spec.volumes.0.emptyDir: {}
    spec.volumes.1.secret.defaultMode: 420
    spec.volumes.2.hostPath.type: ""
    spec.volumes.3.projected.sources.0.serviceAccountToken.expirationSeconds: 3600
    status.qosClass: Burstable
- of: {apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {template: {spec: {containers: [{name: a, image: a}]}}}}
  is:
    spec.replicas: 1
    spec.strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 25%, maxUnavailable: 25%}}
    spec.revisionHistoryLimit: 10
    spec.progressDeadlineSeconds: 600
    spec.template.spec.containers.0.imagePullPolicy: Always
- of: {apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {strategy: {type: Recreate}}}
  is:
    spec.strategy: {type: Recreate}
- of: {apiVersion: apps/v1, kind: StatefulSet, metadata: {name: a}, spec: {volumeClaimTemplates: [{metadata: {name: d}}]}}
  is:
    spec.podManagementPolicy: OrderedReady
    spec.updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 0}}
    spec.volumeClaimTemplates.0.kind: PersistentVolumeClaim
    spec.volumeClaimTemplates.0.status.phase: Pending
- of: {apiVersion: apps/v1, kind: DaemonSet, metadata: {name: a}}
  is:
    spec.updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1, maxSurge: 0}}
- of: {apiVersion: batch/v1, kind: Job, metadata: {name: a, uid: u}}
  is:
    spec.completions: 1
    spec.parallelism: 1
    spec.backoffLimit: 6
    spec.selector: {matchLabels: {batch.kubernetes.io/controller-uid: u}}
    spec.template.metadata.labels:
      {controller-uid: u, job-name: a, batch.kubernetes.io/controller-uid: u, batch.kubernetes.io/job-name: a}
- of: {apiVersion: batch/v1, kind: CronJob, metadata: {name: a}, spec: {schedule: "@daily"}}
  is:
    spec.concurrencyPolicy: Allow
    spec.successfulJobsHistoryLimit: 3
- of: {apiVersion: v1, kind: Service, metadata: {name: a, namespace: d}, spec: {clusterIP: None, selector: {a: b}, ports: [{port: 80}]}}
  is:
    spec.type: ClusterIP
    spec.sessionAffinity: None
    spec.clusterIPs: [None]
    spec.ipFamilies: [IPv4]
    spec.ipFamilyPolicy: SingleStack
    spec.ports: [{port: 80, protocol: TCP, targetPort: 80}]
    status.loadBalancer: {}
- of: {apiVersion: v1, kind: Secret, metadata: {name: a}, stringData: {a: b}, data: {c: ZA==}}
  is:
    type: Opaque
    data: {a: Yg==, c: ZA==}
- of: {apiVersion: v1, kind: Namespace, metadata: {name: a}}
  is:
    metadata.labels: {kubernetes.io/metadata.name: a}
    spec.finalizers: [kubernetes]
    status.phase: Active
- of: {apiVersion: v1, kind: Namespace, metadata: {name: a, deletionTimestamp: "2020-01-01T00:00:00Z"}}
  is:
    spec: {}
- of: {apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: a}, spec: {egress: [{ports: [{port: 1}]}]}}
  is:
    spec.policyTypes: [Ingress, Egress]
    spec.egress.0.ports.0.protocol: TCP
- of: {apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: a}, roleRef: {kind: Role, name: r}, subjects: [{kind: User, name: u}]}
  is:
    roleRef.apiGroup: rbac.authorization.k8s.io
    subjects.0.apiGroup: rbac.authorization.k8s.io
- of:
    apiVersion: admissionregistration.k8s.io/v1
    kind: MutatingWebhookConfiguration
    metadata: {name: a}
    webhooks: [{name: a.b.c, clientConfig: {service: {name: s, namespace: n}}, rules: [{operations: ["*"]}]}]
  is:
    webhooks.0.failurePolicy: Fail
    webhooks.0.matchPolicy: Equivalent
    webhooks.0.reinvocationPolicy: Never
    webhooks.0.timeoutSeconds: 10
    webhooks.0.namespaceSelector: {}
    webhooks.0.clientConfig.service.port: 443
    webhooks.0.rules.0.scope: "*"
- of: {apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicy, metadata: {name: a}, spec: {matchConstraints: {resourceRules: [{resources: [pods]}]}}}
  is:
    spec.failurePolicy: Fail
    spec.matchConstraints.matchPolicy: Equivalent
    spec.matchConstraints.resourceRules.0.scope: "*"
- of: {apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: a}, spec: {names: {kind: Thing}}}
  is:
    spec.names: {kind: Thing, singular: thing, listKind: ThingList}
    spec.conversion: {strategy: None}
- of: {apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a}}
  is:
    spec.volumeMode: Filesystem
    status.phase: Pending
- of: {apiVersion: v1, kind: LimitRange, metadata: {name: a}, spec: {limits: [{type: Container, max: {cpu: 2}, min: {memory: 1Mi}}]}}
  is:
    spec.limits.0.default: {cpu: "2"}
    spec.limits.0.defaultRequest: {cpu: "2", memory: 1Mi}
""")


@pytest.mark.parametrize("case", CASES, ids=[f"{i}-{c['of']['kind']}" for i, c in enumerate(CASES)])
def test_defaults(case):
    before = copy.deepcopy(case["of"])

    completed = complete(case["of"])

    assert {path: look(completed, path) for path in case["is"]} == case["is"]
    assert case["of"] == before, "what is given is left as it was"
    assert complete(completed) == completed, "completing twice changes nothing"


def test_kinds_without_defaults_are_left_alone():
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}}

    assert complete(lease) is lease


def service(name, **spec):
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "n"},
        "spec": {"ports": [{"port": 80}], **spec},
    }


def test_the_address_of_a_service_follows_from_its_name():
    one, again, other = (complete(service(name)) for name in ("a", "a", "b"))

    assert one["spec"]["clusterIP"].startswith("10.96.")
    assert one["spec"]["clusterIP"] == again["spec"]["clusterIP"] != other["spec"]["clusterIP"]
    assert one["spec"]["clusterIPs"] == [one["spec"]["clusterIP"]]


def test_node_ports_are_given():
    completed = complete(service("a", type="NodePort"))

    assert 30000 <= completed["spec"]["ports"][0]["nodePort"] < 32768
    assert completed["spec"]["externalTrafficPolicy"] == "Cluster"


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}, "Burstable"),
        ({"limits": {"cpu": "0"}}, "BestEffort"),
    ],
)
def test_quality_of_service(resources, quality):
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    pod["spec"] = {"containers": [{"name": "a", "image": "a", "resources": resources}]}

    assert complete(pod)["status"]["qosClass"] == quality
