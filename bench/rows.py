"""What a benchmark returns."""

from typing import NamedTuple


class Row(NamedTuple):
    """One ratio; ``limit`` is the largest that is wanted, or None where it is only shown."""

    name: str
    ratio: float
    limit: float | None
