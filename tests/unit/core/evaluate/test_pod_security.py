"""The Pod Security Standards, control by control: which pods they refuse, and how they say so."""

import pytest

from lictor.core.errors import CompileError, EvaluationError
from lictor.core.evaluate.pod_security import (
    CONTROL_NAMES,
    ControlExclusion,
    Standard,
    compile_pod_security,
    compile_tolerance,
    describe_violations,
    format_violations,
)

GOOD_CONTEXT = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def make_container(name="app", image="nginx", *, context=None, **fields):
    return {
        "name": name,
        "image": image,
        "securityContext": GOOD_CONTEXT | (context or {}),
        **fields,
    }


def make_pod(*containers, annotations=None, **spec):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "annotations": annotations},
        "spec": {"containers": list(containers) or [make_container()], **spec},
    }


def with_context(**context):
    return make_pod(make_container(context=context))


def with_pod_context(**context):
    return make_pod(securityContext=context)


def with_volume(**source):
    return make_pod(volumes=[{"name": "data", **source}])


def judge(pod, level="restricted", version="latest", exclude=()):
    return compile_pod_security(level, version, exclude)(pod)


def find_checks(pod, level="restricted", version="latest"):
    return [violation.check for violation in judge(pod, level, version)]


ALLOWED = {
    "as strict as can be": make_pod(),
    "no containers at all": {"kind": "Pod"},
    "fields that are null": make_pod(
        make_container(context={"privileged": None, "procMount": None, "windowsOptions": None}),
        volumes=None,
        initContainers=None,
        hostNetwork=None,
        securityContext=None,
    ),
    "what the pod says counts for silent containers": make_pod(
        make_container(context={"runAsNonRoot": None, "seccompProfile": None}),
        securityContext={"runAsNonRoot": True, "seccompProfile": {"type": "Localhost"}},
    ),
    "binding to low ports": with_context(
        capabilities={"drop": ["NET_RAW", "ALL"], "add": ["NET_BIND_SERVICE"]}
    ),
    "harmless volumes": make_pod(
        volumes=[
            {"name": "a", "emptyDir": {}},
            {"name": "b", "image": {"reference": "x"}},
            {"name": "c", "downwardAPI": {}},
            {"name": "d", "hostPath": None, "persistentVolumeClaim": {"claimName": "x"}},
        ]
    ),
    "host port nought": make_pod(make_container(ports=[{"containerPort": 80, "hostPort": 0}])),
    "probe without host": make_pod(make_container(livenessProbe={"httpGet": {"port": "http"}})),
    "unknown fields": make_pod(make_container(whatever=[1]), future={"x": 1}),
}


@pytest.mark.parametrize("pod", ALLOWED.values(), ids=ALLOWED)
def test_allowed(pod):
    assert judge(pod) == ()


