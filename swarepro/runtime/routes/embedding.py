"""The rows of the embedding, as every route reads them: torch's own lookup."""

import torch


def scaled_embedding(ids: torch.Tensor, weight: torch.Tensor, scale: float) -> torch.Tensor:
    """Return rows ``ids [T]`` int64 of ``weight [V, E]`` times ``scale``, rounded to its dtype.

    Returns:
        ``[T, E]``, weight's dtype.
    """
    factor = torch.tensor(scale, dtype=weight.dtype, device=weight.device)
    return torch.nn.functional.embedding(ids, weight) * factor
