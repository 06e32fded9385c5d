# ruff: noqa: E501  (long names of modules)
"""Moves src/lictor to the layout of three tiers: files, imports, names in texts, tests, paths.

    python scripts/move_layout.py

One table of module names, longest prefix first; all names are rewritten in one pass, because
`lictor.kubernetes` is an old name and a new one. Deleted when all work is based on the new layout.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "lictor"

# Old module or package -> new one, below `lictor`. What is not named moves with its package.
MODULES = """
assembly                      core.assembly
compile                       core.compile
compile.cel.deferral          core.compile.deferral
compile.cel.selection         core.compile.selection
crypto                        core.crypto
engine                        core.engine
errors                        core.errors
evaluate                      core.evaluate
evaluations                   core.evaluations
families                      core.families
files                         core.files
garbage                       core.garbage
kubernetes                    core.facts
lang                          core.lang
load                          core.load
match                         core.match
model                         core.model
ports                         core.ports
raw                           core.raw
records                       core.records
release                       core.release
report                        core.report
signatures                    core.signatures

http                          http
cluster.keys                  http.keys
cluster.serving_certificate   http.serving_certificate

cluster                       kubernetes
cluster.compile_turns         kubernetes.compile_turns

registry                      images

cluster.followed_objects      lookups.followed_objects
cluster.global_context        lookups.global_context
cluster.lookups               lookups.lookups
cluster.registry_access       lookups.registry_access
cluster.service_calls         lookups.service_calls

cluster.compile_trial         policies.compile_trial
cluster.helper_lane           policies.helper_lane
cluster.helper_process        policies.helper_process
cluster.policy_compiler       policies.policy_compiler
cluster.routes                policies.routes
cluster.store                 policies.store
cluster.stored_exceptions     policies.stored_exceptions

lint                          lint

serve                         webhook

control                             controllers
control.background.coordinator      controllers.background
control.background.mutate_existing  controllers.mutate_existing
control.background.update_requests  controllers.update_requests
control.background.wiring           controllers.background_wiring
control.reports.writer              controllers.report_writer
control.status.installation         controllers.installation_status
control.webhooks                    controllers.webhook_configuration
cluster.cleanup_policies            controllers.cleanup.policies
cluster.existing_objects            controllers.existing_objects
convert.native_cel                  controllers.native_policies.native_cel
convert.native_classic              controllers.native_policies.native_classic
convert.native_objects              controllers.native_policies.native_objects

cluster.manifests             install

cli                           cli
offline                       cli.inputs
offline.apply_outputs         cli.apply_outputs
offline.apply_plan            cli.apply_plan
offline.apply_run             cli.apply_run
offline.coverage              cli.coverage
offline.deletions             cli.deletions
offline.explanations          cli.explanations
offline.field_demands         cli.field_demands
offline.generate_drafts       cli.generate_drafts
offline.image_policies        cli.image_policies
offline.image_verification    cli.image_verification
offline.lint_files            cli.lint_files
offline.lint_settings         cli.lint_settings
offline.mutants               cli.mutants
offline.policy_drafts         cli.policy_drafts
offline.reach                 cli.reach
offline.repairs               cli.repairs
offline.responses             cli.responses
offline.result_locations      cli.result_locations
offline.test_cases            cli.test_cases
offline.test_results          cli.test_results
offline.test_run              cli.test_run
offline.verification_demands  cli.verification_demands
offline.watched_files         cli.watched_files
offline.fleet.settings        cli.fleet_settings

apiserver                     addons.apiserver
cli.up                        addons.apiserver.up
apiserver.access.service_account_tokens  addons.apiserver.service_account_tokens
apiserver.admission.submission           addons.apiserver.submission
apiserver.kinds.decoding                 addons.apiserver.decoding

