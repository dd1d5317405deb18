"""A frozen state on disk: saved by one process, replayed by another, on another route or device.

A folder with ``state.json``, sealed, and ``state.safetensors``: the pools, and the tensors that
the parts hold. Reading it executes nothing.
"""

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import safetensors
import safetensors.torch
import torch

from swarepro.build import Execution
from swarepro.bundle.digest import digest_bytes
from swarepro.case import CaseSpec, convert_case
from swarepro.errors import BundleError
from swarepro.frozen import RANDOM_STATE, REMEMBERED, StateTree
from swarepro.options import Fill
from swarepro.runs.prepare import Prepared

_JSON, _TENSORS = "state.json", "state.safetensors"


class SavedState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``state.json`` holds.

    Attributes:
        format: of the file.
        case: that ran.
        faults: that were in it, besides the case's own background.
        fill: of memory that nobody wrote; None = as chosen by the schedule.
        ownership: whether the shadow watched.
        route: the attention implementation of the steps before.
        algorithm: of the digests of rows that the shadow keeps.
        dtype: of the run.
        schedule: of the steps before.
        step: the first one that has not run.
        prefix_runs: runs from scratch whose outputs before the step were the same.
        tokens: generated so far, by session.
        digests: of the state, by what each is of.
        root: what the parts know; see `swarepro.frozen.tree`.
        num_tensors: that ``root`` refers to.
        tensors_digest: XXH3-128 of ``state.safetensors``.
        seal: XXH3-128 of all other fields.
    """

    format: Literal["swarepro-state/1"] = "swarepro-state/1"
    case: dict[str, Any]
    faults: tuple[str, ...]
    fill: Fill | None
    ownership: bool
    route: str
    algorithm: str
    dtype: str
    schedule: Annotated[str, msgspec.Meta(pattern="^(program|hardware|seeded:[0-9]{1,18})$")]
    step: Annotated[int, msgspec.Meta(ge=0)]
    prefix_runs: Annotated[int, msgspec.Meta(ge=1)]
    tokens: tuple[tuple[int, ...], ...]
    digests: dict[str, str]
    root: Any
    num_tensors: Annotated[int, msgspec.Meta(ge=0, le=100_000)]
    tensors_digest: str
    seal: str = ""

    @property
    def spec(self) -> CaseSpec:
        """The case. Raises CaseError."""
        return convert_case(self.case, source="the saved state")


def save_state(
    directory: Path,
    run: Execution,
    prepared: Prepared,
    *,
    step: int,
    schedule: str,
    prefix_runs: int,
) -> SavedState:
    """Write the state of ``run``, which stands before ``step``, as the new folder ``directory``.

    Raises:
        BundleError: it exists, or cannot be written; nothing is left behind then.
    """
    if directory.exists():
        raise BundleError(
            f"{directory} exists already; a saved state is never overwritten",
            hint="choose another folder for --save, or remove it first",
        )
    tree = run.describe()
    tensors = {f"tensor {index}": tensor for index, tensor in enumerate(tree.tensors)}
    tensors |= {f"pool {name}": pool for name, pool in run.pools().items()}
    tensors[RANDOM_STATE] = torch.get_rng_state()
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    except OSError as error:
        raise BundleError(f"cannot write {directory}: {error.strerror}") from error
    try:
        copies = {name: each.detach().cpu().clone().contiguous() for name, each in tensors.items()}
        safetensors.torch.save_file(copies, folder / _TENSORS)
        plain = SavedState(
            case=msgspec.to_builtins(prepared.case),
            faults=prepared.options.faults,
            fill=prepared.options.fill,
            ownership=prepared.options.is_watched,
            route=prepared.route,
            algorithm=run.row_algorithm,
            dtype=prepared.case.dtype,
            schedule=schedule,
            step=step,
            prefix_runs=prefix_runs,
            tokens=run.outcome.tokens,
            digests=run.state(),
            root=tree.root,
            num_tensors=len(tree.tensors),
            tensors_digest=digest_bytes((folder / _TENSORS).read_bytes()),
        )
        # Through JSON first: the case may hold values that come back as others.
        plain = msgspec.json.decode(msgspec.json.encode(plain), type=SavedState)
        saved = msgspec.structs.replace(plain, seal=_seal(plain))
        (folder / _JSON).write_bytes(msgspec.json.encode(saved))
        folder.replace(directory)
    except (OSError, safetensors.SafetensorError) as error:
        raise BundleError(f"cannot write {directory}: {error}") from error
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(folder)
    return saved


def read_state(directory: Path) -> SavedState:
    """Read ``state.json`` and check both files against their digests.

    Raises:
        BundleError: it is no saved state, or not as it was written.
    """
    try:
        saved = msgspec.json.decode((directory / _JSON).read_bytes(), type=SavedState)
        found = digest_bytes((directory / _TENSORS).read_bytes())
    except OSError as error:
        raise BundleError(
            f"{directory} is no saved state: cannot read {error.filename}: {error.strerror}",
            hint="`swarepro replay CASE --step K --save DIR` writes one",
        ) from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BundleError(f"{directory / _JSON} is no saved state: {error}") from error
    if _seal(saved) != saved.seal:
        raise BundleError(f"{directory / _JSON}: changed since it was written: the seal is broken")
    if saved.spec.dtype != saved.dtype:
        raise BundleError(f"{directory / _JSON}: of {saved.dtype}, and its case is not")
    if found != saved.tensors_digest:
        raise BundleError(f"{directory / _TENSORS}: changed since it was written")
    return saved


def adopt_state(directory: Path, saved: SavedState, run: Execution, *, route: str) -> None:
    """Put a saved state into ``run``, and prove by its digests that it holds it then.

    Args:
        directory: of the state.
        saved: as it was read from there.
        run: set up alike; it has run nothing.
        route: of the run; on another one than the state's, the route keeps what is its own.

    Raises:
        BundleError: the state is of another shape than the run, or not as it was saved, by name.
    """
    try:
        tensors = safetensors.torch.load_file(directory / _TENSORS)
    except (OSError, safetensors.SafetensorError, RuntimeError) as error:
        raise BundleError(f"{directory / _TENSORS} cannot be read: {error}") from error
    pools = run.pools()
    wanted = {f"tensor {index}" for index in range(saved.num_tensors)}
    wanted |= {RANDOM_STATE, *(f"pool {name}" for name in pools)}
    if tensors.keys() != wanted:
        odd = sorted(tensors.keys() ^ wanted)
        raise BundleError(f"{directory}: {odd[0]} is not in both the saved state and this run")
    for name, pool in pools.items():
        _fill_pool(name, pool, tensors[f"pool {name}"])
    held = tuple(tensors[f"tensor {index}"] for index in range(saved.num_tensors))
    run.adopt(StateTree(root=saved.root, tensors=held), saved.tokens)
    try:
        torch.set_rng_state(tensors[RANDOM_STATE])
        found = run.state()
    except (AttributeError, LookupError, TypeError, ValueError, RuntimeError) as error:
        raise BundleError(f"{directory} holds no state of its case: {error}") from error
    # A route remembers its own launches, so that another one remembers others.
    wrong = [
        name
        for name, digest in saved.digests.items()
        if found.get(name) != digest and (saved.route == route or name != REMEMBERED)
    ]
    if wrong or found.keys() != saved.digests.keys():
        odd = wrong or sorted(found.keys() ^ saved.digests.keys())
        raise BundleError(
            f"{directory}: what was read is not the state that was saved: {', '.join(odd)}"
        )


def _fill_pool(name: str, pool: torch.Tensor, found: torch.Tensor) -> None:
    if found.shape != pool.shape or found.dtype is not pool.dtype:
        raise BundleError(
            f"the saved pool {name} is {found.dtype} {list(found.shape)}; the run's is"
            f" {pool.dtype} {list(pool.shape)}"
        )
    pool.copy_(found)


def _seal(saved: SavedState) -> str:
    return digest_bytes(msgspec.json.encode(msgspec.structs.replace(saved, seal="")))
