"""`scaffold`: prints manifests, requests and configuration to start from."""

from datetime import UTC, datetime
from pathlib import Path

import click
import orjson

from lictor.addons.kubewarden.cli.options import (
    WasmCommand,
    source_options,
    verification_options,
    warn,
)
from lictor.cli.lazy_group import LazyCommand, LazyGroup
from lictor.core.raw import Json, JsonObject

_HERE = "lictor.addons.kubewarden.cli.scaffold"
_KINDS = ("ClusterAdmissionPolicy", "AdmissionPolicy")
_OPERATIONS = ("CREATE", "UPDATE", "DELETE", "CONNECT")
_VERSION_NOTE = (
    "--version counts no more: the version is the annotation io.kubewarden.policy.version"
)

scaffold = LazyGroup(
    name="scaffold",
    bare_code=2,
    help="Print files to start from.",
    lazy={
        "admission-request": LazyCommand(_HERE, "request", "A request that brings an object."),
        "artifacthub": LazyCommand(_HERE, "artifact_hub", "The package file for Artifact Hub."),
        "manifest": LazyCommand(_HERE, "manifest", "The object that puts a policy into a cluster."),
        "vap": LazyCommand(_HERE, "vap", "Kubernetes' own validating policy as Kubewarden's."),
        "verification-config": LazyCommand(
            _HERE, "verification_config", "Whose signatures policies must carry."
        ),
    },
)


@click.command(cls=WasmCommand, arity=(1, 1), required_flags=["type"])
@click.option("-t", "--type", "type", type=click.Choice(_KINDS), help="The kind of the object.")
@click.option("-s", "--settings-path", default="", help="File with the settings.")
@click.option("--settings-json", default="", help="The settings as JSON.")
@click.option("--title", default="", help="The name of the object.")
@click.option("--allow-context-aware", is_flag=True, help="Grant what the policy wants to read.")
@source_options
@verification_options
def manifest(
    *,
    arguments: tuple[str, ...],
    type: str,
    settings_path: str,
    settings_json: str,
    title: str,
    allow_context_aware: bool,
    **flags: Json,
) -> None:
    """Print the object that puts a policy into a cluster; a policy that is not here is pulled."""
    from lictor.addons.kubewarden.cli.chosen_modules import split_flags
    from lictor.addons.kubewarden.cli.inspection import read_described, warn_of_context
    from lictor.addons.kubewarden.cli.requests import read_settings
    from lictor.addons.kubewarden.cli.scaffolds import ManifestOptions, scaffold_manifest
    from lictor.core.report.manifest_text import render_manifest

    if settings_path and settings_json:
        raise click.UsageError("give --settings-path or --settings-json, not both")
    sources, wanted = split_flags(flags)
    found = read_described(arguments[0], sources, wanted, pulls=True)
    options = ManifestOptions(
        kind=type,
        title=title,
        settings=read_settings(settings_path, settings_json),
        grants_context=allow_context_aware,
    )
    made = scaffold_manifest(found.address, found.metadata, options)
    warn(warn_of_context(found.metadata, granted="contextAwareResources" in made["spec"]))
    click.echo(render_manifest(made), nl=False)


@click.command(cls=WasmCommand)
@click.option(
    "-o",
    "--operation",
    type=click.Choice(_OPERATIONS),
    default=None,
    help="What is done; else it follows from the objects.",
)
@click.option("--object", "new", default="", help="File with the object as it shall be.")
@click.option("--old-object", default="", help="File with the object as it was.")
def request(*, operation: str | None, new: str, old_object: str) -> None:
    """Print the request that creates, changes or deletes an object."""
    from lictor.addons.kubewarden.cli.scaffolds import read_object, scaffold_request

    objects = [read_object(path) if path else None for path in (new, old_object)]
    made = scaffold_request(operation or "", *objects)
    click.echo(orjson.dumps(made, option=orjson.OPT_INDENT_2))


@click.command(cls=WasmCommand, required_flags=["policy", "binding"])
@click.option("-p", "--policy", default="", help="File with Kubernetes' validating policy.")
@click.option("-b", "--binding", default="", help="File with its binding.")
@click.option("--cel-policy", default="", help="The policy that evaluates CEL.")
def vap(*, policy: str, binding: str, cel_policy: str) -> None:
    """Print a validating admission policy of Kubernetes and its binding as Kubewarden's policy."""
    from lictor.addons.kubewarden.cli.scaffolds import CEL_POLICY, read_object, scaffold_vap
    from lictor.core.report.manifest_text import render_manifest

    made = scaffold_vap(read_object(policy), read_object(binding), cel_policy or CEL_POLICY)
    if not cel_policy:
        warn([f"{CEL_POLICY} changes whenever it is pushed: name a version with --cel-policy"])
    click.echo(render_manifest(made), nl=False)


@click.command(cls=WasmCommand)
def verification_config() -> None:
    """Print a verification.yml that trusts what Kubewarden's own workflows sign."""
    from lictor.addons.kubewarden.cli.scaffolds import scaffold_verification_config
    from lictor.core.report.manifest_text import render_manifest

    click.echo(render_manifest(scaffold_verification_config()), nl=False)


@click.command(cls=WasmCommand, required_flags=["metadata-path"])
@click.option("-m", "--metadata-path", default="", help="File with the metadata.")
@click.option("-q", "--questions-path", default="", help="File with the questions for a UI.")
@click.option("-o", "--output", default="", help="File to write; else it is printed.")
@click.option("-v", "--version", default="", help="Counts no more: the metadata names it.")
def artifact_hub(*, metadata_path: str, questions_path: str, output: str, version: str) -> None:
    """Print the package file by which Artifact Hub shows a policy."""
    from lictor.addons.kubewarden.cli.metadata_files import read_metadata_file
    from lictor.addons.kubewarden.cli.scaffolds import scaffold_artifact_hub
    from lictor.core.files import read_bytes
    from lictor.core.report.manifest_text import render_manifest

    warn([_VERSION_NOTE] if version else [])
    metadata = read_metadata_file(metadata_path).metadata
    questions = read_bytes(questions_path).decode() if questions_path else None
    now = datetime.now(UTC).isoformat(timespec="seconds")
    made: JsonObject = scaffold_artifact_hub(metadata, now, questions)
    if output:
        Path(output).write_text(render_manifest(made), encoding="utf-8")
    else:
        click.echo(render_manifest(made), nl=False)
