"""kubectl's everyday commands: each with what must be there first, and what its answer shows.

The rows are run by test_kubectl.py on every kind of cluster; what they find on the embedded one is
the table of docs/reference/kubectl.md.
"""

import json
from dataclasses import dataclass

CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app: shop}}
data: {colour: green}
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec: {containers: [{name: shop, image: "ghcr.io/acme/shop:1"}]}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec: {containers: [{name: web, image: nginx}]}
"""
TWO = f"{CONFIG}---{POD}"
CHANGED = CONFIG.replace("green", "blue")
WIDGETS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.tests.lictor.io}
spec:
  group: tests.lictor.io
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wg]}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [size]
            properties: {size: {type: integer, minimum: 1}, colour: {type: string, default: red}}
"""
WIDGET = """
apiVersion: tests.lictor.io/v1
kind: Widget
metadata: {name: small}
spec: {size: 3}
"""
PATCH = json.dumps({"data": {"colour": "blue"}})
JSON_PATCH = json.dumps([{"op": "replace", "path": "/data/colour", "value": "blue"}])
STRATEGIC = json.dumps(
    {"spec": {"template": {"spec": {"containers": [{"name": "shop", "image": "other"}]}}}}
)
NO_KUBELET = "nothing runs Pods here"
COLOUR = "-o=jsonpath={.data.colour}"


@dataclass(frozen=True)
class Row:
    """One command. Words are split at spaces; `then` is asked afterwards, and its answer counts."""

    command: str
    shows: str = ""
    first: str = ""
    """A manifest that is there before."""
    maker: str = "apply"
    """By which command it came."""
    stdin: str = ""
    """What `-f -` reads."""
    then: str = ""
    words: tuple[str, ...] = ()
    """More words, which may have spaces."""
    why_not: str = ""
    """Why it cannot work; then it must fail."""
    code: int = 0
    """How it ends; -1 where that does not matter."""
    title: str = ""
    """What the table calls it, where that is not the command."""

    @property
    def name(self) -> str:
        return self.title or self.command


