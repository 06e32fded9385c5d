"""The webhook's certificate, made before anything starts: nobody has to wait for it."""

from collections.abc import Iterable
from datetime import UTC, datetime

from lictor.cli.up.plan import Plan
from lictor.cli.up.private_files import write_private
from lictor.cluster.client import Client
from lictor.cluster.config import load_config
from lictor.cluster.keys import make_authority, make_serving
from lictor.cluster.resource import SECRET
from lictor.control.certificates import build_secret, choose_settings
from lictor.raw import JsonObject


def make_certificate(plan: Plan) -> tuple[JsonObject, ...]:
    """Write the files that the webhook serves with; the Secrets that belong to them.

    From then on the controller of certificates keeps the Secrets, as in any cluster.
    """
    place, now = choose_settings(plan.flags, plan.names), datetime.now(UTC)
    name = f"*.{place.namespace}.svc"
    authority = make_authority(name, place.algorithm, now, place.authority_lifetime)
    serving = make_serving(authority, place.hosts, place.algorithm, now, place.serving_lifetime)
    write_private(plan.webhook_certificate, serving.certificate_pem.encode())
    write_private(plan.webhook_key, serving.key_pem.encode())
    return tuple(
        build_secret(place.namespace, secret, (pair.certificate,), pair)
        for secret, pair in (
            (place.authority_secret, authority),
            (place.serving_secret, serving),
        )
    )


async def send_secrets(plan: Plan, secrets: Iterable[JsonObject]) -> None:
    """Put the Secrets into the cluster, in place of those of an earlier run."""
    client = Client(load_config(plan.flags.kubeconfig))
    try:
        for secret in secrets:
            await client.apply(SECRET, secret)
    finally:
        await client.close()
