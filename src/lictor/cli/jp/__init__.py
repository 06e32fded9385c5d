"""`jp`: JMESPath on the command line. Expressions are evaluated elsewhere."""

from lictor.cli.lazy_group import LazyCommand, LazyGroup

jp = LazyGroup(
    name="jp",
    help="Work with JMESPath expressions: evaluate, parse, list functions.",
    lazy={
        "function": LazyCommand("lictor.cli.jp.function", "function", "Describe functions."),
        "parse": LazyCommand(
            "lictor.cli.jp.parse", "parse", "Parse expressions and show their tree."
        ),
        "query": LazyCommand("lictor.cli.jp.query", "query", "Evaluate expressions."),
    },
    examples=(
        "# List functions\n"
        "lictor jp function\n\n"
        "# Evaluate a query\n"
        "lictor jp query -i object.yaml 'request.object.metadata.name | truncate(@, `9`)'\n\n"
        "# Parse an expression\n"
        "lictor jp parse 'request.object.metadata.name | truncate(@, `9`)'"
    ),
)
