"""Where the text model is inside a Hugging Face checkpoint, and which names there are known."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from swarepro.checkpoint.config import ModelConfig
from swarepro.checkpoint.names import EMBEDDING, FINAL_NORM, Part, TensorName, layer_tensors
from swarepro.errors import CheckpointError

# Bare prefixes are those of a text model or a wrapper that was saved without its head.
TEXT_PREFIXES = (
    "model.",
    "model.language_model.",
    "language_model.model.",
    "language_model.",
    "",
)
_HEAD_NAMES = ("lm_head.weight", "language_model.lm_head.weight")
_LAYER = re.compile(r"(?P<prefix>.*?)layers\.(?P<layer>\d+)\.(?P<rest>.+)")
_HARMLESS = re.compile(r"(.*[._])?(inv_freq|embed_scale)")


@dataclass(frozen=True, slots=True, kw_only=True)
class HfNames:
    """The naming of one checkpoint.

    Attributes:
        text_prefix: one of `TEXT_PREFIXES`.
        head: the head's name, whether or not the checkpoint has it.
    """

    text_prefix: str
    head: str

    def __call__(self, row: TensorName, layer: int | None) -> str:
        """Return the full name of ``row``; a `Namer`."""
        if row.part is Part.HEAD:
            return self.head
        middle = "" if layer is None else f"layers.{layer}."
        return f"{self.text_prefix}{middle}{row.hf}"

    def unknown(
        self, names: Iterable[str], config: ModelConfig, layer_start: int, layer_end: int
    ) -> list[str]:
        """Return the names of the text model that nothing uses, other layers' own left out.

        Vision and audio towers are outside the text prefix; buffers that are computed from the
        config are known.
        """
        return [
            name
            for name in names
            if name.startswith(self.text_prefix)
            and not self._is_known(
                name.removeprefix(self.text_prefix), config, layer_start, layer_end
            )
        ]

    def _is_known(self, name: str, config: ModelConfig, layer_start: int, layer_end: int) -> bool:
        if _HARMLESS.fullmatch(name) or name in (EMBEDDING.hf, FINAL_NORM.hf):
            return True
        match = _LAYER.fullmatch(name)
        if match is None or match["prefix"]:
            # A short prefix also covers towers and heads, which are not the text model's.
            return self.text_prefix in ("", "language_model.") or name in _HEAD_NAMES
        layer = int(match["layer"])
        if layer >= config.num_layers:
            return False
        if not layer_start <= layer < layer_end:
            return True
        return match["rest"] in {row.hf for row in layer_tensors(config, config.layers[layer])}


def detect_names(names: Iterable[str], *, source: str) -> HfNames:
    """Find the text model among a checkpoint's tensor names.

    Raises:
        CheckpointError: no known prefix has layers, or more than one has.
    """
    names = list(names)
    matches = (_LAYER.fullmatch(name) for name in names)
    prefixes = {match["prefix"] for match in matches if match is not None}
    found = [prefix for prefix in TEXT_PREFIXES if prefix in prefixes]
    if len(found) != 1:
        listed = ", ".join(f"{prefix}layers.N" for prefix in found or TEXT_PREFIXES)
        problem = "more than one text model" if found else "no text model"
        raise CheckpointError(
            f"{source}: {problem} among its {len(names)} tensors"
            f" ({'found' if found else 'looked for'} {listed})",
            hint=f"its first tensors are {', '.join(sorted(names)[:3]) or 'none'}",
        )
    head = next((name for name in _HEAD_NAMES if name in names), _HEAD_NAMES[0])
    return HfNames(text_prefix=found[0], head=head)