REFUSED = [
    (with_context(privileged=True), "baseline", ["privileged"]),
    (with_context(procMount="Unmasked"), "baseline", ["procMount"]),
    (with_context(procMount=""), "baseline", ["procMount"]),
    (with_context(windowsOptions={"hostProcess": True}), "baseline", ["windowsHostProcess"]),
    (with_pod_context(windowsOptions={"hostProcess": True}), "baseline", ["windowsHostProcess"]),
    (with_context(capabilities={"add": ["KILL"]}), "baseline", []),
    (with_context(capabilities={"add": ["SYS_TIME"]}), "baseline", ["capabilities_baseline"]),
    (with_context(capabilities={"drop": ["ALL"], "add": ["KILL"]}), "restricted", ["capabilities_restricted"]),
    (
        with_context(capabilities={"drop": ["ALL"], "add": ["SYS_TIME"]}),
        "restricted",
        ["capabilities_baseline", "capabilities_restricted"],
    ),
    (with_context(capabilities={"drop": ["all"]}), "restricted", ["capabilities_restricted"]),
    (with_context(capabilities=None), "restricted", ["capabilities_restricted"]),
    (with_context(capabilities=None), "baseline", []),
    (with_context(allowPrivilegeEscalation=None), "restricted", ["allowPrivilegeEscalation"]),
    (with_context(allowPrivilegeEscalation=True), "baseline", []),
    (with_context(runAsNonRoot=False), "restricted", ["runAsNonRoot"]),
    (with_context(runAsNonRoot=None), "restricted", ["runAsNonRoot"]),
    (with_pod_context(runAsNonRoot=False), "restricted", ["runAsNonRoot"]),
    (with_context(runAsUser=0), "restricted", ["runAsUser"]),
    (with_pod_context(runAsUser=0), "restricted", ["runAsUser"]),
    (with_context(seccompProfile={"type": "Unconfined"}), "baseline", ["seccompProfile_baseline"]),
    (with_context(seccompProfile={}), "baseline", ["seccompProfile_baseline"]),
    (
        with_pod_context(seccompProfile={"type": "Unconfined"}),
        "restricted",
        ["seccompProfile_baseline", "seccompProfile_restricted"],
    ),
    (with_context(seccompProfile=None), "restricted", ["seccompProfile_restricted"]),
    (with_context(seccompProfile=None), "baseline", []),
    (with_context(appArmorProfile={"type": "Unconfined"}), "baseline", ["appArmorProfile"]),
    (with_context(appArmorProfile={"type": "Localhost"}), "baseline", []),
    (with_pod_context(appArmorProfile={}), "baseline", ["appArmorProfile"]),
    (
        make_pod(annotations={"container.apparmor.security.beta.kubernetes.io/app": "unconfined"}),
        "baseline",
        ["appArmorProfile"],
    ),
    (
        make_pod(annotations={"container.apparmor.security.beta.kubernetes.io/app": "localhost/x"}),
        "baseline",
        [],
    ),
    (with_context(seLinuxOptions={"type": "spc_t"}), "baseline", ["seLinuxOptions"]),
    (with_context(seLinuxOptions={"type": "container_t", "level": "s0"}), "baseline", []),
    (with_pod_context(seLinuxOptions={"user": "root"}), "baseline", ["seLinuxOptions"]),
    (with_pod_context(seLinuxOptions={"role": "x"}), "baseline", ["seLinuxOptions"]),
    (with_pod_context(sysctls=[{"name": "kernel.msgmax", "value": "1"}]), "baseline", ["sysctls"]),
    (make_pod(hostNetwork=True), "baseline", ["hostNamespaces"]),
    (make_pod(hostPID=True, hostIPC=True), "baseline", ["hostNamespaces"]),
    (make_pod(make_container(ports=[{"hostPort": 80}])), "baseline", ["hostPorts"]),
    (with_volume(hostPath={"path": "/"}), "baseline", ["hostPathVolumes"]),
    (with_volume(hostPath={"path": "/"}), "restricted", ["hostPathVolumes", "restrictedVolumes"]),
    (with_volume(nfs={"server": "x"}), "restricted", ["restrictedVolumes"]),
    (with_volume(nfs={"server": "x"}), "baseline", []),
    (with_volume(), "restricted", ["restrictedVolumes"]),
    (
        make_pod(make_container(lifecycle={"preStop": {"tcpSocket": {"host": "x", "port": 1}}})),
        "baseline",
        ["hostProbesAndHostLifecycle"],
    ),
    (
        make_pod(initContainers=[make_container("setup", context={"privileged": True})]),
        "baseline",
        ["privileged"],
    ),
    (
        make_pod(ephemeralContainers=[make_container("debug", context={"privileged": True})]),
        "baseline",
        ["privileged"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("pod", "level", "checks"), REFUSED)
def test_refused(pod, level, checks):
    assert find_checks(pod, level) == checks


@pytest.mark.parametrize("pod", [pod for pod, _, _ in REFUSED])
def test_privileged_refuses_nothing(pod):
    assert judge(pod, "privileged") == ()


WINDOWS = make_pod({"name": "app"}, os={"name": "windows"}, securityContext={"runAsNonRoot": True})
LINUX = make_pod({"name": "app"}, os={"name": "linux"}, securityContext={"runAsNonRoot": True})
UNPROTECTED = ["allowPrivilegeEscalation", "capabilities_restricted", "seccompProfile_restricted"]


@pytest.mark.parametrize(
    ("pod", "version", "checks"),
    [
        (WINDOWS, "v1.24", UNPROTECTED),
        (WINDOWS, "v1.25", []),
        (WINDOWS, "", []),
        (LINUX, "v1.25", UNPROTECTED),
        (with_pod_context(sysctls=[{"name": "net.ipv4.ip_local_reserved_ports"}]), "v1.26", ["sysctls"]),
        (with_pod_context(sysctls=[{"name": "net.ipv4.ip_local_reserved_ports"}]), "v1.27", []),
        (with_pod_context(sysctls=[{"name": "net.ipv4.tcp_fin_timeout"}]), "v1.28", ["sysctls"]),
        (with_pod_context(sysctls=[{"name": "net.ipv4.tcp_fin_timeout"}]), "v1.29", []),
        (with_pod_context(sysctls=[{"name": "net.ipv4.tcp_rmem"}]), "v1.31", ["sysctls"]),
        (with_pod_context(sysctls=[{"name": "net.ipv4.tcp_rmem"}]), "v1.32", []),
        # Allowed by Kubernetes 1.37, not by the release that Kyverno uses.
        (with_pod_context(sysctls=[{"name": "net.ipv4.tcp_notsent_lowat"}]), "", ["sysctls"]),
        (with_context(seLinuxOptions={"type": "container_engine_t"}), "v1.30", ["seLinuxOptions"]),
        (with_context(seLinuxOptions={"type": "container_engine_t"}), "v1.31", []),
        (with_context(seLinuxOptions={"type": "container_engine_t"}), "v1.99", []),
        (
            make_pod(annotations={"seccomp.security.alpha.kubernetes.io/pod": "unconfined"}),
            "v1.18",
            ["seccompProfile_baseline"],
        ),
        (
            make_pod(annotations={"container.seccomp.security.alpha.kubernetes.io/app": "x"}),
            "v1.18",
            ["seccompProfile_baseline"],
        ),
        (
            make_pod(annotations={"container.seccomp.security.alpha.kubernetes.io/app": "x"}),
            "v1.19",
            [],
        ),
        # Variants never reach below the version that brought the first of them.
        (with_context(runAsUser=0), "v1.19", ["runAsUser"]),
    ],
)  # fmt: skip
def test_versions(pod, version, checks):
    assert find_checks(pod, "restricted", version) == checks


def wrap(kind, pod, *, job_metadata=None):
    template = {"metadata": pod["metadata"], "spec": pod["spec"]}
    spec = {"template": template}
    if kind == "CronJob":
        spec = {"schedule": "@daily", "jobTemplate": {"metadata": job_metadata, "spec": spec}}
    return {"kind": kind, "metadata": {"name": "web"}, "spec": spec}


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("Pod", "spec.hostNetwork"),
        ("Deployment", "spec.template.spec.hostNetwork"),
        ("DaemonSet", "spec.template.spec.hostNetwork"),
        ("StatefulSet", "spec.template.spec.hostNetwork"),
        ("ReplicaSet", "spec.template.spec.hostNetwork"),
        ("ReplicationController", "spec.template.spec.hostNetwork"),
        ("Job", "spec.template.spec.hostNetwork"),
        ("CronJob", "spec.jobTemplate.spec.template.spec.hostNetwork"),
    ],
)
def test_paths_by_kind(kind, path):
    pod = make_pod(hostNetwork=True)
    violations = judge(pod if kind == "Pod" else wrap(kind, pod), "baseline")
    assert format_violations("no-host", Standard("baseline", "latest"), violations, kind) == (
        "Validation rule 'no-host' failed. It violates PodSecurity \"baseline:latest\":"
        f" (Forbidden reason: host namespaces, field error list: [{path} is forbidden,"
        " forbidden values found: true])"
    )


