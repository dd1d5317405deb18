"""What is said above an answer about two runs: what was set otherwise, or that nothing was."""

from collections.abc import Sequence

from swarepro.report.words import listed

_MOST = 12


def settings_said(differences: Sequence[str], *, equal: bool) -> tuple[str, ...]:
    """Return sentences for a report's preface.

    Args:
        differences: what the manifests say differs.
        equal: whether the runs have the same bytes and tokens.
    """
    if differences:
        return (f"The runs differ in: {listed(differences, most=_MOST)}.",)
    if equal:
        return ()
    return (
        "Nothing that the bundles record was set otherwise: either something that they do not"
        " record, or the run varies by itself, and `swarepro determinism` says where first.",
    )
