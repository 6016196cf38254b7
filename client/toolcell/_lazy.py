"""Names of a package that are loaded when they are first used, see PEP 562."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def lazy(
    package: str, namespace: dict[str, object], modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package.

    Args:
        package: Its name.
        namespace: Its `globals()`; a name that was loaded is kept there.
        modules: The lazy names, by the absolute name of the module that has them.
    """
    places = {name: module for module, names in modules.items() for name in names}

    def load(name: str) -> object:
        if name not in places:
            known = ", ".join(sorted(places))
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {known}")
        value = namespace[name] = getattr(__import__(places[name], fromlist=(name,)), name)
        return value

    def listed() -> list[str]:
        return sorted({*namespace, *places})

    return load, listed
