"""The fault library: known defects that can be injected, each a wrapper of one part."""

# Each of these registers its faults.
import swarepro.faults.allocation
import swarepro.faults.attending
import swarepro.faults.edges
import swarepro.faults.ends
import swarepro.faults.freeing
import swarepro.faults.images
import swarepro.faults.late
import swarepro.faults.masking
import swarepro.faults.norming
import swarepro.faults.positions
import swarepro.faults.resetting
import swarepro.faults.reusing
import swarepro.faults.rotating
import swarepro.faults.scoring
import swarepro.faults.storing
import swarepro.faults.tables
import swarepro.faults.tiles
import swarepro.faults.translating
import swarepro.faults.windows  # noqa: F401
from swarepro.faults.base import FAULTS, Effect, Fault

__all__ = ["FAULTS", "Effect", "Fault"]
