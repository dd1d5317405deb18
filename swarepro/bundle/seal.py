"""The seal of a manifest: a digest over its other fields, so that no flipped byte goes unseen.

It is taken over the decoded fields of the manifest's own version, as compact JSON. The reader also
demands that the file says just that: all of it but its white space is covered.
"""

import msgspec

from swarepro.bundle.digest import digest_bytes
from swarepro.bundle.schema import Manifest
from swarepro.bundle.schema_v1 import ManifestV1


def seal_of(manifest: Manifest | ManifestV1) -> str:
    """Return the seal that ``manifest`` must carry."""
    return digest_bytes(msgspec.json.encode(msgspec.structs.replace(manifest, seal="")))


def sealed(manifest: Manifest) -> Manifest:
    """Return ``manifest`` with its seal set."""
    # Through JSON first: the case may hold values that come back as others (tuples as lists).
    plain = msgspec.json.decode(msgspec.json.encode(manifest), type=Manifest)
    return msgspec.structs.replace(plain, seal=seal_of(plain))
