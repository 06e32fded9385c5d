"""`fix`: old files brought up to date. Nothing is judged here."""

from lictor.cli.lazy_group import LazyCommand, LazyGroup

fix = LazyGroup(
    name="fix",
    help="Bring old files up to date: deprecated fields are moved to where they belong today.",
    lazy={
        "policy": LazyCommand("lictor.cli.fix.policy", "policy", "Bring policy files up to date."),
        "test": LazyCommand("lictor.cli.fix.test", "test", "Bring test files up to date."),
    },
    examples="lictor fix test . --save\nlictor fix policy . --save",
)
