"""The tools of the documentation load; that they have no type errors, and mistakes have, is for `make types`."""

from pathlib import Path

from toolcell._authoring.discover import exports

HERE = Path(__file__).parent


def test_the_tools_of_the_documentation_load() -> None:
    namespace: dict[str, object] = {"__name__": "good"}
    exec(compile((HERE / "good.py").read_text(), "good.py", "exec"), namespace)
    found = exports(namespace, "good")
    assert not found.problems
    assert [export.name.removeprefix("good_") for export in found.tools] == [
        "words",
        "lint",
        "index",
        "drop",
        "order",
        "plot",
        "issues",
        "greet",
    ]
