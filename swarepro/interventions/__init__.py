"""One-variable treatments, to test a guess at a cause: most wrap one part each."""

# Each of these registers its factors.
import swarepro.interventions.memory
import swarepro.interventions.running
import swarepro.interventions.slots
import swarepro.interventions.whole  # noqa: F401
from swarepro.interventions.base import FACTORS, Factor, Means, Ran, Scope
from swarepro.interventions.grafting import GRAFT, graft_factor

__all__ = ["FACTORS", "GRAFT", "Factor", "Means", "Ran", "Scope", "graft_factor"]
