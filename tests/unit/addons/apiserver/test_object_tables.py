"""Tables as kubectl shows them, and the ages in them."""

from datetime import UTC, datetime, timedelta

import pytest
import yaml

from lictor.addons.apiserver.kinds.catalogue import build_catalogue
from lictor.addons.apiserver.rendering import render_table
from lictor.addons.apiserver.table_columns import format_duration

NOW = datetime(2024, 1, 1, 12, 0, tzinfo=UTC)
BORN = "2024-01-01T11:55:00Z"
CATALOGUE = build_catalogue()


def render(document, **options):
    kind = CATALOGUE.find_kind(document["apiVersion"], document["kind"])
    metadata = {"name": "a", "creationTimestamp": BORN, **document.get("metadata", {})}
    shown = {**document, "metadata": metadata}
    return render_table(kind, [shown], list_metadata={}, now=NOW, **options)


def cells(text):
    return render(yaml.safe_load(text))["rows"][0]["cells"]


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (-5, "<invalid>"), (-1, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (150, "2m30s"),
        (600, "10m"), (630, "10m"), (3 * 3600 - 1, "179m"), (3 * 3600, "3h"), (3 * 3600 + 60, "3h1m"),
        (8 * 3600 + 60, "8h"), (47 * 3600, "47h"), (48 * 3600, "2d"), (49 * 3600, "2d1h"),
        (8 * 86400 + 3600, "8d"), (729 * 86400, "729d"), (730 * 86400, "2y"), (800 * 86400, "2y70d"),
        (3000 * 86400, "8y"),
    ],
)  # fmt: skip
def test_ages(seconds, told):
    assert format_duration(timedelta(seconds=seconds).total_seconds()) == told


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{apiVersion: v1, kind: ConfigMap, data: {a: b}, binaryData: {c: d}}", ["a", 2, "5m"]),
        ("{apiVersion: v1, kind: Namespace, status: {phase: Active}}", ["a", "Active", "5m"]),
        ("{apiVersion: v1, kind: Secret, type: Opaque, data: {a: b}}", ["a", "Opaque", 1, "5m"]),
        (
            "{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 3, selector: {matchLabels: {a: b},"
            " matchExpressions: [{key: c, operator: In, values: [y, x]}, {key: d, operator: DoesNotExist}]},"
            " template: {spec: {containers: [{name: c, image: i}, {name: d, image: j}]}}},"
            " status: {readyReplicas: 2, updatedReplicas: 1}}",
            ["a", "2/3", 1, 0, "5m", "c,d", "i,j", "a=b,c in (x,y),!d"],
        ),
        (
            "{apiVersion: v1, kind: Service, spec: {type: LoadBalancer, clusterIP: 1.2.3.4,"
            " selector: {a: b}, ports: [{port: 80, nodePort: 30000, protocol: TCP}]}}",
            ["a", "LoadBalancer", "1.2.3.4", "<pending>", "80:30000/TCP", "5m", "a=b"],
        ),
        (
            "{apiVersion: batch/v1, kind: Job, spec: {completions: 2}, status: {succeeded: 1,"
            " startTime: '2024-01-01T11:59:00Z', conditions: [{type: Complete, status: 'True'}]}}",
            ["a", "Complete", "1/2", "60s", "5m", "", "", "<error>"],
        ),
        (
            "{apiVersion: v1, kind: Event, type: Normal, reason: R, message: ' m ', involvedObject:"
            " {kind: Pod, name: p}, lastTimestamp: '2024-01-01T11:59:00Z', count: 3}",
            ["60s", "Normal", "R", "pod/p", "", "", "m", "<unknown>", 3, "a"],
        ),
        (
            "{apiVersion: events.k8s.io/v1, kind: Event, type: Normal, reason: R, note: m, regarding:"
            " {kind: Pod, name: p}, eventTime: '2024-01-01T11:59:00.000000Z', reportingController: c}",
            ["60s", "Normal", "R", "pod/p", "", "c", "m", "60s", 1, "a"],
        ),
        (
            "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, roleRef: {kind: Role, name: r},"
            " subjects: [{kind: User, name: u}, {kind: ServiceAccount, namespace: n, name: s}]}",
            ["a", "Role/r", "5m", "u", "", "n/s"],
        ),
        ("{apiVersion: rbac.authorization.k8s.io/v1, kind: Role}", ["a", BORN]),
        (
            "{apiVersion: v1, kind: PersistentVolumeClaim, spec: {volumeName: v, volumeMode: Block},"
            " status: {phase: Bound, capacity: {storage: 1Gi}, accessModes: [ReadWriteMany, ReadWriteOnce]}}",
            ["a", "Bound", "v", "1Gi", "RWO,RWX", "", "<unset>", "5m", "Block"],
        ),
        (
            "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, webhooks: [{}, {}]}",
            ["a", 2, "5m"],
        ),
    ],
)
def test_rows(text, expected):
    assert cells(text) == expected


