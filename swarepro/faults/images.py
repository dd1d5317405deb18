"""Defects of what the tokens of an image see of each other."""

from dataclasses import replace

import torch

from swarepro.faults.base import Effect, register
from swarepro.images import Image
from swarepro.kvcache import KVGroup
from swarepro.runtime.images import EndSeen, keys_ahead
from swarepro.runtime.parts import AttentionCall
from swarepro.runtime.wrappers import AttentionWrapper, on_attention

_CHUNK = 8
"""Rows after which an engine's scheduler cuts."""


class ImageSeesCausally(AttentionWrapper):
    """The flag is dropped: a token of an image sees none behind it."""

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Attend to the past alone."""
        return super().attend(replace(call, ahead=None))


class LongImageSeesCausally(AttentionWrapper):
    """In a sliding layer an image longer than the window is no image at all."""

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Leave out what is too long."""
        if call.ahead is None or call.window_left is None:
            return super().attend(call)
        window = call.window_left + 1

        def end_seen(image: Image, positions: torch.Tensor) -> torch.Tensor | int:
            return image[1] if image[1] - image[0] <= window else positions + 1

        return super().attend(_seeing(call, end_seen))


class ImageCutAtChunkEdge(AttentionWrapper):
    """A chunk ends inside an image: its tokens see the others up to there."""

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Cut as though chunks had few rows."""
        if call.ahead is None:
            return super().attend(call)

        def end_seen(image: Image, positions: torch.Tensor) -> torch.Tensor:
            return ((positions // _CHUNK + 1) * _CHUNK).clamp(max=image[1])

        return super().attend(_seeing(call, end_seen))


class ImageInFullLayers(AttentionWrapper):
    """Full layers let the tokens of an image see each other, where the model has them see causally.

    Gemma 3 does so, Gemma 4 does not.
    """

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Look ahead in a full layer, too."""
        if call.group is not KVGroup.FULL:
            return super().attend(call)
        return super().attend(replace(call, ahead=keys_ahead(call.requests, device=call.q.device)))


def _seeing(call: AttentionCall, end_seen: EndSeen) -> AttentionCall:
    ahead = keys_ahead(call.requests, device=call.q.device, end_seen=end_seen)
    return replace(call, ahead=ahead)


register(
    "image-sees-causally",
    "F7",
    "tokens of an image see none behind them, as text does",
    part="attention",
    effect=Effect.DIVERGES,
    wrap=on_attention(ImageSeesCausally),
)
register(
    "long-image-sees-causally",
    "F7",
    "an image longer than the window is dropped as a whole in sliding layers: it is seen causally",
    part="attention",
    effect=Effect.DIVERGES,
    wrap=on_attention(LongImageSeesCausally),
)
register(
    "image-cut-at-chunk-edge",
    "F7",
    "a chunk ends inside an image: tokens before the edge do not see those behind it",
    part="attention",
    effect=Effect.DIVERGES,
    wrap=on_attention(ImageCutAtChunkEdge),
)
register(
    "image-in-full-layers",
    "F7",
    "full layers let tokens of an image see each other, too: Gemma 3's rule on Gemma 4",
    part="attention",
    effect=Effect.DIVERGES,
    wrap=on_attention(ImageInFullLayers),
)
