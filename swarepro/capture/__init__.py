"""Capture: from live tensors to records and bytes."""

from swarepro.capture.recorder import MemorySink, Recorder, RecordSink, StageTap, raw_bytes

__all__ = ["MemorySink", "RecordSink", "Recorder", "StageTap", "raw_bytes"]