@pytest.mark.parametrize(
    ("status", "ready", "told", "restarts"),
    [
        ("{phase: Pending}", "0/1", "Pending", "0"),
        ("{phase: Running, containerStatuses: [{name: c, ready: true, restartCount: 0, state: {running: {}}}]}", "1/1", "Running", "0"),
        (
            "{phase: Running, containerStatuses: [{name: c, ready: false, restartCount: 3, state:"
            " {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {finishedAt: '2024-01-01T11:50:00Z'}}}]}",
            "0/1", "CrashLoopBackOff", "3 (10m ago)",
        ),
        ("{phase: Failed, containerStatuses: [{name: c, state: {terminated: {exitCode: 3}}}]}", "0/1", "ExitCode:3", "0"),
        ("{phase: Pending, initContainerStatuses: [{name: i, state: {running: {}}}]}", "0/1", "Init:0/1", "0"),
        ("{phase: Pending, initContainerStatuses: [{name: i, state: {waiting: {reason: ErrImagePull}}}]}", "0/1", "Init:ErrImagePull", "0"),
        ("{phase: Failed, reason: Evicted}", "0/1", "Evicted", "0"),
    ],
)  # fmt: skip
def test_pods(status, ready, told, restarts):
    spec = "{containers: [{name: c}], initContainers: [{name: i}]}"

    row = cells(f"{{apiVersion: v1, kind: Pod, spec: {spec}, status: {status}}}")

    assert row[1:4] == [ready, told, restarts]


def test_pods_that_go():
    going = "{deletionTimestamp: '2024-01-01T11:59:00Z'}"

    row = cells(f"{{apiVersion: v1, kind: Pod, metadata: {going}, status: {{phase: Running}}}}")

    assert row[2] == "Terminating"


def test_what_comes_with_a_row():
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}

    def shown(include):
        return render(config_map, include_object=include)["rows"][0]["object"]

    assert shown("None") is None
    assert shown("Object")["data"] == {"a": "b"}
    assert shown("Metadata") == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"name": "a", "creationTimestamp": BORN},
    }


def test_every_kind_has_as_many_cells_as_columns():
    for kind in CATALOGUE:
        document = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "a"}}
        layout = kind.traits.columns
        # Addresses have one cell more, in Kubernetes as here.
        extra = kind.kind == "IPAddress"
        assert len(layout.fill(document, NOW)) == len(layout.columns) + extra, kind.resource


CRD = yaml.safe_load("""
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: things, kind: Thing}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object}}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Ready, type: string, jsonPath: '.status.conditions[?(@.type=="Ready")].status'}
    - {name: Seen, type: date, jsonPath: .status.seen}
    - {name: All, type: string, jsonPath: '.spec.names', priority: 1}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
""")


def test_custom_columns():
    catalogue = build_catalogue()
    catalogue.define(CRD)
    kind = catalogue.find("example.com", "v1", "things")
    thing = {
        "metadata": {"name": "a", "creationTimestamp": BORN},
        "spec": {"size": 3, "names": ["x", "y"]},
        "status": {"seen": BORN, "conditions": [{"type": "Ready", "status": "True"}]},
    }

    table = render_table(kind, [thing, {"metadata": {"name": "b"}}], list_metadata={}, now=NOW)

    assert [row["cells"] for row in table["rows"]] == [
        ["a", 3, "True", "5m", '["x","y"]'],
        ["b", None, None, None, None],
    ]
    assert [column["priority"] for column in table["columnDefinitions"]] == [0, 0, 0, 0, 1]


def test_custom_kinds_without_columns_show_their_age():
    catalogue = build_catalogue()
    catalogue.define(CRD)
    thing = {"metadata": {"name": "a", "creationTimestamp": BORN}}

    table = render_table(
        catalogue.find("example.com", "v2", "things"), [thing], list_metadata={}, now=NOW
    )

    assert table["rows"][0]["cells"] == ["a", "5m"]