ROWS = (
    # --- reading
    Row("get pods", "web ", first=POD),
    Row("get pods -o wide", "NOMINATED NODE", first=POD),
    Row("get pods -o yaml", "image: nginx", first=POD),
    Row("get pods -o json", '"image": "nginx"', first=POD),
    Row("get pods -o name", "pod/web", first=POD),
    Row("get pod web -o jsonpath={.spec.containers[0].image}", "nginx", first=POD),
    Row(
        "get pods -o custom-columns=NAME:.metadata.name,IMAGE:.spec.containers[*].image",
        "nginx",
        first=POD,
    ),
    Row("get pods -o go-template={{range.items}}{{.metadata.name}}{{end}}", "web", first=POD),
    Row("get pods --show-labels", "app=web", first=POD),
    Row("get pods -L app", "APP", first=POD),
    Row("get pods -l app=web", "web", first=POD),
    Row("get pods -l app!=web", "No resources found", first=POD),
    Row("get pods --field-selector metadata.name=web", "web", first=POD),
    Row("get pods --sort-by=.metadata.name", "web", first=POD),
    Row("get pods -A", "NAMESPACE", first=POD),
    Row("get pods,configmaps", "configmap/settings", first=TWO),
    Row("get all", "deployment.apps/shop", first=DEPLOYMENT),
    Row("get events", "SuccessfulCreate", first=DEPLOYMENT, title="get events"),
    Row(
        "get configmap settings --watch --request-timeout=2s",
        "settings",
        first=CONFIG,
        code=-1,
        title="get --watch",
    ),
    Row("get --raw /openapi/v3", "apis/apps/v1"),
    Row("get --raw /api/v1/namespaces/default", '"kind":"Namespace"'),
    Row("get widgets", "SIZE", first=WIDGET),
    Row("describe pod web", "Image:", first=POD),
    Row("describe deployment shop", "ScalingReplicaSet", first=DEPLOYMENT),
    Row("explain pod.spec.containers", "image"),
    Row("explain deployment --recursive", "replicas"),
    Row("explain widget.spec", "size", first=WIDGET),
    Row("api-resources", "deployments"),
    Row("api-resources --namespaced=false -o wide", "customresourcedefinitions"),
    Row("api-versions", "apps/v1"),
    Row("version", "Server Version: v1.3"),
    Row("cluster-info", "is running at"),
    # --- writing
    Row("create configmap other --from-literal=a=b", "configmap/other created"),
    Row("create secret generic key --from-literal=a=b", "secret/key created"),
    Row("create deployment web --image=nginx --replicas=2", "deployment.apps/web created"),
    Row("create job once --image=busybox", "job.batch/once created"),
    Row("create cronjob often --image=busybox", "created", words=("--schedule=*/5 * * * *",)),
    Row("create serviceaccount robot", "serviceaccount/robot created"),
    Row("create token default", "ey"),
    Row(
        "create role reader --verb=get --resource=pods",
        "role.rbac.authorization.k8s.io/reader created",
    ),
    Row("create rolebinding reader --role=reader --serviceaccount=default:default", "created"),
    Row("create service clusterip web --tcp=80:80", "service/web created"),
    Row("create ingress web --rule=a.example/=web:80", "ingress.networking.k8s.io/web created"),
    Row("create quota most --hard=pods=3", "resourcequota/most created"),
    Row("create -f -", "configmap/settings created", stdin=CONFIG),
    Row("create -f - --dry-run=server", "created (server dry run)", stdin=CONFIG),
    Row("run nginx --image=nginx", "pod/nginx created"),
    Row("expose deployment shop --port=80", "service/shop exposed", first=DEPLOYMENT),
    Row("apply -f -", "configmap/settings created", stdin=CONFIG),
    Row(
        "apply -f -",
        "blue",
        first=CONFIG,
        stdin=CHANGED,
        then=f"get cm settings {COLOUR}",
        title="apply -f - (changes)",
    ),
    Row(
        "apply --server-side -f -",
        "blue",
        first=CONFIG,
        stdin=CHANGED,
        words=("--force-conflicts",),
        then=f"get cm settings {COLOUR}",
    ),
    Row(
        "apply --server-side -f -",
        "conflict",
        first=CONFIG,
        maker="create",
        stdin=CHANGED,
        code=1,
        title="apply --server-side (a conflict)",
    ),
    Row(
        "apply -f -",
        "spec.size",
        first=WIDGET,
        stdin=WIDGET.replace("3", "0"),
        code=1,
        title="apply -f - (refused by a schema)",
    ),
    Row("diff -f -", "+  colour: blue", first=CONFIG, stdin=CHANGED, code=1),
    Row(
        "diff --server-side -f -",
        "+  colour: blue",
        first=CONFIG,
        stdin=CHANGED,
        words=("--force-conflicts",),
        code=1,
    ),
    Row("replace -f -", "blue", first=CONFIG, stdin=CHANGED, then=f"get cm settings {COLOUR}"),
    Row(
        "replace --force -f -",
        "blue",
        first=CONFIG,
        stdin=CHANGED,
        then=f"get cm settings {COLOUR}",
    ),
    Row(
        "patch configmap settings --type=merge",
        "blue",
        first=CONFIG,
        words=("-p", PATCH),
        then=f"get cm settings {COLOUR}",
    ),
    Row(
        "patch configmap settings --type=json",
        "blue",
        first=CONFIG,
        words=("-p", JSON_PATCH),
        then=f"get cm settings {COLOUR}",
    ),
    Row(
        "patch deployment shop --type=strategic",
        "other",
        first=DEPLOYMENT,
        words=("-p", STRATEGIC),
        then="get deploy shop -o=jsonpath={..image}",
    ),
    Row(
        "patch deployment shop --subresource=scale --type=merge",
        "3",
        first=DEPLOYMENT,
        words=("-p", '{"spec":{"replicas":3}}'),
        then="get deploy shop -o=jsonpath={.spec.replicas}",
    ),
    Row(
        "edit configmap settings",
        "blue",
        first=CONFIG,
        then=f"get cm settings {COLOUR}",
        title="edit",
    ),
    Row(
        "set image deployment/shop shop=other",
        "other",
        first=DEPLOYMENT,
        then="get deploy shop -o=jsonpath={..image}",
    ),
    Row(
        "set env deployment/shop A=b",
        "A",
        first=DEPLOYMENT,
        then="get deploy shop -o=jsonpath={..env[0].name}",
    ),
    Row(
        "label configmap settings team=a",
        "a",
        first=CONFIG,
        then="get cm settings -o=jsonpath={.metadata.labels.team}",
    ),
    Row("label configmap settings app-", "unlabeled", first=CONFIG),
    Row(
        "annotate configmap settings note=a",
        "a",
        first=CONFIG,
        then="get cm settings -o=jsonpath={.metadata.annotations.note}",
    ),
    Row(
        "scale deployment shop --replicas=5",
        "5",
        first=DEPLOYMENT,
        then="get deploy shop -o=jsonpath={.spec.replicas}",
    ),
    Row("autoscale deployment shop --max=4", "autoscaled", first=DEPLOYMENT),
    Row("rollout history deployment/shop", "REVISION", first=DEPLOYMENT),
    Row("rollout restart deployment/shop", "restarted", first=DEPLOYMENT),
    Row("rollout pause deployment/shop", "paused", first=DEPLOYMENT),
    Row(
        "rollout undo deployment/shop",
        "error: no rollout history",
        first=DEPLOYMENT,
        code=1,
        title="rollout undo",
    ),
    Row("delete configmap settings", "deleted", first=CONFIG),
    Row("delete pod web --wait", "deleted", first=POD),
    Row("delete pod web --now", "deleted", first=POD),
    Row("delete deployment shop --cascade=foreground", "deleted", first=DEPLOYMENT),
    Row(
        "delete deployment shop --cascade=orphan",
        "replicaset",
        first=DEPLOYMENT,
        then="get rs -o name",
    ),
    Row("delete -f -", "deleted", first=CONFIG, stdin=CONFIG),
    Row("delete configmaps -l app=shop", "deleted", first=CONFIG),
    Row("delete configmaps --all", "deleted", first=CONFIG),
    Row("wait --for=create configmap/settings --timeout=5s", "condition met", first=CONFIG),
    Row(
        "wait --for=jsonpath={.data.colour}=green configmap/settings --timeout=5s",
        "condition met",
        first=CONFIG,
    ),
    Row(
        "wait --for=condition=Progressing deployment/shop --timeout=10s",
        "condition met",
        first=DEPLOYMENT,
    ),
    Row("wait --for=delete configmap/none --timeout=5s"),
    # --- rights
    Row("auth can-i create pods", "yes"),
    Row("auth can-i --list", "Resources"),
    Row("auth can-i get secrets --as=system:serviceaccount:default:default", "no", code=1),
    Row("auth whoami", "kubernetes-admin"),
    Row("get secrets --as=nobody", "forbidden", code=1, title="--as"),
    # --- what needs nodes
    # There is nothing to say, and that is no error.
    Row("logs web", first=POD, why_not=NO_KUBELET, code=-1),
    Row("exec web -- true", first=POD, why_not=NO_KUBELET),
    Row("attach web", first=POD, why_not=NO_KUBELET),
    Row(
        "port-forward web 18080:80 --pod-running-timeout=1s",
        first=POD,
        why_not=NO_KUBELET,
        title="port-forward",
    ),
    Row("cp web:/etc/hosts /dev/null", first=POD, why_not=NO_KUBELET, title="cp"),
    Row("top pods", why_not="nothing measures Pods here"),
    Row(
        "rollout status deployment/shop --timeout=1s",
        first=DEPLOYMENT,
        why_not="it waits for Pods that never run",
        title="rollout status",
    ),
)


def render_table(outcomes: dict[str, bool]) -> str:
    """The table of docs/reference/kubectl.md, from what was found."""
    lines = ["| command | works | why not |", "|---|---|---|"]
    for row in ROWS:
        works = outcomes[row.name] and not row.why_not
        lines.append(f"| `kubectl {row.name}` | {'yes' if works else 'no'} | {row.why_not} |")
    return "\n".join(lines)
