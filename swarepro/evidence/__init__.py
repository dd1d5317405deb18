"""A diagnosis on disk: the plan, what was launched, every trial, and what follows from them."""

from swarepro.evidence.check import read_evidence
from swarepro.evidence.conclude import conclude
from swarepro.evidence.conclusions import Conclusions
from swarepro.evidence.held import Evidence

__all__ = ["Conclusions", "Evidence", "conclude", "read_evidence"]
