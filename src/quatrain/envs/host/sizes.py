"""a budget of transitions -> how many episodes each policy plays"""

from math import inf
from typing import NamedTuple

# Episodes that an interval needs; constant and untrained policies need half as many. No policy has
# more than MOST unless the config says so.
FEWEST = 8
MOST = 100
# Of held-out episodes: the learned one, and those without learning.
POLICIES = ("learned", "random", "constant", "untrained")


class Size(NamedTuple):
    """Holds how many episodes a policy plays: as many as fit into `transitions`, within bounds."""

    fewest: int
    most: int
    transitions: float | int

    def count(self, length: float | int, played: int = 0, spent: int = 0) -> int:
        """Returns the number of all episodes, from their mean length; some of them have been played
        and took this many transitions.
        """
        more = (self.transitions - spent) / length
        return int(min(self.most, max(self.fewest, played + more)))


def held_out_sizes(episodes: int | None, budget: float, collected: int = 0) -> dict[str, Size]:
    """Returns the size of each policy's held-out episodes: `episodes`, or what fits into a budget
    of transitions.

    A quarter each is for validation, the learned policy, random actions (less those that were
    collected beside the training), and the other two policies without learning.
    """
    if episodes is not None:
        return dict.fromkeys(POLICIES, Size(episodes, episodes, inf))
    few, quarter = FEWEST // 2, budget / 4
    return {
        "learned": Size(FEWEST, MOST, quarter),
        "random": Size(FEWEST, MOST, quarter - collected),  # their deviation is the unit of scores
        "constant": Size(few, MOST, quarter / 2),
        "untrained": Size(few, MOST, quarter / 2),
    }


def validation_size(episodes: int | None, budget: float, validations: int) -> Size:
    """Returns the size of one of so many validations: `episodes`, or what fits into its share of a
    quarter of the budget.
    """
    if episodes is not None:
        return Size(episodes, episodes, inf)
    return Size(FEWEST // 2, MOST, budget / 4 / validations)
