"""The Jinja2 environment of pages and of the HTML report, and the functions that templates call."""

import re
from functools import cache
from typing import TYPE_CHECKING

from lictor.addons.web.pages import addresses
from lictor.addons.web.pages.charts import list_shares
from lictor.addons.web.pages.policy_text import list_lines, list_paragraphs, read_annotation
from lictor.addons.web.pages.tables import (
    link_group,
    link_policy,
    link_resource,
    link_result,
    shorten,
    sum_groups,
)
from lictor.addons.web.pages.words import (
    count_things,
    count_wrong,
    describe_counts,
    describe_distance,
    find_moment,
    format_moment,
    format_number,
    format_share,
    name_resource_of,
)
from lictor.addons.web.records import STATUSES
from lictor.core.release import VERSION

# The import takes 55 ms, which only commands with a page pay.
if TYPE_CHECKING:
    from jinja2 import Environment

# Control characters, lone surrogates, and marks that change the direction of text: with them, a
# name or a policy could be displayed as something else.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
# A path on this host, or a page of the web; never a script.
_SAFE_ADDRESS = re.compile(r"(?:https?://[^\s\\]*|[/?#](?![/\\])[^\s\\]*)")


def render_template(name: str, /, **values: object) -> str:
    """Render a template; every value is escaped, and unprintable characters are replaced."""
    return _UNPRINTABLE.sub(_replace, _environment().get_template(name).render(**values))


def _replace(match: re.Match[str]) -> str:
    return " " if match[0] == "\r" else "\N{REPLACEMENT CHARACTER}"


def is_safe_address(text: str) -> bool:
    """Can a link lead there: to a path on this host or to a page of the web, not to a script?"""
    return _SAFE_ADDRESS.fullmatch(text) is not None


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("lictor.addons.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.tests["safe_address"] = is_safe_address
    made.filters |= {
        "counted": count_things,
        "distance": describe_distance,
        "lines": list_lines,
        "moment": format_moment,
        "number": format_number,
        "paragraphs": list_paragraphs,
        "shares": list_shares,
        "shorten": shorten,
        "sum_groups": sum_groups,
        "totals": describe_counts,
        "wrong": count_wrong,
    }
    made.globals |= {
        "STATUSES": STATUSES,
        "VERSION": VERSION,
        "find_moment": find_moment,
        "format_share": format_share,
        "link_group": link_group,
        "link_policy": link_policy,
        "link_resource": link_resource,
        "link_result": link_result,
        "name_resource": name_resource_of,
        "read_annotation": read_annotation,
        "to": addresses,
    }
    return made