MESSAGES = [
    (
        make_pod({"name": "a"}, make_container("b", context={"allowPrivilegeEscalation": True})),
        "allowPrivilegeEscalation != false",
        "spec.containers[0].securityContext.allowPrivilegeEscalation: Required value,"
        " spec.containers[1].securityContext.allowPrivilegeEscalation is forbidden,"
        " forbidden values found: true",
    ),
    (
        with_context(allowPrivilegeEscalation=None),
        "allowPrivilegeEscalation != false",
        "spec.containers[0].securityContext.allowPrivilegeEscalation is forbidden,"
        " forbidden values found: nil",
    ),
    (
        with_context(capabilities={"drop": ["KILL", "CHOWN"], "add": ["B", "A", "B"]}),
        "unrestricted capabilities",
        "spec.containers[0].securityContext.capabilities.drop is forbidden,"
        " forbidden values found: [CHOWN KILL],"
        " spec.containers[0].securityContext.capabilities.add is forbidden,"
        " forbidden values found: [A B]",
    ),
    (
        with_pod_context(runAsNonRoot=False),
        "runAsNonRoot != true",
        "spec.securityContext.runAsNonRoot is forbidden, forbidden values found: false",
    ),
    (
        with_context(runAsUser=0),
        "runAsUser=0",
        "spec.containers[0].securityContext.runAsUser is forbidden, forbidden values found: 0",
    ),
    (with_volume(hostPath={}), "hostPath volumes", "spec.volumes[0].hostPath: Forbidden"),
    (
        with_volume(hostPath={"path": "/var"}),
        "hostPath volumes",
        "spec.volumes[0].hostPath is forbidden, forbidden values found: /var",
    ),
    (with_volume(), "restricted volume types", "spec.volumes[0].unknown: Forbidden"),
    (
        make_pod(make_container(ports=[{"hostPort": 80}, {}, {"hostPort": 443}])),
        "hostPort",
        "spec.containers[0].ports[0].hostPort is forbidden, forbidden values found: 80,"
        " spec.containers[0].ports[2].hostPort is forbidden, forbidden values found: 443",
    ),
    (
        make_pod(annotations={"container.apparmor.security.beta.kubernetes.io/app": "unconfined"}),
        "forbidden AppArmor profile",
        "spec.template.metadata.annotations[container.apparmor.security.beta.kubernetes.io/app]"
        " is forbidden, forbidden values found: unconfined",
    ),
    (
        make_pod(make_container(readinessProbe={"httpGet": {"host": "x"}})),
        "probe or lifecycle host",
        "",
    ),
]


