"""`verify`: who signed and attested an image, and does a policy accept it?"""

import click
import orjson

from lictor.cli.flag_command import FlagCommand, slice_option
from lictor.core.errors import UsageError
from lictor.core.raw import Json

_EXAMPLES = """\
# Who signed this image?
lictor verify ghcr.io/team/app:v1

# Was it signed with this key?
lictor verify ghcr.io/team/app:v1 --key cosign.pub

# Was it signed by this workflow?
lictor verify ghcr.io/team/app:v1 --certificate-identity \\
    https://github.com/team/app/.github/workflows/release.yaml@refs/heads/main \\
    --certificate-oidc-issuer https://token.actions.githubusercontent.com

# Would this policy accept it, and why?
lictor verify ghcr.io/team/app:v1 --policy policy.yaml

# Show its provenance
lictor verify ghcr.io/team/app:v1 --key cosign.pub --attestation-type slsaprovenance1 \\
    --format payload"""


_FORMATS = ("text", "json", "payload")


@click.command(cls=FlagCommand, arity=(1, None), examples=_EXAMPLES)
@click.option("--key", default="", help="File with the public key (PEM), or a key's URI.")
@click.option("--certificate", default="", help="File with the signer's certificate (PEM).")
@click.option("--certificate-chain", default="", help="File with the chain of certificates above.")
@click.option("--certificate-identity", default="", help="The signer, as certificates name them.")
@click.option("--certificate-identity-regexp", default="", help="A regular expression instead.")
@click.option("--certificate-oidc-issuer", default="", help="Who vouches for the signer (a URL).")
@click.option("--certificate-oidc-issuer-regexp", default="", help="A regular expression instead.")
@click.option("--ca-roots", default="", help="File with authorities of your own for identities.")
@slice_option("--notary-certificate", help="Files with certificates that notation must lead to.")
@click.option("--trusted-root", default="", help="File with a Sigstore's trusted_root.json.")
@click.option("--rekor-key", default="", help="File with keys of the transparency log.")
@click.option("--ct-log-key", default="", help="File with keys of the certificate log.")
@click.option(
    "--timestamp-certificate-chain", default="", help="File with a time stamp authority's chain."
)
@click.option("--insecure-ignore-tlog", is_flag=True, help="Require no transparency log entry.")
@click.option("--insecure-ignore-sct", is_flag=True, help="Require no certificate timestamp (SCT).")
@click.option(
    "--signature-digest-algorithm",
    type=click.Choice(("sha224", "sha256", "sha384", "sha512")),
    default="sha256",
    help="The hash that a key signed with.",
)
@slice_option("-a", "--annotations", help="Annotations that must be signed: NAME=VALUE.")
@click.option(
    "--attestation-type", default="", help="Demand an attestation of this type, not a signature."
)
@click.option(
    "--signature-repository", default="", help="The repository with the signatures, if another."
)
@slice_option("--policy", help="Files with policies to evaluate for the image.")
@click.option("--rule", default="", help="Only this rule of the policies.")
@click.option("--image-layout", default="", help="OCI layout folder to use instead of registries.")
@click.option("--allow-insecure-registry", is_flag=True, help="Allow HTTP and unknown TLS.")
@click.option(
    "--format",
    "form",
    type=click.Choice(_FORMATS),
    default="text",
    help="text, json, or payload: the attestations that count.",
)
def verify(
    *,
    arguments: tuple[str, ...],
    form: str,
    policy: tuple[str, ...],
    rule: str,
    **flags: Json,
) -> int:
    """List the signatures and attestations of images, and why each is accepted or refused.

    Flags mean what they mean for cosign. Exits with 0 if every image is verified, with 1 if
    one is not, and with 2 on a wrong call.
    """
    from lictor.cli.image_verification import list_statements, open_registries, verify_images
    from lictor.cli.verification_demands import VerifyFlags, read_demand
    from lictor.core.report.image_verification import render_verification, verifications_to_json

    registries = open_registries(flags.pop("image_layout"), flags.pop("trusted_root"))
    demand = read_demand(VerifyFlags(**flags))
    if form == "payload" and not demand.predicate_type:
        raise UsageError("--format payload prints attestations: give --attestation-type")
    reports = verify_images(arguments, demand, registries, policy, rule)
    if form == "json":
        click.echo(orjson.dumps(verifications_to_json(reports), option=orjson.OPT_INDENT_2))
    elif form == "payload":
        for each in reports:
            for line in list_statements(each, demand):
                click.echo(line)
    else:
        click.echo("\n\n".join("\n".join(render_verification(each)) for each in reports))
    return 0 if all(each.is_verified for each in reports) else 1
