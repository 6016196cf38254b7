"""Stands for the process that speaks with Ray: it has the nodes of a file, which the test writes, and notes what it is asked for."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

FILE = "FAKE_RAY"


def main() -> None:
    """Answer until the end of the input."""
    path = Path(os.environ[FILE])
    known = json.loads(path.read_text())
    json.loads(sys.stdin.readline())
    stuck = known.get("stuck")
    if stuck == "connect":
        signal.pause()
    hello: dict[str, object] = {"error": known["refused"]} if "refused" in known else {"value": {}}
    print(json.dumps({"id": 0, **hello}), flush=True)
    kept: dict[str, str] = {}
    for line in sys.stdin:
        request = json.loads(line)
        value: object = None
        with path.with_suffix(".asked").open("a") as asked:
            asked.write(line)
        match request["do"]:
            case "down" if stuck:
                signal.pause()
            case "nodes":
                if path.with_suffix(".stuck").exists():
                    path.with_suffix(".stuck").unlink()
                    signal.pause()
                known = json.loads(path.read_text())
                if place := known.get("started"):  # by the autoscaler
                    kept = {key: there or place for key, there in kept.items()}
                value = {"nodes": known["nodes"], "kept": kept}
            case "rest":
                pass
            case "start":
                value = request["volumes"]
            case "reserve":
                value = request["resources"].get("GPU", 0) <= 1
                kept = {key: place for key, place in kept.items() if key not in request["instead"]}
                kept |= {request["key"]: request["node_id"]} if value else {}
            case "want" if request["resources"]["GPU"] == 1.5:
                print(json.dumps({"id": request["id"], "error": "no whole number"}), flush=True)
                continue
            case "want":
                kept[request["key"]] = ""
            case "release":
                kept = {key: place for key, place in kept.items() if key not in request["keys"]}
            case _:
                sys.exit(1)  # as if Ray's control plane were lost
        print(json.dumps({"id": request["id"], "value": value}), flush=True)


if __name__ == "__main__":
    main()
