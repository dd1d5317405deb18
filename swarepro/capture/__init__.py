"""Capture: from live tensors to records and bytes."""

from swarepro.bundle.schema import DigestAlgorithm
from swarepro.capture.digester import Digester, HostDigester, raw_bytes
from swarepro.capture.recorder import Captured, MemorySink, Recorder, RecordSink, StageTap, Witness

__all__ = [
    "Captured",
    "DigestAlgorithm",
    "Digester",
    "HostDigester",
    "MemorySink",
    "RecordSink",
    "Recorder",
    "StageTap",
    "Witness",
    "raw_bytes",
]
