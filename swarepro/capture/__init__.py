"""Capture: from live tensors to records and bytes."""

from swarepro.bundle.schema import DigestAlgorithm
from swarepro.capture.digester import Digester, HostDigester, raw_bytes
from swarepro.capture.recorder import MemorySink, Recorder, RecordSink, StageTap

__all__ = [
    "DigestAlgorithm",
    "Digester",
    "HostDigester",
    "MemorySink",
    "RecordSink",
    "Recorder",
    "StageTap",
    "raw_bytes",
]