families.kubewarden           addons.kubewarden.family
lang.wasm                     addons.kubewarden.runtime
lang.wasm.module              core.lang.wasm_module
lang.wasm.records             core.lang.wasm_records
lang.wasm.rego_builtins       core.lang.rego
lang.wasm.rego_values         core.lang.rego.values
registry.compile_process      addons.kubewarden.modules.compile_process
registry.compiled_modules     addons.kubewarden.modules.compiled_modules
registry.module_address       addons.kubewarden.modules.module_address
registry.module_folder        addons.kubewarden.modules.module_folder
registry.module_runtime       addons.kubewarden.modules.module_runtime
registry.module_sources       addons.kubewarden.modules.module_sources
registry.module_store         addons.kubewarden.modules.module_store
registry.module_verification  addons.kubewarden.modules.module_verification
cluster.module_fetching       addons.kubewarden.modules.module_fetching
cluster.policy_modules        addons.kubewarden.modules.policy_modules
cluster.server_modules        addons.kubewarden.modules.server_modules
serve.policy_server           addons.kubewarden.server
cli.policy_server             addons.kubewarden.server.command
control.policy_servers        addons.kubewarden.controller
cli.wasm                      addons.kubewarden.cli
offline.wasm                  addons.kubewarden.cli
offline.wasm.modules          addons.kubewarden.cli.chosen_modules
report.module_metadata        addons.kubewarden.cli.module_metadata

web                           addons.web
cli.web                       addons.web.command
offline.html_report           addons.web.html_report

convert                       addons.convert
cli.convert                   addons.convert.command
offline.conversions           addons.convert.conversions

cluster.migration             addons.migrate
cli.migrate                   addons.migrate.command
cli.migrate_output            addons.migrate.command_output
serve.comparison              addons.migrate.comparison

editor                        addons.editor
cli.lsp                       addons.editor.command

