"""What a user writes: hooks in transformers that save SGLang's files, split over ranks."""

from pathlib import Path

import torch


def dump_forward(model, ids, folder: Path, *, step: int, world: int, edit=None, **more):
    """Save one forward pass as ``world`` ranks of tensor parallelism would, and return the output.

    ``edit(name, rank, tensor)`` may change what is saved; ``more`` goes to the model.
    """
    seen: dict[str, torch.Tensor] = {}
    hooks = []

    def save(name: str, shards: list[torch.Tensor]) -> None:
        for rank, tensor in enumerate(shards):
            tensor = tensor if edit is None else edit(name, rank, tensor)
            tags = f"step={step}___rank={rank}___dump_index={len(seen)}___name={name}"
            data = {"value": tensor.contiguous(), "meta": {"rank": rank, "world_size": world}}
            torch.save(data, folder / f"{tags}___recompute_status=disabled.pt")

    def keep(name: str, output) -> None:
        seen[name] = (output[0] if isinstance(output, tuple) else output)[0].detach()
        parts = [name.rpartition(".")[0] + f".{part}_proj" for part in "qkv"]
        if name == parts[2]:  # q, k and v: every rank has its heads of each, fused
            chunks = [seen[part].chunk(world, dim=-1) for part in parts]
            fused = [torch.cat(own, dim=-1) for own in zip(*chunks, strict=True)]
            save(name.replace("v_proj", "qkv_proj.output"), fused)
        elif name.endswith((".q_norm", ".k_norm")):  # [1, heads, T, head_dim] in Gemma
            save(f"{name}.output", [part[None] for part in seen[name].chunk(world, dim=0)])
        elif not name.endswith(
            ("q_proj", "k_proj", "gate_proj", "up_proj", "act_fn", "rotary_emb")
        ):
            save(f"{name}.output", [seen[name]] * world)

    def keep_input(name: str, args) -> None:
        save(name.replace("o_proj", "attn.output"), list(args[0][0].chunk(world, dim=-1)))

    for name, module in model.named_modules():
        if name.startswith("model."):
            hooks.append(module.register_forward_hook(lambda _, __, out, n=name: keep(n, out)))
        if name.endswith("o_proj"):
            hooks.append(
                module.register_forward_pre_hook(lambda _, args, n=name: keep_input(n, args))
            )
    with torch.inference_mode():
        out = model(torch.tensor([ids]), **more)
    save("input_ids", [torch.tensor(ids)] * world)
    save("logits_processor.output.next_token_logits", [out.logits[0, -1:]] * world)
    for hook in hooks:
        hook.remove()
    return out
