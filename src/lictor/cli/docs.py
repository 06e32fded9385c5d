"""`docs`: write the reference of all commands."""

from datetime import datetime
from pathlib import Path

import click

from lictor.cli.docs_page import PageOptions, list_pages
from lictor.cli.flag_command import FlagCommand

_EXAMPLES = """\
# Plain Markdown
lictor docs -o . --autogenTag=false

# For a website
lictor docs -o . --website"""


@click.command(cls=FlagCommand, required_flags=["output"], examples=_EXAMPLES)
@click.option("-o", "--output", default=".", help="Folder to write to.")
@click.option("--autogenTag", "tag", is_flag=True, default=True, help="End pages with a date.")
@click.option("--markdownLinks", "links", is_flag=True, help="Links to .md files.")
@click.option("--noDate", "no_date", is_flag=True, help="No date in the front matter.")
@click.option("--website", is_flag=True, help="With front matter for a website.")
@click.pass_context
def docs(
    ctx: click.Context, *, output: str, tag: bool, links: bool, no_date: bool, website: bool
) -> None:
    """Write the reference of all commands as Markdown."""
    if not output:
        raise click.UsageError("path is required", ctx)
    options = PageOptions(
        now=datetime.now().astimezone(), website=website, tag=tag, links=links, date=not no_date
    )
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in list_pages(ctx.find_root(), options):
        (folder / name).write_text(text, encoding="utf-8")