offline.fleet                 addons.fleet
"""

# Package files that have no place any more.
DROPPED = ("compile/cel/__init__.py", "control/background/__init__.py", "offline/wasm/__init__.py")
CREATED = {
    "core": "Policies become programs, and programs answer requests. No network, threads or event "
    "loops.",
    "lookups": "What policies look up, answered by a live cluster, its services and registries.",
    "policies": "How a change of a policy comes into force: read, tried, compiled, published.",
    "addons": "Optional parts. They use the tiers below; no tier imports them, nor do they each "
    "other.",
    "addons/kubewarden": "Kubewarden: its policies in WebAssembly, their modules, servers and "
    "commands.",
    "addons/kubewarden/modules": "Modules of policies in WebAssembly: fetched, verified, kept and "
    "compiled.",
}

# Old folder or file below tests/unit -> new one.
TESTS = """
apiserver                               addons/apiserver
cli/test_convert.py                     addons/convert
cli/test_convert_command.py             addons/convert
cli/test_lsp_command.py                 addons/editor
cli/test_up.py                          addons/apiserver
cli/test_wasm_command.py                addons/kubewarden/cli
cli/test_web_command.py                 addons/web
cluster                                 kubernetes
cluster/manifests                       install
cluster/migration                       addons/migrate
cluster/test_alerts.py                  install
cluster/test_compile_trial.py           policies
cluster/test_followed_objects.py        lookups
cluster/test_keys.py                    http
cluster/test_lookups_waiting.py         lookups
cluster/test_module_fetching.py         addons/kubewarden/modules
cluster/test_monitoring.py              install
cluster/test_outbound.py                http
cluster/test_policy_store.py            policies
cluster/test_post_rules.py              lookups
cluster/test_registry_access.py         lookups
cluster/test_routes.py                  policies
cluster/test_server_modules.py          addons/kubewarden/modules
cluster/test_service_calls.py           lookups
cluster/test_stored_exceptions.py       policies
compile                                 core/compile
control                                 controllers
control/test_policy_server_objects.py   addons/kubewarden/controller
control/test_policy_server_reconciler.py  addons/kubewarden/controller
convert                                 addons/convert
convert/test_convert_native.py          controllers
editor                                  addons/editor
evaluate                                core/evaluate
families                                core/families
families/kubewarden                     addons/kubewarden/family
families/test_host_calls.py             addons/kubewarden/family
families/test_host_sessions.py          addons/kubewarden/family
lang                                    core/lang
lang/test_resource_names.py             core/facts
lang/wasm                               addons/kubewarden/runtime
load                                    core/load
match                                   core/match
model                                   core/model
offline                                 cli/inputs
offline/test_coverage.py                cli
offline/test_fleet_addresses.py         addons/fleet
offline/test_fleet_clusters.py          addons/fleet
offline/test_fleet_dispatch.py          addons/fleet
offline/test_fleet_ray.py               addons/fleet
offline/test_fleet_run.py               addons/fleet
offline/test_image_verification.py      cli
offline/test_wasm_metadata_files.py     addons/kubewarden/cli
offline/test_wasm_policies.py           addons/kubewarden/cli
offline/test_wasm_scaffolds.py          addons/kubewarden/cli
registry                                images
registry/test_compiled_modules.py       addons/kubewarden/modules
registry/test_module_addresses.py       addons/kubewarden/modules
registry/test_module_folder.py          addons/kubewarden/modules
registry/test_module_sources.py         addons/kubewarden/modules
registry/test_module_store.py           addons/kubewarden/modules
registry/test_policy_registry_calls.py  addons/kubewarden/family
report                                  core/report
serve                                   webhook
serve/policy_serving.py                 addons/kubewarden/server
serve/test_certificate.py               http
serve/test_comparison.py                addons/migrate
serve/test_policies_file.py             addons/kubewarden/server
serve/test_policy_server_app.py         addons/kubewarden/server
serve/test_policy_server_faults.py      addons/kubewarden/server
serve/test_policy_server_process.py     addons/kubewarden/server
serve/test_wasm_host_calls.py           addons/kubewarden/family
signatures                              core/signatures
signatures/test_module_verification.py  addons/kubewarden/modules
signatures/test_policy_image_calls.py   addons/kubewarden/family
test_engine.py                          core
test_files.py                           core
test_http.py                            http
test_http_client.py                     http
test_http_strangers.py                  http
test_listener.py                        http
web                                     addons/web
"""

# Names that are no modules: groups of entry points.
NO_MODULES = {"lictor.families"}
_UNIT_FOLDERS = (
    '_UNIT / "signatures"), str(_UNIT / "registry")',
    '_UNIT / "core" / "signatures"), str(_UNIT / "images")',
)
# What no rule finds: file (as it is called afterwards), old text, new text.
SPECIAL: tuple[tuple[str, str, str], ...] = (
    ("pyproject.toml", '"web/static/*"', '"addons/web/static/*"'),
    ("pyproject.toml", '"src/lictor/cli/**" = ["T20"]', '"src/lictor/{cli,addons}/**" = ["T20"]'),
    (
        "docs/extending.md",
        "`lictor.families`, `lictor.core.model`",
        "`lictor.core.families`, `lictor.core.model`",
    ),
    (
        "tests/unit/core/model/test_scope.py",
        '("model", "evaluate", "match", "convert", "lang", "families", "compile", "report")',
        '("core/model", "core/evaluate", "core/match", "core/lang", "core/families", '
        '"core/compile", "core/report", "addons/convert", "addons/kubewarden/runtime")',
    ),
    (
        "tests/unit/addons/apiserver/test_one_file_per_kind.py",
        '"apiserver/resources/kite.py"',
        '"addons/apiserver/resources/kite.py"',
    ),
    ("tests/unit/controllers/test_policy_writes.py", "controllers as control", "controllers"),
    ("tests/unit/controllers/test_policy_writes.py", "control.__file__", "controllers.__file__"),
    ("tests/unit/controllers/test_policy_writes.py", "background/mutate_e", "mutate_e"),
    (
        "tests/unit/test_source_size.py",
        '("families/", "cluster/manifests/")',
        '("core/families/", "addons/kubewarden/family/", "install/")',
    ),
    ("src/lictor/cli/logs.py", " INFO control.run ", " INFO controllers.run "),
    ("tests/unit/cli/test_controller_flags.py", " INFO control.x ", " INFO controllers.x "),
    ("tests/unit/cli/test_controller_flags.py", " INFO serve.x ", " INFO webhook.x "),
    ("tests/cluster/test_image_rules.py", *_UNIT_FOLDERS),
    ("tests/cluster/test_image_validating.py", *_UNIT_FOLDERS),
    ("scripts/record_apply.py", "is done to an object of its own;", "is done to its own object;"),
    ("scripts/record_cel.py", "Every row for Kubernetes of", "Each Kubernetes row of"),
    ("scripts/record_cel.py", "error. The answers go to", "error. Answers go to"),
    ("src/lictor/addons/convert/pattern.py", "anchors come before", "anchors precede"),
    (
        "src/lictor/addons/kubewarden/modules/module_store.py",
        "`core.lang.wasm_module.Modules`; as many threads as like may ask",
        "`core.lang.wasm_module.Modules`; many threads may ask",
    ),
    (
        "src/lictor/cli/inputs/programs.py",
        "whatever an address names, fetched when first needed.",
        "what an address names, fetched when first needed.",
    ),
    ("src/lictor/core/lang/cel/host.py", "refuse addresses for which", "refuse those for which"),
)
CONTRACTS = """
[tool.importlinter]
root_package = "lictor"
include_external_packages = true

