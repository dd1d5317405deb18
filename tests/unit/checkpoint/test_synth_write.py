"""A synthetic model on disk: transformers and our loader read back what was generated."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from swarepro.checkpoint import open_checkpoint, parse_hf_config, write_synthetic
from swarepro.checkpoint.hf_dump import dump_hf_config
from swarepro.errors import CheckpointError

from .conftest import Load

NAMES = ["gemma4-tiny", "gemma3-tiny", "gemma2-tiny", "gemma4-tiny?seed=7&layers=8"]


@pytest.mark.parametrize("spec", NAMES)
@pytest.mark.parametrize("shards", [None, 1, 5])
def test_written_equals_generated(
    spec: str, shards: int | None, tmp_path: Path, load: Load
) -> None:
    directory = write_synthetic(f"synthetic:{spec}", tmp_path / "model", shards=shards)
    ours, memory = open_checkpoint(str(directory)), open_checkpoint(f"synthetic:{spec}")
    assert ours.config == memory.config
    read, made = load(ours), load(memory)
    assert read.layers.keys() == made.layers.keys()
    for index, layer in made.layers.items():
        for field in layer.__slots__:
            value, other = getattr(layer, field), getattr(read.layers[index], field)
            assert (value is None and other is None) or torch.equal(value, other)
    assert read.head is not None and made.head is not None and torch.equal(read.head, made.head)
    files = sorted(path.name for path in directory.iterdir())
    assert len(files) == (2 if shards is None else shards + 2)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("layers", [1, 5, 6, 7])
@pytest.mark.parametrize("name", ["gemma4-tiny", "gemma3-tiny", "gemma2-tiny", "gemma-4-12b"])
def test_a_config_survives_the_way_to_json_and_back(name: str, layers: int) -> None:
    config = open_checkpoint(f"synthetic:{name}?layers={layers}").config
    data = json.loads(json.dumps(dump_hf_config(config, dtype="bfloat16")))
    assert parse_hf_config(data, source="config.json") == config


def test_shards_are_about_equal(tmp_path: Path) -> None:
    directory = write_synthetic("gemma4-tiny", tmp_path / "model", shards=4)
    sizes = [path.stat().st_size for path in directory.glob("*.safetensors")]
    assert len(sizes) == 4 and max(sizes) < 2 * min(sizes)
    index = json.loads((directory / "model.safetensors.index.json").read_text())
    for name, file in index["weight_map"].items():
        with safe_open(directory / file, framework="pt") as shard:
            assert shard.get_slice(name).get_shape()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shards", [None, 2])
@pytest.mark.parametrize("spec", NAMES)
def test_transformers_loads_it_and_greedy_tokens_move(
    spec: str, shards: int | None, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers", reason="the hf extra is not installed")
    directory = write_synthetic(spec, tmp_path / "model", shards=shards)
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        directory, output_loading_info=True, dtype=torch.float32
    )
    assert not any(info.values()), info
    assert type(model).__name__ == f"Gemma{spec[5]}ForCausalLM"
    prompt = torch.arange(3, 73)[None] * 37 % 500
    model.generation_config.eos_token_id = None
    tokens = model.generate(
        prompt, max_new_tokens=32, do_sample=False, attention_mask=torch.ones_like(prompt)
    )[0, prompt.shape[1] :].tolist()
    assert len(set(tokens)) >= 8, tokens


@pytest.mark.parametrize(("dtype", "name"), [("fp32", "F32"), ("fp16", "F16"), ("bf16", "BF16")])
def test_dtype_is_written(dtype: str, name: str, tmp_path: Path) -> None:
    directory = write_synthetic("gemma3-tiny", tmp_path / "model", dtype=dtype)
    with safe_open(directory / "model.safetensors", framework="pt") as file:
        assert file.get_slice("model.norm.weight").get_dtype() == name


def test_an_existing_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "keep.txt").write_text("x")
    with pytest.raises(CheckpointError, match="already exists and is not an empty directory"):
        write_synthetic("gemma3-tiny", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["keep.txt"]
    with pytest.raises(CheckpointError, match="already exists"):
        write_synthetic("gemma3-tiny", tmp_path / "keep.txt")
    (tmp_path / "empty").mkdir()
    write_synthetic("gemma3-tiny", tmp_path / "empty")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shards": 0}, "cannot write 0 shards of"),
        ({"shards": 10_000}, "cannot write 10000 shards of"),
        ({"dtype": "int8"}, "unknown dtype 'int8'"),
    ],
)
def test_bad_arguments_write_nothing(
    arguments: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=message):
        write_synthetic("gemma3-tiny", tmp_path / "model", **arguments)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_a_failing_write_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match="cannot write"):
        write_synthetic("gemma3-tiny", tmp_path / "file" / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    """The second shard does not fit a file size limit that the config and the first one respect."""
    code = (
        "import resource, sys; from pathlib import Path\n"
        "from swarepro.checkpoint import write_synthetic\n"
        "from swarepro.errors import CheckpointError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), -1))\n"
        "try: write_synthetic('gemma4-tiny', Path(sys.argv[1]), shards=3)\n"
        "except CheckpointError as error: print(error.message)\n"
        "else: print('written')\n"
    )

    def run(limit: int) -> str:
        command = [sys.executable, "-c", code, str(tmp_path / "model"), str(limit)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert f"cannot write {tmp_path / 'model'}: " in run(300_000)
    assert not list(tmp_path.iterdir())
    assert run(3_000_000) == "written\n"


def test_an_empty_folder_is_filled_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``swarepro synth NAME .`` and a link to an empty folder: the folder stays the same one."""
    here = tmp_path / "here"
    here.mkdir()
    before = here.stat().st_ino
    monkeypatch.chdir(here)
    write_synthetic("gemma4-tiny", Path())
    assert sorted(path.name for path in here.iterdir()) == ["config.json", "model.safetensors"]
    assert here.stat().st_ino == before
    empty, link = tmp_path / "empty", tmp_path / "link"
    empty.mkdir()
    link.symlink_to(empty)
    write_synthetic("gemma4-tiny", link, shards=2)
    assert (empty / "model.safetensors.index.json").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "here", "link"]
