import math

import pytest

from swarepro.compare.types import Tolerance
from swarepro.errors import UsageError
from swarepro.report.tolerance import describe_tolerance, make_tolerance


def test_nothing_stated_is_bitwise() -> None:
    tolerance = make_tolerance(atol=None, rtol=None, max_ulp=None)
    assert tolerance is None
    assert describe_tolerance(tolerance) == "bitwise"


def test_both_or_ulp() -> None:
    close = make_tolerance(atol=1e-5, rtol=0.0, max_ulp=None)
    assert close == Tolerance(atol=1e-5, rtol=0.0)
    assert describe_tolerance(close) == "within atol 1e-05 and rtol 0"
    near = make_tolerance(atol=None, rtol=None, max_ulp=0)
    assert near == Tolerance(max_ulp=0)
    assert describe_tolerance(near) == "within 0 ulp"


@pytest.mark.parametrize(
    ("atol", "rtol", "max_ulp", "named"),
    [
        (1.0, None, None, "--atol is given without --rtol"),
        (None, 1.0, None, "--rtol is given without --atol"),
        (1.0, 1.0, 3, "--max-ulp and --atol"),
        (-1.0, 0.0, None, "--atol -1.0"),
        (0.0, math.nan, None, "--rtol nan"),
        (math.inf, 0.0, None, "--atol inf"),
    ],
)
def test_refused(atol: float | None, rtol: float | None, max_ulp: int | None, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        make_tolerance(atol=atol, rtol=rtol, max_ulp=max_ulp)
