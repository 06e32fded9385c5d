"""`apply --cluster`: the resources of a cluster, judged as they come."""

from collections.abc import Iterator, Sequence

from lictor.cli.live.cluster import LiveCluster
from lictor.cli.live.resources import Choice, LiveResources, Warn, choose_kinds
from lictor.errors import LictorError
from lictor.model.request import Operation
from lictor.offline.apply_run import ApplyPlan, ApplyRun, DocumentResult, OutputOptions
from lictor.raw import JsonObject


class LiveApplication(ApplyRun):
    """Judges what a cluster holds; made once for each run."""

    def __init__(
        self,
        plan: ApplyPlan,
        options: OutputOptions,
        cluster: LiveCluster,
        choice: Choice,
        warn: Warn,
    ) -> None:
        super().__init__(plan, options)
        kinds = choose_kinds(
            cluster.served, self._engines[""].programs, choice, _list_operations(plan)
        )
        self._resources = LiveResources(cluster, kinds, choice, warn)

    @property
    def count(self) -> int:
        return self._resources.count

    def run(self) -> Iterator[DocumentResult]:
        """Judge every resource; memory does not grow with their number."""
        for resource in self._resources:
            yield self._judge_resource(resource)

    def _judge_resource(self, resource: JsonObject) -> DocumentResult:
        requests, engine = self._plan.requests, self._engines[""]
        try:
            verdict = engine.evaluate(requests.make_request(resource), adapt=requests.adapt)
        except LictorError as error:
            if not self._plan.continue_on_fail:
                raise
            return DocumentResult(None, problem=str(error))
        return DocumentResult(None, (self._make_output(verdict),))


def _list_operations(plan: ApplyPlan) -> Sequence[Operation]:
    """What may be asked for: a creation, unless values make something else of it."""
    return tuple(Operation) if plan.requests.values.change_requests else (Operation.CREATE,)
