"""`create`: files to start from. What they mean is decided where they are read."""

from lictor.cli.lazy_group import LazyCommand, LazyGroup

create = LazyGroup(
    name="create",
    help="Create files to start from.",
    lazy={
        "cluster-role": LazyCommand(
            "lictor.cli.create.cluster_role",
            "cluster_role",
            "Create a ClusterRole that gives controllers more rights.",
        ),
        "exception": LazyCommand(
            "lictor.cli.create.exception", "exception", "Create a policy exception."
        ),
        "metrics-config": LazyCommand(
            "lictor.cli.create.metrics_config", "metrics_config", "Create a metrics configuration."
        ),
        "test": LazyCommand("lictor.cli.create.test", "test", "Create a test file."),
        "user-info": LazyCommand(
            "lictor.cli.create.user_info", "user_info", "Create a user info file."
        ),
        "values": LazyCommand("lictor.cli.create.values", "values", "Create a values file."),
    },
    examples=(
        "lictor create test -p policy.yaml -r resource.yaml "
        "--pass policy,rule,resource,namespace,kind\n"
        "lictor create values -g request.mode=dev -n prod,env=prod\n"
        "lictor create user-info -u someone@example.com -g basic-user -c admin"
    ),
)
