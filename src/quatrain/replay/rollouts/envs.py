"""the environments of rollouts, as a learner sees them, whatever they are"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Bool, Float32, Shaped
from torch import Tensor

from quatrain.replay.rollouts.buffer import Graphs, Rollout


class Spec(NamedTuple):
    """Holds the sizes of what is seen, drawn and paid.

    cells: slots of a graph, 0 if none is seen. graph_features: of the whole graph, or of an
    observation that is a vector. action_low, action_high: bounds of the numbers that are drawn;
    empty where one of `action_count` indices is drawn instead. components: of the reward.
    """

    cells: int
    node_features: int
    graph_features: int
    action_low: tuple[float, ...]
    action_high: tuple[float, ...]
    action_count: int
    components: int


class Stepped(NamedTuple):
    """Holds a step of all environments, of which ended ones are reset.

    final: the states before resets, as `Envs.observe_final` takes them.
    """

    components: Float32[Tensor, "env component"]
    terminated: Bool[Tensor, " env"]
    truncated: Bool[Tensor, " env"]
    final: Any


@runtime_checkable
class Envs(Protocol):
    """Describes running environments, which change in place.

    weights: of the components of the reward.
    """

    weights: Float32[Tensor, " component"]

    def observe(self) -> Graphs:
        """Returns what is seen of the current states."""

    def step(self, action: Shaped[Tensor, "env *action"]) -> Stepped:
        """Steps all environments."""

    def observe_final(
        self, finals: Sequence[Any], truncated: Bool[Tensor, "time env"]
    ) -> Graphs | None:
        """Returns what is seen of the last states of truncated episodes, in the order of
        `truncated.nonzero()`; None if none was truncated.

        finals: `Stepped.final` of each time.
        """

    def end_rollout(
        self, rollout: Rollout, action: Shaped[Tensor, "transition *action"], iteration: int
    ) -> dict[str, Any]:
        """Checks the rewards of a rollout; returns metrics of it and of its episodes.

        Raises:
            TrainingDiverged: a reward is not finite.
        """

    def save(self, policy: Tensor, order: Tensor) -> Any:
        """Returns all that changes, with the states of the learner's two generators."""

    def close(self) -> None:
        """Closes what was opened."""
