"""`create user-info`: a user info file to start from."""

import click

from lictor.cli.create.output import render_items, write_text
from lictor.cli.flag_command import FlagCommand, slice_option
from lictor.report.yaml_text import render_scalar


@click.command(
    "user-info",
    cls=FlagCommand,
    examples="lictor create user-info -u someone@example.com -g basic-user -c admin",
)
@click.option("-o", "--output", default="", help="Write to this file instead of the terminal.")
@click.option("-u", "--username", default="", help="User name.")
@slice_option("-r", "--role", "roles", help="Roles.")
@slice_option("-c", "--cluster-role", "cluster_roles", help="Cluster roles.")
@slice_option("-g", "--group", "groups", help="Groups.")
def user_info(
    *,
    output: str,
    username: str,
    roles: tuple[str, ...],
    cluster_roles: tuple[str, ...],
    groups: tuple[str, ...],
) -> None:
    """Create a user info file."""
    text = (
        "apiVersion: cli.kyverno.io/v1alpha1\nkind: UserInfo\n\n"
        f"# list of roles\nroles:\n{render_items(roles, '  ')}\n"
        f"# list of cluster roles\nclusterRoles:\n{render_items(cluster_roles, '  ')}\n"
        f"userInfo:\n  # user name\n  username: {render_scalar(username)}\n\n"
        f"  # list of groups\n  groups:\n{render_items(groups, '    ')}"
    )
    write_text(text, output)
