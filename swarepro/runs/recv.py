"""Hidden states from an earlier run's bundle, for a stage that runs alone."""

from collections.abc import Sequence
from pathlib import Path

import torch

from swarepro import points
from swarepro.bundle.read import open_bundle
from swarepro.bundle.schema import Manifest, TensorRecord
from swarepro.compare.settings import images_of
from swarepro.errors import BundleError
from swarepro.images import Image
from swarepro.plan import Span, Step

_DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}


class BundleHidden:
    """The residual stream that enters ``layer``, step by step; a `HiddenSource`.

    Args:
        path: of a bundle that stores ``after_layer_{layer - 1}``, or the ``boundary_send_hidden``
            of a stage that ends at ``layer``.
        layer: global layer id that the receiving stage starts with.
        model: of the run; the sender's has to be the same.
        prompts: of the run, likewise.
        images: of the run by session, likewise; of an imported bundle nobody knows them.
        hidden_size: E.
        dtype: of the run; the stored one has to be the same.
        device: of the run.

    Raises:
        BundleError: nothing in the bundle enters ``layer``, or it is of another model or prompt.
    """

    def __init__(
        self,
        path: Path,
        *,
        layer: int,
        model: str,
        prompts: tuple[tuple[int, ...], ...],
        images: Sequence[Sequence[Image]],
        hidden_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._bundle = open_bundle(path)
        check_sender(path, self._bundle.manifest, model=model, prompts=prompts, images=images)
        self._path = path
        self._layer = layer
        self._hidden_size = hidden_size
        self._dtype = dtype
        self._device = device
        self._by_span: dict[tuple[int, int], TensorRecord] = {}
        stages = self._bundle.manifest.stages
        for record in self._bundle.records:
            is_send = (
                record.point == points.BOUNDARY_SEND_HIDDEN.name
                and stages[record.stage].layer_end == layer
            )
            is_after = record.point == points.AFTER_LAYER.name and record.layer == layer - 1
            if (is_send or is_after) and record.file is not None:
                self._by_span[record.step, record.session] = record
        if not self._by_span:
            raise BundleError(
                f"{path} stores no hidden states that enter layer {layer}",
                hint=f"run the layers below {layer} with --capture boundary --store tensor",
            )

    def hidden(self, step: Step, span: Span) -> torch.Tensor:
        """Return ``[T, E]`` of a span; raise BundleError when the bundle's step is another."""
        record = self._by_span.get((step.index, span.session))
        wanted = (span.rows, self._hidden_size)
        if record is None or record.row_start != span.start or record.shape != wanted:
            found = (
                "nothing"
                if record is None
                else f"shape {list(record.shape)} from position {record.row_start}"
            )
            raise BundleError(
                f"{self._path}: step {step.index} needs hidden states {list(wanted)} from position"
                f" {span.start}; found {found}",
                hint="run both stages with the same prompt and chunks",
            )
        if _DTYPES.get(record.dtype) is not self._dtype:
            raise BundleError(
                f"{self._path}: {record.name} of step {step.index} is {record.dtype};"
                f" the run's dtype is {self._dtype}"
            )
        data = torch.from_numpy(self._bundle.tensor(record).copy())
        return data.view(self._dtype).reshape(wanted).to(self._device)


def check_sender(
    path: Path,
    sender: Manifest,
    *,
    model: str,
    prompts: tuple[tuple[int, ...], ...],
    images: Sequence[Sequence[Image]],
) -> None:
    """Raise BundleError unless ``sender`` computed what a run of these computes; see above."""
    if sender.model != model:
        raise BundleError(
            f"{path} is a run of {sender.model}; this run is of {model}",
            hint="give both runs the model by the same name",
        )
    if sender.prompts != prompts:
        raise BundleError(
            f"{path} is a run of another prompt",
            hint="run both stages with the same sessions",
        )
    if "imported" in sender.case:
        return
    for session, own in enumerate(images):
        found = images_of(sender, session)
        if found != list(own):
            raise BundleError(
                f"{path} is a run with other images: in session {session} it has"
                f" {list(map(list, found)) or 'none'}, this run {list(map(list, own)) or 'none'}",
                hint="run both stages with the same sessions",
            )
