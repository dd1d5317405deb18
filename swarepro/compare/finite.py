"""Where a run first holds a value that is not finite."""

from swarepro.bundle.dtypes import DTYPES
from swarepro.bundle.read import Bundle
from swarepro.bundle.schema import TensorRecord
from swarepro.compare.floats import is_nonfinite
from swarepro.points import PointKind


def first_nonfinite(bundle: Bundle) -> TensorRecord | None:
    """Return the first record of a value, in execution order, that holds a NaN or an infinity.

    Only stored tensors are looked at: of a digest nobody knows. None = all are finite.
    """
    for record in bundle.records:
        if record.kind is not PointKind.VALUE or record.file is None:
            continue
        if bool(is_nonfinite(bundle.tensor(record), DTYPES[record.dtype]).any()):
            return record
    return None