# The lists of exceptions below may only become shorter: tests/unit/test_layout.py counts them.
[[tool.importlinter.contracts]]
name = "Tiers: core, services, add-ons"
type = "layers"
containers = ["lictor"]
exhaustive = true
layers = [
    "__main__",
    "addons",
    "cli",
    "webhook | controllers | install",
    "policies",
    "lint",
    "lookups",
    "images | kubernetes",
    "http",
    "core",
]
ignore_imports = [
    "lictor.cli.apply -> lictor.addons.fleet.run",
    "lictor.cli.apply_output -> lictor.addons.web.html_report",
    "lictor.cli.apply_outputs -> lictor.addons.web.html_report",
    "lictor.cli.fleet_settings -> lictor.addons.fleet.addresses",
    "lictor.cli.inputs.programs -> lictor.addons.kubewarden.modules.module_sources",
    "lictor.cli.inputs.programs -> lictor.addons.kubewarden.modules.module_store",
    "lictor.cli.inputs.programs -> lictor.addons.kubewarden.modules.module_verification",
    "lictor.controllers.controllers -> lictor.addons.kubewarden.controller.reconcile",
    "lictor.controllers.controllers -> lictor.addons.kubewarden.controller.rollout",
    "lictor.controllers.controllers -> lictor.addons.kubewarden.controller.webhooks",
    "lictor.core.lang.rego.operands -> lictor.addons.kubewarden.runtime.sandbox",
    "lictor.install.removing -> lictor.addons.kubewarden.family.policy_server",
    "lictor.lookups.lookups -> lictor.addons.kubewarden.modules.server_modules",
    "lictor.policies.routes -> lictor.addons.kubewarden.family.policy_server",
    "lictor.policies.store -> lictor.addons.kubewarden.modules.module_fetching",
    "lictor.policies.store -> lictor.addons.kubewarden.modules.policy_modules",
    "lictor.policies.store -> lictor.addons.kubewarden.modules.server_modules",
    "lictor.webhook.capacity -> lictor.addons.kubewarden.runtime.engine",
]

[[tool.importlinter.contracts]]
name = "Add-ons do not import each other"
type = "independence"
modules = ["lictor.addons.*"]
# What a tier imports of an add-on is on the list above.
unmatched_ignore_imports_alerting = "none"
ignore_imports = [
    "lictor.cli.** -> lictor.addons.**",
    "lictor.controllers.** -> lictor.addons.**",
    "lictor.core.** -> lictor.addons.**",
    "lictor.install.** -> lictor.addons.**",
    "lictor.lookups.** -> lictor.addons.**",
    "lictor.policies.** -> lictor.addons.**",
    "lictor.webhook.** -> lictor.addons.**",
    "lictor.addons.apiserver.up.processes -> lictor.addons.web.options",
    "lictor.addons.apiserver.up.processes -> lictor.addons.web.service",
]

[[tool.importlinter.contracts]]
name = "Inside the core, imports point down"
type = "layers"
containers = ["lictor.core"]
exhaustive = true
layers = [
    "report",
    "assembly",
    "load",
    "families",
    "compile | engine | files",
    "evaluate",
    "match",
    "signatures",
    "lang",
    "facts",
    "crypto",
    "ports",
    "model",
    "errors",
    "records",
    "raw | release | garbage | evaluations",
]

