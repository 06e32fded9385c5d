"""Which families, commands and add-ons are built in? Modules by their names, imported when used.

No tier imports an add-on, and start-up imports nothing that is not needed. Every name here is
imported by a test.
"""

from functools import cache
from importlib import import_module
from typing import Any

# API group -> the module that declares its kinds, in the order in which policies are evaluated.
FAMILIES = {
    "kyverno.io": "lictor.core.families.classic",
    "admissionregistration.k8s.io": "lictor.core.families.admission_policy",
    "policies.kyverno.io": "lictor.core.families.kyverno_cel",
    "policies.kubewarden.io": "lictor.addons.kubewarden.family",
}
# Commands of add-ons: module, name there, and what the help says.
COMMANDS = {
    "convert": (
        "lictor.addons.convert.command",
        "convert",
        "Turn classic policies into CEL policies.",
    ),
    "lsp": (
        "lictor.addons.editor.command",
        "lsp",
        "Run the language server for editors.",
    ),
    "migrate": (
        "lictor.addons.migrate.command",
        "migrate",
        "Replace Kyverno, and show what would differ.",
    ),
    "policy-server": (
        "lictor.addons.kubewarden.server.command",
        "policy_server",
        "Serve Kubewarden's policies.",
    ),
    "up": (
        "lictor.addons.apiserver.up",
        "up",
        "Run a local cluster to try policies.",
    ),
    "wasm": (
        "lictor.addons.kubewarden.cli",
        "wasm",
        "Run and share Kubewarden's policies in Wasm.",
    ),
    "web": (
        "lictor.addons.web.command",
        "web",
        "Serve the web UI with reports.",
    ),
}
# What a tier, or another add-on, uses of an add-on.
PARTS = {
    "fleet": "lictor.addons.fleet.run:begin_fleet",
    "html report": "lictor.addons.web.html_report:HtmlReport",
    "page report": "lictor.addons.web.html_report:build_page_report",
    "page options": "lictor.addons.web.options:WebOptions",
    "page server": "lictor.addons.web.service:PageServer",
    "module store": "lictor.addons.kubewarden.modules.module_store:open_from_environment",
    "own policy server": "lictor.addons.kubewarden.controller.rollout:OwnServer",
    "policy servers": "lictor.addons.kubewarden.controller.reconcile:build_policy_servers_loop",
    "policy release": "lictor.addons.kubewarden.controller.webhooks:let_go_of_policies",
}


@cache
def import_name(reference: str) -> Any:
    """What "package.module:name" stands for."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def load_part(name: str) -> Any:
    """A part of an add-on that PARTS names."""
    return import_name(PARTS[name])
