"""A tolerance: from the numbers that a user states, and back into words."""

import math

from swarepro.compare.types import Tolerance
from swarepro.errors import UsageError


def make_tolerance(
    *, atol: float | None, rtol: float | None, max_ulp: int | None
) -> Tolerance | None:
    """Return the stated tolerance; None when none is stated, which means bitwise.

    Raises:
        UsageError: one of atol and rtol without the other, both kinds at once, or a value that is
            negative or not finite.
    """
    if (atol is None) != (rtol is None):
        given, missing = ("--atol", "--rtol") if rtol is None else ("--rtol", "--atol")
        raise UsageError(
            f"{given} is given without {missing}",
            hint=f"a tolerance needs both; state {missing} 0 if you mean 0",
        )
    if max_ulp is not None and atol is not None:
        raise UsageError(
            "--max-ulp and --atol with --rtol exclude each other",
            hint="state one kind of tolerance",
        )
    for option, value in (("--atol", atol), ("--rtol", rtol), ("--max-ulp", max_ulp)):
        if value is not None and (not math.isfinite(value) or value < 0):
            raise UsageError(f"{option} {value} is not a finite number of at least 0")
    if max_ulp is not None:
        return Tolerance(max_ulp=max_ulp)
    if atol is not None and rtol is not None:
        return Tolerance(atol=atol, rtol=rtol)
    return None


def describe_tolerance(tolerance: Tolerance | None) -> str:
    """Return e.g. ``"bitwise"`` or ``"within atol 1e-05 and rtol 0.001"``."""
    if tolerance is None:
        return "bitwise"
    if tolerance.max_ulp is not None:
        return f"within {tolerance.max_ulp} ulp"
    return f"within atol {tolerance.atol:g} and rtol {tolerance.rtol:g}"