[[tool.importlinter.contracts]]
name = "The core does no I/O"
type = "forbidden"
source_modules = [
    "lictor.core.model", "lictor.core.crypto", "lictor.core.lang", "lictor.core.signatures",
    "lictor.core.match", "lictor.core.evaluate", "lictor.core.compile", "lictor.core.families",
    "lictor.core.engine", "lictor.core.report", "lictor.core.ports", "lictor.lint",
    "lictor.addons.convert",
]
forbidden_modules = [
    "asyncio", "socket", "ssl", "subprocess", "threading", "multiprocessing", "http",
    "httpx", "click", "rich",
]
allow_indirect_imports = true
ignore_imports = ["lictor.addons.convert.command -> click"]

[[tool.importlinter.contracts]]
name = "The languages know nothing of policies"
type = "forbidden"
source_modules = ["lictor.core.lang", "lictor.core.crypto"]
forbidden_modules = ["lictor.core.model", "lictor.core.ports"]

[[tool.importlinter.contracts]]
name = "No cycles between siblings"
type = "acyclic_siblings"
ancestors = ["lictor.*"]
ignore_imports = [
    "lictor.addons.apiserver.context -> lictor.addons.apiserver.access.authorization",
    "lictor.addons.apiserver.context -> lictor.addons.apiserver.admission.chain",
    "lictor.addons.apiserver.context -> lictor.addons.apiserver.kinds.catalogue",
    "lictor.addons.apiserver.context -> lictor.addons.apiserver.resources.event",
    "lictor.addons.apiserver.deletion -> lictor.addons.apiserver.writing",
    "lictor.addons.apiserver.kind -> lictor.addons.apiserver.resources.registry",
    "lictor.addons.apiserver.objects -> lictor.addons.apiserver.resources.registry",
    "lictor.addons.apiserver.request -> lictor.addons.apiserver.bodies",
    "lictor.addons.apiserver.resources.cron_job -> lictor.addons.apiserver.controllers.workloads",
    "lictor.addons.apiserver.resources.deployment -> lictor.addons.apiserver.controllers.workloads",
    "lictor.addons.apiserver.resources.job -> lictor.addons.apiserver.controllers.workloads",
    "lictor.addons.apiserver.resources.registry -> lictor.addons.apiserver.controllers.workloads",
    "lictor.addons.apiserver.resources.replica_set -> lictor.addons.apiserver.controllers.workloads",
    "lictor.addons.apiserver.resources.stateful_set -> lictor.addons.apiserver.controllers.workloads",
    "lictor.addons.apiserver.resources.workload_pods -> lictor.addons.apiserver.controllers.workloads",
    "lictor.addons.apiserver.resources.admission -> lictor.addons.apiserver.kinds.cel_rules",
    "lictor.addons.apiserver.resources.custom_resource_definition -> lictor.addons.apiserver.kinds.cel_rules",
    "lictor.addons.apiserver.resources.rbac -> lictor.addons.apiserver.admission.webhooks",
    "lictor.addons.apiserver.admission.webhooks -> lictor.addons.apiserver.admission.policy_bindings",
    "lictor.addons.kubewarden.runtime.sandbox -> lictor.addons.kubewarden.runtime.linking",
    "lictor.addons.kubewarden.server.environment -> lictor.addons.kubewarden.server.cluster_questions",
    "lictor.cli.inputs.shard_finder -> lictor.cli.inputs.item_shards",
    "lictor.core.load.yaml -> lictor.core.load.json_stream",
    "lictor.http.server -> lictor.http.connection",
    "lictor.kubernetes.kubeconfig -> lictor.kubernetes.config",
]
"""
TEXT_FILES = (
    *("*.py", "*.md", "*.toml", "*.txt", "*.ini", "*.sh", "*.yaml", "*.yml", "*.json", "*.tpl"),
    *("Makefile", "Dockerfile", "run"),
)
LEFT_ALONE = {"CHANGELOG.md", "scripts/move_layout.py"}


def read_table(text: str) -> dict[str, str]:
    """The rows of a table; longer names come first."""
    rows = [line.split() for line in text.splitlines() if line.strip()]
    return {old: new for old, new in sorted(rows, key=lambda row: -len(row[0]))}


def find_new(name: str, table: dict[str, str], separator: str) -> str:
    """The new name of an old one: by itself, or by the package that it is in."""
    for old, new in table.items():
        if name == old:
            return new
        if name.startswith(old + separator):
            return new + name[len(old) :]
    return name


class Layout:
    """Where everything was, and where it goes."""

    def __init__(self) -> None:
        self.modules = read_table(MODULES)
        self.files = {path: self._move_file(path) for path in self._list_sources()}
        self.old_modules = {
            ".".join(Path(path).with_suffix("").parts).removesuffix(".__init__")
            for path in self.files
            if path.endswith(".py")
        }
        self.folders = {str(each) for path in self.files for each in Path(path).parents} - {"."}
        self.test_table = read_table(TESTS)
        unit = ROOT / "tests" / "unit"
        self.tests = {
            str(path.relative_to(unit)): self.move_test(path.relative_to(unit))
            for path in sorted(unit.rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts
        }
        self.test_folders = {str(each) for path in self.tests for each in Path(path).parents}

    def _list_sources(self) -> list[str]:
        return [
            str(path.relative_to(SOURCE))
            for path in sorted(SOURCE.rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts
        ]

    def _move_file(self, path: str) -> str:
        file = Path(path)
        if path in DROPPED:
            return ""
        if file.suffix == ".py" and file.name != "__init__.py":
            name = ".".join(file.with_suffix("").parts)
            if name not in {"__main__"}:
                return self.move_module(name).replace(".", "/") + ".py"
            return path
        folder = ".".join(file.parent.parts)
        return str(Path(self.move_module(folder).replace(".", "/"), file.name))

    def move_module(self, name: str) -> str:
        """A module or package below lictor, by its new name."""
        return find_new(name, self.modules, ".")

    def move_path(self, path: str) -> str | None:
        """A file or folder below src/lictor by its new path; None where there is none."""
        path = path.rstrip("/")
        if path in self.files:
            return self.files[path]
        if path in self.folders:
            return self.move_module(path.replace("/", ".")).replace(".", "/")
        return None

    def move_test(self, path: Path) -> str:
        """A file below tests/unit."""
        own = self.test_table.get(str(path))
        if own is not None:
            return f"{own}/{path.name}"
        return find_new(str(path), self.test_table, "/")

    def move_test_path(self, path: str) -> str | None:
        """A file or folder below tests/unit; None where there is none."""
        path = path.rstrip("/")
        if path in self.tests:
            return self.tests[path]
        return find_new(path, self.test_table, "/") if path in self.test_folders else None

    def move_any(self, path: Path) -> Path:
        """Any path of the project."""
        for base, move in (("src/lictor", self.move_path), ("tests/unit", self.move_test_path)):
            if path.is_relative_to(base) and str(path) != base:
                found = move(str(path.relative_to(base)))
                return path if found is None else Path(base, found)
        return path


class Rewriter:
    """Text of the old layout -> text of the new one."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._is_glossary = False
        self._dotted = re.compile(r"(?<![\w./@-])lictor((?:\.[A-Za-z_]\w*)+)")
        self._quoted = re.compile(r"`([a-z_]+(?:\.\w+)+)`")
        self._from = re.compile(
            r"^([ \t]*)from (lictor[\w.]*) import (\([^)]*\)|[^(\n#]+)([ \t]*#[^\n]*)?$", re.M
        )
        self._path = re.compile(
            r"(?<![\w/.-])((?:\.\./)*)((?:src/)?lictor/)?([a-z_]+(?:/\w+)*(?:\.\w+)?)"
        )
        self._unit = re.compile(r"(?<![\w.-])tests/unit/([\w/]+(?:\.\w+)?)")
        self._here = re.compile(
            r'Path\(__file__\)(?:\.parents\[(\d)\]|((?:\.parent)+))((?: / "[^"]+")*)'
        )

    def rewrite(self, text: str, path: Path, new_path: Path) -> str:
        """One file; `path` is where it was below the project."""
        self._is_glossary = path.name == "glossary.md"
        if path.suffix == ".py":
            text = self._here.sub(lambda found: self._move_here(found, path, new_path), text)
            text = self._from.sub(self._move_from, text)
        text = self._dotted.sub(self._move_dotted, text)
        if path.suffix == ".py" or path.is_relative_to("docs/decisions"):
            text = self._quoted.sub(self._move_quoted, text)
        text = self._unit.sub(self._move_unit, text)
        return self._path.sub(self._move_path, text)

    def _move_dotted(self, found: re.Match[str]) -> str:
        if found[0].startswith("lictor.__new__."):
            return "lictor." + found[0].removeprefix("lictor.__new__.")
        if found[0] in NO_MODULES:
            return found[0]
        moved = self._move_name(found[1][1:])
        return found[0] if moved is None else f"lictor.{moved}"

    def _move_quoted(self, found: re.Match[str]) -> str:
        if found[1].partition(".")[0] == "lictor" or found[1].count(".") < 2:
            return found[0]
        moved = self._move_name(found[1])
        return found[0] if moved is None else f"`{moved}`"

    def _move_name(self, name: str) -> str | None:
        words = name.split(".")
        for count in range(len(words), 0, -1):
            module = ".".join(words[:count])
            if module in self._layout.old_modules:
                return ".".join((self._layout.move_module(module), *words[count:]))
        return None

    def _move_from(self, found: re.Match[str]) -> str:
        """`from package import module`, where modules of one package go to several."""
        indent, package, names, comment = found[1], found[2], found[3], found[4] or ""
        parent = package.removeprefix("lictor").removeprefix(".")
        listed = [name.strip() for name in names.strip("() \n").split(",") if name.strip()]
        parents: dict[str, list[str]] = {}
        for name in listed:
            module, _, alias = name.partition(" as ")
            full = f"{parent}.{module}".removeprefix(".")
            new_parent, leaf = self._layout.move_module(parent) if parent else "", module
            if full in self._layout.old_modules:
                new_parent, _, leaf = self._layout.move_module(full).rpartition(".")
            shown = f"{leaf} as {alias or module}" if alias or leaf != module else leaf
            parents.setdefault(new_parent, []).append(shown)
        if len(parents) == 1 and [*parents.values()] == [listed]:
            (new_parent,) = parents
            # Marked, so that it is not moved twice.
            return f"{indent}from {_mark(new_parent)} import {names}{comment}"
        return "\n".join(
            f"{indent}from {_mark(home)} import {', '.join(each)}{comment}"
            for home, each in parents.items()
        )

    def _move_unit(self, found: re.Match[str]) -> str:
        moved = self._layout.move_test_path(found[1])
        if moved is None:
            return found[0]
        # A mark against the next step, which would take it for a path of the source.
        return f"tests/unit/{moved}{'/' if found[1].endswith('/') else ''}"

    def _move_path(self, found: re.Match[str]) -> str:
        before, base, path = found[1], found[2] or "", found[3]
        if not base.startswith("src/") and (before or path not in self._layout.files):
            return found[0]
        if not base and "/" not in path and not self._is_glossary:
            return found[0]
        moved = self._layout.move_path(path)
        return found[0] if moved is None else f"{before}{base}{moved}"

    def _move_here(self, found: re.Match[str], path: Path, new_path: Path) -> str:
        number = int(found[1]) if found[1] else found[2].count(".parent") - 1
        if number >= len(path.parents):
            # Outside the project: as many folders further up as the file moved down.
            number += len(new_path.parents) - len(path.parents)
            return f"Path(__file__).parents[{number}]{found[3]}"
        anchor = path.parents[number]
        words = [word.strip(' "') for word in found[3].split(" / ") if word]
        target = self._layout.move_any(Path(anchor, *words))
        if anchor.is_relative_to("tests/unit") and str(anchor) != "tests/unit":
            anchor = self._layout.move_any(anchor)
            if path.parents[number] == path.parent:
                anchor, target = new_path.parent, Path(new_path.parent, *words)
        if path.is_relative_to("src/lictor") and anchor.is_relative_to("src/lictor"):
            anchor, target = new_path.parent, Path(new_path.parent, *words)
        up = [*new_path.parents].index(anchor)
        shown = f".parents[{up}]" if found[1] or up > 1 else ".parent" * (up + 1)
        tail = "".join(f' / "{word}"' for word in target.relative_to(anchor).parts)
        return f"Path(__file__){shown if up or not found[1] else '.parent'}{tail}"


