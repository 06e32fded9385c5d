"""Which families, commands and add-ons are built in? Modules by their names, imported when used.

No tier imports an add-on, and start-up imports nothing that is not needed. Every name here is
imported by a test.
"""

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lictor.core.families.family import Family

# API group -> the module with its FAMILY, in the order in which policies are evaluated.
FAMILIES = {
    "kyverno.io": "lictor.core.families.classic",
    "admissionregistration.k8s.io": "lictor.core.families.admission_policy",
    "policies.kyverno.io": "lictor.core.families.kyverno_cel",
    "policies.kubewarden.io": "lictor.addons.kubewarden",
}
# Commands of add-ons: module, name there, and the line in the help.
COMMANDS = {
    "compare": (
        "lictor.addons.migrate.compare_command",
        "compare",
        "Compare results with those of another program.",
    ),
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
}


def load_family(group: str) -> "Family":
    """The built-in family with the kinds of an API group."""
    family: Family = import_module(FAMILIES[group]).FAMILY
    return family


@cache
def load_part(name: str) -> Any:
    """A part of an add-on that PARTS names."""
    module, _, attribute = PARTS[name].partition(":")
    return getattr(import_module(module), attribute)
