"""What a manifest says about how kernels were launched."""

from swarepro.backend import Backend, torch_dtype
from swarepro.checkpoint.config import ModelConfig
from swarepro.errors import BackendError

Launches = dict[str, list[dict[str, int]]]


def describe_launches(config: ModelConfig, *, dtype: str, backend: Backend) -> Launches:
    """Return every kernel's launch configurations by its name; empty where no kernel runs.

    Row-wise kernels give their whole table, by row width; attention kernels one entry for each
    head_dim of the model.

    Raises:
        BackendError: a row or a head of the model fits no configuration.
    """
    if backend.triton == "off":
        return {}
    from swarepro_kernels.launch import launch_tables, tile_for
    from swarepro_kernels.launch_attention import describe_attention_launches

    launches = launch_tables()
    try:
        tile_for("rms_norm", config.hidden_size)
        for head_dim in sorted({layer.head_dim for layer in config.layers}):
            tile_for("store_kv", head_dim)
            tile_for("rope", head_dim // 2)
            found = describe_attention_launches(head_dim, torch_dtype(dtype), backend.torch_device)
            for kernel, chosen in found.items():
                launches.setdefault(kernel, []).append({"head_dim": head_dim, **chosen})
    except ValueError as error:
        raise BackendError(str(error), hint="use --route eager") from None
    return launches