def _mark(package: str) -> str:
    return f"lictor.__new__.{package}" if package else "lictor"


def list_texts() -> Iterator[Path]:
    """All text files of the project that may name modules."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    for name in listed:
        path = Path(name)
        if name not in LEFT_ALONE and any(path.match(each) for each in TEXT_FILES):
            yield path


def rewrite_all(layout: Layout) -> None:
    """Rewrite every text, where it is now."""
    rewriter = Rewriter(layout)
    for path in list_texts():
        file = ROOT / path
        if not file.is_file():
            continue
        text = file.read_text(encoding="utf-8")
        new = rewriter.rewrite(text, path, layout.move_any(path))
        if new != text:
            file.write_text(new, encoding="utf-8")


def move_all(layout: Layout) -> None:
    """Move the files; through a second folder, because a new name may be an old one."""
    for base, files in (("src/lictor", layout.files), ("tests/unit", layout.tests)):
        old, new = ROOT / base, ROOT / f"{base}.new"
        for path, target in files.items():
            if target:
                (new / target).parent.mkdir(parents=True, exist_ok=True)
                (old / path).rename(new / target)
        subprocess.run(["rm", "-rf", str(old)], check=True)
        new.rename(old)
    for folder, text in CREATED.items():
        (SOURCE / folder / "__init__.py").write_text(f'"""{text}"""\n', encoding="utf-8")


def set_test_folders() -> None:
    """Helpers of tests are imported by their bare names, from every folder."""
    unit = ROOT / "tests" / "unit"
    helpers = [path for path in sorted(unit.rglob("*.py")) if not path.name.startswith("test_")]
    folders = dict.fromkeys(
        str(path.parent.relative_to(ROOT))
        for path in helpers
        if path.name != "conftest.py" and path.parent != unit
    )
    change(
        ROOT / "pyproject.toml",
        r"^pythonpath = \[.*\]$",
        "pythonpath = " + _show(["tests/wasm", "tests/conformance", "tests/cluster", *folders]),
    )
    ini = ROOT / "tests" / "mypy.ini"
    (line,) = [line for line in ini.read_text().splitlines() if line.startswith("mypy_path")]
    kept = [
        each for each in line.partition("= ")[2].split(":") if not each.startswith("tests/unit/")
    ]
    change(ini, r"^mypy_path = .*$", f"mypy_path = {':'.join(dict.fromkeys([*kept, *folders]))}")


def _show(folders: list[str]) -> str:
    return "[\n" + "".join(f'    "{each}",\n' for each in dict.fromkeys(folders)) + "]"


def set_contracts() -> None:
    """The contracts of the new layout, in place of the old."""
    file = ROOT / "pyproject.toml"
    before = file.read_text(encoding="utf-8").partition("[tool.importlinter]")[0]
    file.write_text(before + CONTRACTS.lstrip(), encoding="utf-8")


def change(file: Path, pattern: str, new: str) -> None:
    """Replace what a pattern finds in a file, once."""
    text, count = re.subn(pattern, lambda _: new, file.read_text(encoding="utf-8"), flags=re.M)
    if count != 1:
        print(f"{file.relative_to(ROOT)}: {pattern} was found {count} times")
    file.write_text(text, encoding="utf-8")


def do_special() -> None:
    """What no rule finds."""
    for name, old, new in SPECIAL:
        file = ROOT / name
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        if old not in text:
            print(f"{name}: not found, do it by hand: {old!r} -> {new!r}")
            continue
        file.write_text(text.replace(old, new), encoding="utf-8")


def main() -> None:
    """Move everything."""
    if (SOURCE / "core" / "__init__.py").exists():
        sys.exit("src/lictor has the new layout already")
    layout = Layout()
    targets = [target for target in layout.files.values() if target]
    doubled = {target for target in targets if targets.count(target) > 1}
    if doubled:
        sys.exit(f"two files would be one: {', '.join(sorted(doubled))}")
    rewrite_all(layout)
    move_all(layout)
    set_test_folders()
    set_contracts()
    do_special()
    ruff = ROOT / ".venv" / "bin" / "ruff"
    # Shorter names: what fits on one line again is put there.
    joined = ["--config", "lint.isort.split-on-trailing-comma=false"]
    for words in (["check", "--select", "I", "--fix", "-q", *joined], ["format", "-q"]):
        subprocess.run([str(ruff), *words, "src", "tests", "scripts"], cwd=ROOT, check=False)


if __name__ == "__main__":
    main()
