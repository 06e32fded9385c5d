"""An installation -> all its manifests, in an order in which they can be applied."""

from collections.abc import Callable
from functools import cache, partial

from lictor.core.raw import Json, JsonObject
from lictor.install.arguments import add_extra_flags, build_flags, write_text
from lictor.install.crds import OPEN_REPORTS, build_crd, list_crd_kinds
from lictor.install.installation import (
    Installation,
    build_labels,
    check_installation,
    choose_values,
)
from lictor.install.manifest_files import load_manifests
from lictor.install.monitoring import build_monitoring
from lictor.install.placeholders import (
    ArgumentList,
    ConditionalPart,
    Filler,
    fill,
    fill_text,
)
from lictor.install.rights import build_rights, list_secret_names, name_account
from lictor.install.settings_map import build_metrics_settings, build_settings, check_settings
from lictor.install.values import CONTROLLERS, find_value, name_controller, name_kind

# A controller as the API server knows it.
_USER = "system:serviceaccount:<<namespace>>:<<account {}>>"
_ORDER = {
    "ServiceMonitor": 0,
    "PrometheusRule": 1,
    "ConfigMap": 2,
    "Service": 3,
    "NetworkPolicy": 4,
    "PodDisruptionBudget": 4,
    "HorizontalPodAutoscaler": 5,
    "Deployment": 6,
}


def build_manifests(installation: Installation) -> list[JsonObject]:
    """Everything that an installation is made of.

    Webhook configurations and certificates are not among it: the controllers make them when they
    are ready, so that the API server never calls a webhook that does not answer.
    """
    check_installation(installation)
    values = choose_values(installation)
    check_settings(find_value(values, "config.settings"))
    filler = _build_filler(installation, values)
    namespace, *others = fill([*load_manifests("namespace.yaml"), *list_templates()], filler)
    return [namespace, *build_kinds(values), *others]


@cache
def list_templates() -> list[Json]:
    """All objects but the kinds and the Namespace, with placeholders for what is chosen."""
    workloads = load_manifests("admission.yaml")
    for controller in CONTROLLERS[1:]:
        words = {"VALUES": name_controller(controller), "CONTROLLER": controller}
        workloads += load_manifests("controller.yaml", words)
    workloads += build_monitoring()
    return [
        *build_rights(),
        *load_manifests("settings.yaml"),
        *sorted(workloads, key=_rank),
        *(ConditionalPart(("web.enabled",), each) for each in load_manifests("web.yaml")),
    ]


def _rank(template: Json) -> int:
    """Deployments come last: their Pods need the other objects."""
    part = template.part if isinstance(template, ConditionalPart) else template
    return _ORDER[part["kind"]]


def _build_filler(installation: Installation, values: JsonObject) -> Filler:
    find: Callable[[str], Json] = partial(find_value, values)
    authority, serving = list_secret_names(installation)
    filler = Filler(
        values=values,
        texts={
            "fullname": lambda _: installation.prefix,
            "namespace": lambda _: installation.namespace,
            "image": lambda _: _name_image(installation, values),
            "account": partial(name_account, values, installation.names),
            "authority": lambda _: authority,
            "serving": lambda _: serving,
            "value": lambda path: write_text(find(path)),
        },
        labels=partial(build_labels, installation),
        arguments=lambda part: _build_arguments(installation, filler, part),
        maps={
            "settings": lambda: build_settings(
                find("config"), installation.prefix, installation.namespace
            ),
            "metrics-settings": lambda: build_metrics_settings(find("metricsConfig")),
        },
    )
    return filler


def _name_image(installation: Installation, values: JsonObject) -> str:
    image = values["image"]
    registry = image.get("registry") or find_value(values, "global.image.registry")
    name = f"{registry}/{image['repository']}" if registry else str(image["repository"])
    if image.get("digest"):
        return f"{name}@{image['digest']}"
    return f"{name}:{image.get('tag') or installation.version}"


def _build_arguments(installation: Installation, filler: Filler, part: ArgumentList) -> list[str]:
    users = {
        f"{controller}ServiceAccountName": fill_text(_USER.format(controller), filler)
        for controller in ("background", "reports", "cleanup")
    }
    flags = {**build_flags(filler.values, part), **users}
    own = {name: fill_text(text, filler) for name, text in part.own.items()}
    flags = {**add_extra_flags(flags, filler.values, part), **own}
    return [
        *part.command,
        f"--namespace={installation.namespace}",
        f"--prefix={installation.prefix}",
        *(f"--{name}={text}" for name, text in sorted(flags.items())),
    ]


# --- the kinds


def build_kinds(values: JsonObject) -> list[JsonObject]:
    """The definitions of the kinds that are wanted."""
    crds = values["crds"]
    if not crds["install"]:
        return []
    wanted = [
        build_crd(kind, warns=find_value(values, "features.deprecationWarnings.enabled"))
        for kind in list_crd_kinds()
        if find_value(values, name_kind(kind.group, kind.plural))
        and (kind.group != OPEN_REPORTS or wants_open_reports(values))
    ]
    more = {"labels": crds.get("customLabels"), "annotations": crds.get("annotations")}
    added = {name: value for name, value in more.items() if value}
    return [{**each, "metadata": {**each["metadata"], **added}} for each in wanted]


def wants_open_reports(values: JsonObject) -> bool:
    """Are the kinds of openreports.io installed?"""
    return any(find_value(values, f"openreports.{name}") for name in ("enabled", "installCrds"))