@pytest.mark.parametrize(("pod", "reason", "errors"), MESSAGES)
def test_messages(pod, reason, errors):
    message = format_violations("r", Standard("restricted", ""), judge(pod), "Pod")
    assert message.startswith(
        "Validation rule 'r' failed. It violates PodSecurity \"restricted:\": ("
    )
    assert f"(Forbidden reason: {reason}, field error list: [{errors}])" in message


TWO_PORTS = make_pod(
    make_container("a", "nginx:1", ports=[{"hostPort": 80}, {"hostPort": 8080}]),
    make_container("b", "redis:7", ports=[{"hostPort": 6379}]),
)
NO_SECCOMP = make_pod(
    make_container("a", context={"seccompProfile": None}),
    make_container("b", "redis", context={"seccompProfile": None}),
)


def fields_left(pod, *excludes, level="restricted"):
    return [
        error.path for violation in judge(pod, level, "", excludes) for error in violation.errors
    ]


EXCLUSIONS = [
    (make_pod(hostPID=True), [ControlExclusion("Host Namespaces")], []),
    (make_pod(hostPID=True), [ControlExclusion("Sysctls")], ["spec.hostPID"]),
    (
        make_pod(hostPID=True, hostIPC=True),
        [ControlExclusion("Host Namespaces", (), "spec.hostPID", ("true",))],
        ["spec.hostIPC"],
    ),
    (TWO_PORTS, [ControlExclusion("Host Ports", ("*",))], []),
    (TWO_PORTS, [ControlExclusion("Host Ports", ("nginx:*",))], ["spec.containers[1].ports[0].hostPort"]),
    (
        TWO_PORTS,
        [ControlExclusion("Host Ports", ("nginx:*",)), ControlExclusion("Host Ports", ("redis:?",))],
        [],
    ),
    (
        TWO_PORTS,
        [ControlExclusion("Host Ports", ("*",), "spec.containers[*].ports[*].hostPort", ("80", "6*"))],
        ["spec.containers[0].ports[1].hostPort"],
    ),
    (
        TWO_PORTS,
        [ControlExclusion("Host Ports", ("*",), "spec.initContainers[*].ports[*].hostPort", ("*",))],
        [
            "spec.containers[0].ports[0].hostPort",
            "spec.containers[0].ports[1].hostPort",
            "spec.containers[1].ports[0].hostPort",
        ],
    ),
    (
        with_context(capabilities={"drop": ["ALL"], "add": ["KILL", "CHOWN"]}),
        [
            ControlExclusion(
                "Capabilities",
                ("nginx",),
                "spec.containers[*].securityContext.capabilities.add",
                ("KILL", "CH*"),
            )
        ],
        [],
    ),
    (
        with_context(capabilities={"drop": ["ALL"], "add": ["KILL", "CHOWN"]}),
        [
            ControlExclusion(
                "Capabilities",
                ("nginx",),
                "spec.containers[*].securityContext.capabilities.add",
                ("KILL",),
            )
        ],
        ["spec.containers[0].securityContext.capabilities.add"],
    ),
    # Without images the pod is judged with a single silent container: it cancels one error only.
    (NO_SECCOMP, [ControlExclusion("Seccomp")], ["spec.containers[1].securityContext.seccompProfile.type"]),
    (NO_SECCOMP, [ControlExclusion("Seccomp"), ControlExclusion("Seccomp")], []),
    (NO_SECCOMP, [ControlExclusion("Seccomp", ("*",))], []),
    (
        with_pod_context(seccompProfile={"type": "Unconfined"}),
        [ControlExclusion("Seccomp", ("*",))],
        ["spec.securityContext.seccompProfile.type"] * 2,
    ),
    (with_volume(hostPath={"path": "/a"}), [ControlExclusion("HostPath Volumes")], ["spec.volumes[0].hostPath"]),
    (
        with_volume(hostPath={"path": "/a"}),
        [ControlExclusion("HostPath Volumes"), ControlExclusion("Volume Types")],
        [],
    ),
    (with_volume(nfs={}), [ControlExclusion("Volume Types", (), "spec.volumes[*].nfs", ("x",))], []),
    (with_pod_context(runAsUser=0), [ControlExclusion("Running as Non-root user")], []),
    (
        make_pod(make_container("a", context={"privileged": True}), make_container("b")),
        [ControlExclusion("Privileged Containers", ("redis",))],
        ["spec.containers[0].securityContext.privileged"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("pod", "excludes", "left"), EXCLUSIONS)
def test_exclusions(pod, excludes, left):
    assert fields_left(pod, *excludes) == left


@pytest.mark.parametrize(("pod", "excludes", "left"), EXCLUSIONS)
def test_exceptions_tolerate_the_same(pod, excludes, left):
    hear = compile_tolerance("restricted", "latest", excludes)
    remaining = hear(pod, judge(pod))
    assert [error.path for violation in remaining for error in violation.errors] == left


def test_every_control_can_be_excluded():
    for name in CONTROL_NAMES:
        for images in ((), ("*",)):
            try:
                compile_pod_security("restricted", "latest", [ControlExclusion(name, images)])
                break
            except CompileError:
                continue
        else:
            pytest.fail(f"{name} cannot be excluded")
    assert len(CONTROL_NAMES) == 15


@pytest.mark.parametrize(
    ("level", "version", "exclude", "message"),
    [
        ("Baseline", "", (), "privileged, baseline, restricted"),
        ("baseline", "1.25", (), "v1.19"),
        ("baseline", "v1.025", (), "v1.19"),
        ("baseline", "v2.1", (), "latest"),
        ("baseline", "v1.٣", (), "latest"),
        ("restricted", "", (ControlExclusion("Capability", ("*",)),), "/proc Mount Type"),
        ("restricted", "", (ControlExclusion("Capabilities"),), "images must be specified"),
        ("restricted", "", (ControlExclusion("Sysctls", ("*",)),), "images must not be specified"),
        ("restricted", "", (ControlExclusion("Seccomp", (), "spec.x"),), "values"),
        ("restricted", "", (ControlExclusion("Seccomp", (), "", ("x",)),), "restrictedField"),
        (
            "baseline",
            "",
            (ControlExclusion("Volume Types"),),
            "not a control of the level baseline",
        ),
    ],
)
def test_compile_errors(level, version, exclude, message):
    with pytest.raises(CompileError, match=message):
        compile_pod_security(level, version, exclude)


@pytest.mark.parametrize(
    "resource",
    [
        None,
        [],
        "Pod",
        {},
        {"kind": ["Pod"]},
        {"kind": "Service"},
        {"kind": "Pod", "spec": []},
        {"kind": "Pod", "metadata": {"annotations": {"a": 1}}},
        {"kind": "Pod", 1: 2},
        {"kind": "Deployment", "spec": {"template": "x"}},
        {"kind": "CronJob", "spec": {"jobTemplate": {"spec": 1}}},
        make_pod(hostNetwork="true"),
        make_pod(containers={}),
        make_pod(make_container(ports=[{"hostPort": "80"}])),
        make_pod(make_container(ports=[{"hostPort": 2**40}])),
        make_pod(make_container(ports=[{"hostPort": float("nan")}])),
        make_pod(make_container(env=[{"name": "A", "value": 5}])),
        with_context(privileged="yes"),
        with_context(runAsUser="0"),
        with_context(capabilities=["ALL"]),
        with_context(capabilities={"drop": "ALL"}),
        with_context(seccompProfile="RuntimeDefault"),
        with_pod_context(sysctls=[{"name": "a", "value": 1}]),
        make_pod("nginx"),
    ],
)
def test_malformed_is_an_error(resource):
    with pytest.raises(EvaluationError):
        judge(resource)


def test_annotations_of_a_cron_job_are_those_of_its_job():
    bad = {"annotations": {"container.apparmor.security.beta.kubernetes.io/app": "unconfined"}}
    assert find_checks(wrap("CronJob", make_pod(), job_metadata=bad)) == ["appArmorProfile"]


def test_report_properties():
    pod = make_pod(
        make_container("a", context={"capabilities": None}), make_container("b"), hostPID=True
    )
    properties = describe_violations(
        Standard("restricted", "v1.30"), judge(pod), {"a": "x/nginx:1"}
    )
    assert properties == {
        "standard": "restricted",
        "version": "v1.30",
        "controls": "capabilities_restricted,hostNamespaces",
        "controlsJSON": '[{"ID":"capabilities_restricted","Name":"Capabilities",'
        '"Images":["x/nginx:1"]},{"ID":"hostNamespaces","Name":"Host Namespaces","Images":null}]',
    }
    assert describe_violations(Standard("restricted", ""), (), {}) == {}


def test_details_name_containers():
    bad = {"privileged": True}
    pod = make_pod(make_container("a", context=bad), make_container("b", context=bad))
    (violation,) = judge(pod, "baseline")
    assert violation.detail == 'containers "a", "b" must not set securityContext.privileged=true'
