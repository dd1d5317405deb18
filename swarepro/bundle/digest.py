"""The digest of captured bytes: XXH3-128, position-sensitive and at memory speed.

It finds accidents, not attackers: XXH3 is no cryptographic hash.
"""

import re

import xxhash

BytesLike = bytes | bytearray | memoryview
"""Raw bytes; of a numpy array pass ``array.data``."""

_HEX = re.compile(r"[0-9a-f]{32}")


def digest_bytes(data: BytesLike) -> str:
    """Return the XXH3-128 of C-contiguous ``data`` as 32 hex digits, without a copy."""
    digest: str = xxhash.xxh3_128_hexdigest(data)
    return digest


def digest_rows(data: memoryview, row_bytes: int) -> list[int]:
    """Return the XXH3-64 of each row of C-contiguous ``data``, unsigned; 64 bits tell rows apart.

    Args:
        data: whole rows.
        row_bytes: of one.
    """
    digest = xxhash.xxh3_64_intdigest
    return [digest(data[at : at + row_bytes]) for at in range(0, len(data), row_bytes)]


def is_digest(text: str) -> bool:
    """Return whether ``text`` is what `digest_bytes` returns."""
    return _HEX.fullmatch(text) is not None
