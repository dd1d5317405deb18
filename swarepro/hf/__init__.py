"""Another program's run as a bundle: transformers, read through hooks in its own modules."""

from swarepro.hf.engine import ABSENT, Shapes, run_transformers
from swarepro.hf.load import HfModel, load_transformers

__all__ = ["ABSENT", "HfModel", "Shapes", "load_transformers", "run_transformers"]
