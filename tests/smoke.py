"""The smoke check: the anchors through the command line, as a user runs them.

Unpatched, each has to be found nondeterministic at the right two boundaries; patched,
deterministic.
"""

import json
import subprocess
import sys
from typing import Any

ANCHORS = ("anchor-a", "anchor-b")
EARLIEST = {"step": 0, "session": 0, "name": "L0_kv_slice_post_write", "layer": 0, "kind": "state"}
FIRST_VALUE = {"step": 1, "session": 0, "name": "L0_attention_output", "layer": 0, "kind": "value"}
UNPATCHED = {
    "verdict": "NONDETERMINISTIC",
    "earliest_varying": EARLIEST,
    "first_value_varying": FIRST_VALUE,
}
PATCHED = {"verdict": "DETERMINISTIC", "earliest_varying": None, "first_value_varying": None}


def determinism(anchor: str, *options: str) -> tuple[int, dict[str, Any]]:
    """Run `swarepro determinism` and return its exit code and its JSON."""
    command = [
        *(sys.executable, "-c", "from swarepro.cli.app import main; main()"),
        *("determinism", anchor, "--repeats", "6", "--json", *options),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    try:
        return done.returncode, json.loads(done.stdout)
    except json.JSONDecodeError:
        sys.exit(f"smoke: {anchor} {options}: exit {done.returncode}, no JSON: {done.stdout!r}")


def main() -> None:
    """Check both arms of every anchor; exit 1 at any difference."""
    failed = 0
    for anchor in ANCHORS:
        for options, code, wanted in ((["--unpatched"], 1, UNPATCHED), ([], 0, PATCHED)):
            exit_code, answer = determinism(anchor, *options)
            found = {key: answer.get(key) for key in wanted}
            ok = (exit_code, found) == (code, wanted)
            failed += not ok
            arm = "unpatched" if options else "patched"
            print(
                f"{'ok  ' if ok else 'FAIL'} {anchor} {arm}: exit {exit_code}, {found['verdict']}"
            )
            if not ok:
                print(f"     wanted exit {code}, {wanted}\n     found  exit {exit_code}, {found}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
