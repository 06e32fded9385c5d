"""The list of policies, with their mode and readiness; those without results, too."""

from collections.abc import Iterator, Sequence

from lictor.addons.web.markup import Html, element, join
from lictor.addons.web.pages import addresses
from lictor.addons.web.pages.lists import render_group_list
from lictor.addons.web.pages.overview import link_group
from lictor.addons.web.pages.page import PageContext, Section
from lictor.addons.web.records import GroupCount, ResultFilter


def render_policy_list(context: PageContext, chosen: ResultFilter) -> Section:
    """Every policy, the worst first or in the order of a column; those without results last."""
    by = ("cluster", "policy") if context.is_plural else ("policy",)

    def name(group: GroupCount) -> Html:
        return join(link_group(context, chosen, by, group), _render_state(context, group))

    words = ("Policies", "Policy", addresses.POLICIES)
    groups = context.state.results.count(chosen, context.viewer, by)
    return render_group_list(
        context, chosen, words, [*groups, *_list_silent(context, chosen, by, groups)], name
    )


def _list_silent(
    context: PageContext, chosen: ResultFilter, by: tuple[str, ...], groups: Sequence[GroupCount]
) -> Iterator[GroupCount]:
    """Policies without results, where no property of results is chosen."""
    if chosen != ResultFilter(clusters=chosen.clusters, text=chosen.text):
        return
    known = {group.key for group in groups}
    for cluster, name in context.state.list_policies(context.viewer):
        key = (cluster, name)[-len(by) :]
        is_chosen = not chosen.clusters or cluster in chosen.clusters
        if is_chosen and key not in known and chosen.text.lower() in name.lower():
            yield GroupCount(key, {})


def _render_state(context: PageContext, group: GroupCount) -> Html | None:
    """The mode of a policy and its readiness; nothing where only reports are known."""
    cluster = group.key[0] if context.is_plural else "".join(context.clusters)
    state = context.state.find_policy_state(cluster, group.key[-1], context.viewer)
    if state is None:
        return None
    word, class_ = ("Ready", "pass") if state.is_ready else ("Not ready", "fail")
    return join(
        element("span", state.mode, class_="severity") if state.mode else None,
        " ",
        element("span", word, class_=f"status {class_}") if state.is_ready is not None else None,
    )
