"""Names of a package that are loaded when they are first used, see PEP 562."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy(
    package: str, namespace: dict[str, object], modules: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package.

    Args:
        package: Its name.
        namespace: Its `globals()`; a name that was loaded is kept there.
        modules: The absolute name of the module that has it, by each lazy name.
    """

    def load(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(modules)}")
        value = namespace[name] = getattr(__import__(modules[name], fromlist=(name,)), name)
        return value

    def listed() -> list[str]:
        return sorted({*namespace, *modules})

    return load, listed
