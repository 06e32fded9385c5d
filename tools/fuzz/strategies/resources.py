"""Resources: Pods, what makes Pods, other kinds, and things that only look like resources."""

from lictor.core.raw import Json
from strategies.json_values import long_text, mapping, spoil, text, value
from strategies.source import Source

NAMES = ("web", "db", "web-1", "kube-dns", "a", "")
NAMESPACES = ("default", "ns", "kube-system", "prod")
IMAGES = (
    "nginx", "nginx:latest", "nginx:1.25", "ghcr.io/org/app:v1", "busybox@sha256:" + "a" * 64,
    "localhost:5000/x/y:z", "REGISTRY.io/a", "bad image", "", "docker.io/library/redis",
)  # fmt: skip
_VOLUMES = ("hostPath", "emptyDir", "secret", "configMap", "nfs", "csi", "projected")


def metadata(source: Source) -> dict[str, Json]:
    """Metadata with name, and the rest now and then."""
    made: dict[str, Json] = {"name": source.pick(NAMES)}
    if source.chance(60):
        made["namespace"] = source.pick(NAMESPACES)
    if source.chance(60):
        made["labels"] = _tags(source)
    if source.chance(40):
        made["annotations"] = _tags(source)
    if source.chance(5):
        made["ownerReferences"] = [mapping(source, 2)]
    return made


def _tags(source: Source) -> dict[str, Json]:
    names = ("app", "team", "a.b/c", "pod-policies.kyverno.io/autogen-controllers", "x*")
    return {
        name: source.pick(("web", "true", "", "a*", text(source))) for name in source.subset(names)
    }


def _security(source: Source) -> dict[str, Json]:
    fields: dict[str, Json] = {
        "runAsNonRoot": source.pick((True, False)),
        "runAsUser": source.pick((0, 1000)),
        "privileged": source.pick((True, False)),
        "allowPrivilegeEscalation": source.pick((True, False)),
        "procMount": source.pick(("Default", "Unmasked")),
        "capabilities": {
            "add": source.subset(["NET_ADMIN", "CHOWN", "NET_BIND_SERVICE", "ALL"], 30),
            "drop": source.subset(["ALL", "NET_RAW"]),
        },
        "seccompProfile": {"type": source.pick(("RuntimeDefault", "Unconfined", "Localhost"))},
        "appArmorProfile": {"type": source.pick(("RuntimeDefault", "Unconfined", "x"))},
        "seLinuxOptions": {"type": source.pick(("", "container_t", "x")), "user": "u"},
        "windowsOptions": {"hostProcess": source.pick((True, False))},
        "sysctls": [{"name": source.pick(("kernel.shm_rmid_forced", "kernel.x")), "value": "1"}],
    }
    return {name: fields[name] for name in source.subset(tuple(fields), 35)}


def container(source: Source) -> dict[str, Json]:
    """One container."""
    made: dict[str, Json] = {"name": source.pick(("c", "d", "e")), "image": source.pick(IMAGES)}
    if source.chance(40):
        made["securityContext"] = _security(source)
    if source.chance(40):
        amounts = ("100m", "1Gi", "0.5", 1, "2")
        made["resources"] = {
            part: {"cpu": source.pick(amounts), "memory": source.pick(amounts)}
            for part in source.subset(("requests", "limits"))
        }
    if source.chance(30):
        made["ports"] = [
            {"containerPort": source.pick((80, 443, 65536, "80")), "hostPort": source.pick((0, 80))}
        ]
    if source.chance(20):
        made["env"] = [{"name": "A", "value": text(source)}]
    return made


def pod_spec(source: Source) -> dict[str, Json]:
    """The spec of a Pod."""
    made: dict[str, Json] = {"containers": source.several(container, 3, 1)}
    if source.chance(20):
        made["initContainers"] = source.several(container, 2)
    if source.chance(10):
        made["ephemeralContainers"] = source.several(container, 2)
    if source.chance(30):
        made["securityContext"] = _security(source)
    if source.chance(30):
        made["volumes"] = [
            {"name": "v", source.pick(_VOLUMES): {"path": "/x", "name": "n"}}
            for _ in range(source.count(3))
        ]
    for field in source.subset(("hostNetwork", "hostPID", "hostIPC"), 15):
        made[field] = source.pick((True, False))
    return made


def pod(source: Source) -> dict[str, Json]:
    """A Pod that is at least shaped like one."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(source),
        "spec": pod_spec(source),
    }


def _controller(source: Source) -> dict[str, Json]:
    api_version, kind = source.pick(
        (
            ("apps/v1", "Deployment"),
            ("apps/v1", "DaemonSet"),
            ("apps/v1", "StatefulSet"),
            ("apps/v1", "ReplicaSet"),
            ("batch/v1", "Job"),
            ("batch/v1", "CronJob"),
        )
    )
    template = {"template": {"metadata": metadata(source), "spec": pod_spec(source)}}
    spec: dict[str, Json] = {"replicas": source.randrange(5), **template}
    if kind == "CronJob":
        spec = {"schedule": "* * * * *", "jobTemplate": {"spec": template}}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata(source), "spec": spec}


def _plain(source: Source) -> dict[str, Json]:
    kind = source.pick(("ConfigMap", "Secret", "Namespace", "Service", "ServiceAccount"))
    made: dict[str, Json] = {"apiVersion": "v1", "kind": kind, "metadata": metadata(source)}
    if kind in ("ConfigMap", "Secret"):
        made["data"] = {name: text(source) for name in source.subset(("a", "b", "k.yaml"))}
    return made


def _odd(source: Source) -> dict[str, Json]:
    made = mapping(source)
    made["kind"] = source.pick(("Pod", "Widget", "List", "", text(source), value(source, 1)))
    made["apiVersion"] = source.pick(("v1", "a/b/c", "/", "", text(source), value(source, 1)))
    if source.chance(50):
        made["metadata"] = source.pick((metadata(source), None, [], "x", value(source, 2)))
    return made


def resource(source: Source) -> dict[str, Json]:
    """Any of these, with a few places spoiled."""
    made = source.make((pod, pod, pod, pod, pod, pod, _controller, _controller, _plain, _odd))
    spoiled = spoil(source, made) if source.chance(40) else made
    return spoiled if isinstance(spoiled, dict) else made


def large_resource(source: Source) -> dict[str, Json]:
    """A Pod of a size that only a generator of YAML would write."""
    made = pod(source)
    size = source.randrange(1, 60)
    template = container(source)
    made["spec"]["containers"] = [{**template, "name": f"c{index}"} for index in range(size)]
    made["metadata"]["labels"] = {f"l{index}": "v" * index for index in range(size)}
    made["metadata"]["annotations"] = {"a": long_text(source), "b": long_text(source)}
    return made
