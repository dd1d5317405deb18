"""The ownership shadow: who owns which slot, and what breaks that before any number differs."""

from swarepro.ownership.accounts import SlotAccount, slot_accounts
from swarepro.ownership.shadow import OwnershipShadow
from swarepro.ownership.violations import Owner, Violation, ViolationLog
from swarepro.rules import VIOLATION_KINDS

__all__ = [
    "VIOLATION_KINDS",
    "Owner",
    "OwnershipShadow",
    "SlotAccount",
    "Violation",
    "ViolationLog",
    "slot_accounts",
]
