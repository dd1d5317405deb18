"""The seal of a manifest: a digest over its other fields, so that no flipped byte goes unseen.

It is taken over the decoded fields, not the file's bytes: white space does not matter.
"""

import msgspec

from swarepro.bundle.digest import digest_bytes
from swarepro.bundle.schema import Manifest


def seal_of(manifest: Manifest) -> str:
    """Return the seal that ``manifest`` must carry."""
    return digest_bytes(msgspec.json.encode(msgspec.structs.replace(manifest, seal="")))


def sealed(manifest: Manifest) -> Manifest:
    """Return ``manifest`` with its seal set."""
    # Through JSON first: the case may hold values that come back as others (tuples as lists).
    plain = msgspec.json.decode(msgspec.json.encode(manifest), type=Manifest)
    return msgspec.structs.replace(plain, seal=seal_of(plain))
