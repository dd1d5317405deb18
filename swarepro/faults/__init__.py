"""The fault library: known defects that can be injected, each a wrapper of one part."""

import swarepro.faults.allocation  # noqa: F401 - registers its faults
from swarepro.faults.base import FAULTS, Effect, Fault

__all__ = ["FAULTS", "Effect", "Fault"]
