import json
from pathlib import Path

import pytest

from swarepro.cli import values
from swarepro.errors import UsageError


def test_tokens() -> None:
    assert values.parse_tokens("2,818, 5279") == (2, 818, 5279)
    assert values.parse_tokens("0") == (0,)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "item 0 is ''"),
        ("2,", "item 1 is ''"),
        ("2,x", "item 1 is 'x'"),
        ("2,-1", "item 1 is '-1'"),
        ("2,1.5", "item 1 is '1.5'"),
        ("1,\u0663", "item 1"),
        ("9" * 5000, "item 0 is '9{40}\\.\\.\\.'"),
    ],
)
def test_bad_tokens_name_the_item(text: str, named: str) -> None:
    with pytest.raises(UsageError, match=f"--tokens: {named}"):
        values.parse_tokens(text)


def test_tokens_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "ids.json"
    path.write_text("[2, 818, 5279]\n")
    assert values.parse_tokens(f"@{path}") == (2, 818, 5279)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "is not a list of token ids"),
        ("2, 818", "is not a list of token ids"),
        ('{"ids": [1]}', "Expected `array`, got `object`"),
        ("[1, true]", "got `bool` - at `\\$\\[1\\]`"),
        ("[1, 2.5]", "got `float`"),
        ('["1"]', "got `str`"),
        ("[-1]", ">= 0"),
        ("[" * 100_000, "is not a list of token ids"),
        ("[]", "holds no token id"),
        ('[1, "\ud800"]'.encode("utf-8", "surrogatepass").decode("latin-1"), "got `str`"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "ids[x].json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=named) as refused:
        values.parse_tokens(f"@{path}")
    assert str(path) in refused.value.message


def test_a_file_of_other_bytes(tmp_path: Path) -> None:
    path = tmp_path / "ids.json"
    path.write_bytes(b"\xff\xfe[1]")
    with pytest.raises(UsageError, match="is not a list of token ids"):
        values.parse_tokens(f"@{path}")


def test_a_missing_file_a_folder_and_a_huge_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=r"none\.json: cannot be read: No such file"):
        values.parse_tokens(f"@{tmp_path}/none.json")
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        values.parse_tokens(f"@{tmp_path}")
    with pytest.raises(UsageError, match="cannot be read: embedded null"):
        values.parse_tokens("@a\0b")
    monkeypatch.setattr(values, "MAX_ID_FILE_BYTES", 1024**2)
    path = tmp_path / "ids.json"
    path.write_text(json.dumps([1] * 400_000))
    with pytest.raises(UsageError, match="is larger than 1 MiB"):
        values.parse_tokens(f"@{path}")


def test_chunks() -> None:
    assert values.parse_chunks("32,21") == (32, 21)
    with pytest.raises(
        UsageError, match="--chunks: item 1 is '0', wanted an integer of at least 1"
    ):
        values.parse_chunks("32,0")


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("1000", 1000),
        ("1000B", 1000),
        ("512KiB", 512 * 1024),
        ("512 MiB", 512 * 1024**2),
        ("1.5gib", 3 * 1024**3 // 2),
        ("999999999999999", 999_999_999_999_999),
    ],
)
def test_sizes(text: str, num_bytes: int) -> None:
    assert values.parse_size(text) == num_bytes


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1e9", "1TB", "1 2", "inf", "\u0663", "1MB"])
def test_bad_sizes(text: str) -> None:
    with pytest.raises(UsageError, match="is not a size"):
        values.parse_size(text)


def test_globs_must_match_a_point() -> None:
    assert values.parse_globs("L0_*, logits") == ("L0_*", "logits")
    assert values.parse_globs("after_layer_47") == ("after_layer_47",)
    for text in ("L0_o_prj", "L0_*,", "L{layer}_o_proj"):
        with pytest.raises(UsageError, match="matches no capture point"):
            values.parse_globs(text)


@pytest.mark.parametrize("run_id", ["", ".", "..", "a/b", "/a", "a\\b", "a\0b"])
def test_a_run_id_stays_below_its_folder(run_id: str) -> None:
    with pytest.raises(UsageError, match="is not a folder name"):
        values.check_run_id(run_id)
    assert values.check_run_id("anchor-a.1") == "anchor-a.1"
