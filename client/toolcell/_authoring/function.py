"""A function as a tool: its signature read into fields, its calls put together from them.

Annotations are resolved one by one, after the file has run, so that a forward reference works and a message can
name the parameter. `ToolContext` resolves even where the file imports it only for type checkers.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, SimpleNamespace
from typing import Annotated, Any, Final, TypeAlias, Union, cast, get_args, get_origin, get_type_hints

from pydantic import Field
from pydantic.fields import FieldInfo

from toolcell._arguments.docstring import parse
from toolcell._arguments.parameters import InvalidToolDefinition, Parameters, from_fields
from toolcell._authoring.checker_imports import missing_import
from toolcell._authoring.returns import Returns, returns_of
from toolcell._context.context import ToolContext

Call: TypeAlias = Callable[[Any, ToolContext], object]
_CACHED: Final = type(functools.cache(str))
_OF_JSON: Final = (str, int, float, bool, list, dict, type(None))


def read_function(function: Callable[..., object]) -> tuple[str, Parameters, Call, Returns | None]:
    """The description, the parameters, the call and the value of a decorated function; raises InvalidToolDefinition."""
    description, sentences = parse(inspect.getdoc(function) or "")
    known = _known_names(function)
    fields: dict[str, Any] = {}
    contexts: set[str] = set()
    parameters = inspect.signature(function).parameters
    _check_bound(function, next(iter(parameters.values()), None))
    is_cached = _is_cached(function)
    if is_cached and is_async(function):
        raise InvalidToolDefinition(
            "functools keeps the coroutine of its first call, which can be awaited once; leave the cache out"
        )
    registry = _registry(function)
    positional = [*parameters][:1] if registry else []
    for name, parameter in parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise InvalidToolDefinition(
                f"it takes {parameter}, and the arguments of a tool have names; {_way_out(function)}"
            )
        if parameter.kind is parameter.POSITIONAL_ONLY and name not in positional:
            positional.append(name)
        hint = _resolved(name, parameter.annotation, known)
        if is_cached and _bare(hint) in (list, dict, set):
            raise InvalidToolDefinition(
                f"parameter {name!r}: functools keeps no results by a {_bare(hint).__name__}; "
                "leave the cache out, or annotate a tuple, as tuple[int, ...]"
            )
        if registry and name == positional[0] and hint is not Any:
            hint = Union[(hint, *(each for each in registry if each in _OF_JSON))]
        if _is_context(hint):
            contexts.add(name)
        else:
            fields[name] = _field(hint, parameter.default, sentences.get(name))

    def call(arguments: dict[str, Any], context: ToolContext) -> object:
        named = arguments | dict.fromkeys(contexts, context)
        return function(*[named.pop(name) for name in positional], **named)

    def call_by_name(arguments: dict[str, Any], _: ToolContext) -> object:
        return function(**arguments)

    # The annotation of the first function that is chosen from says nothing of the others.
    returns = None if registry else returns_of(function, lambda hint: _resolved("return", hint, known))
    by_name = not positional and not contexts
    return description, from_fields(fields), call_by_name if by_name else call, returns


def _check_bound(function: Any, first: inspect.Parameter | None) -> None:
    """Raise InvalidToolDefinition for a method without its object, whose `self` would be an argument."""
    if first is None or first.name not in ("self", "cls"):
        return
    if first.annotation is not first.empty or first.default is not first.empty:
        return
    owner, _, name = getattr(function, "__qualname__", "").rpartition(".")
    if not owner or owner.endswith("<locals>"):
        raise InvalidToolDefinition(f"it takes {first.name}, and is no method; leave {first.name} out")
    made = made_by_call(getattr(function, "__globals__", {}).get(owner), owner)
    raise InvalidToolDefinition(
        f"it is a method of {owner} without an object, so {first.name} would be an argument; write, for example: "
        f"tools = [{made}.{name}]"
    )


def made_by_call(kind: Any, name: str) -> str:
    """Return a call that makes an object of a class of that name, with `...` for each argument that it has to have."""
    try:
        parameters = inspect.signature(kind).parameters.values() if isinstance(kind, type) else ()
    except (TypeError, ValueError):
        parameters = ()
    wanted = [
        one.name if one.kind is one.POSITIONAL_ONLY else f"{one.name}=..."
        for one in parameters
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    return f"{name}({', '.join(wanted)})"


def _registry(function: Any) -> Sequence[type]:
    """The classes that a `functools.singledispatch` chooses by, whose first argument has no name; none for others."""
    found = getattr(function, "registry", None)
    return [*cast("Mapping[type, object]", found)] if isinstance(found, MappingProxyType) else []


def _way_out(function: Callable[..., object]) -> str:
    """What to do about arguments without names, which a function within another one has mostly from a decorator."""
    if "<locals>" in getattr(function, "__qualname__", ""):
        return "if a decorator has hidden them, put @functools.wraps(function) above the function that the decorator returns"
    return "write them out"


def check_execute(execute: Any) -> None:
    """Raise InvalidToolDefinition unless it can be called with arguments and a context."""
    try:
        inspect.signature(execute).bind({}, None)
    except TypeError as error:
        raise InvalidToolDefinition(f"execute is called with the arguments and a context: {error}") from None
    except ValueError:
        return  # written in C, without a signature


def yields(function: Any) -> bool:
    """Whether calling it makes a generator."""
    return any(
        inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each) for each in _layers(function)
    )


def is_async(function: Any) -> bool:
    """Whether calling it makes a coroutine, also through a wrapper that says what it wraps."""
    return any(inspect.iscoroutinefunction(each) for each in _layers(function))


def line_of(function: Any) -> int:
    """The line where the function begins, with its decorators; 0 where there is none."""
    for each in _layers(function):
        code = getattr(each, "__code__", None)
        if code is not None:
            return int(code.co_firstlineno)
    return 0


def _layers(function: Callable[..., object]) -> list[Any]:
    """What could hold the code: the function, what it wraps, the `__call__` of an object."""
    innermost = inspect.unwrap(function)
    return [innermost, function, vars(type(function)).get("__call__")]


def _known_names(function: Any) -> dict[str, Any]:
    own = getattr(inspect.unwrap(function), "__globals__", {})
    return {"ToolContext": ToolContext, **own}


def _resolved(name: str, annotation: Any, known: Mapping[str, Any]) -> Any:
    if annotation is inspect.Parameter.empty:
        return Any
    holder = SimpleNamespace(__annotations__={name: annotation})
    try:
        return get_type_hints(holder, globalns=dict(known), include_extras=True)[name]
    except Exception as error:  # an annotation is an expression of the tool's
        said = missing_import(error)
        hint = f"; {said}" if said else ""
        raise InvalidToolDefinition(
            f"parameter {name!r}: its annotation {annotation!r} cannot be read: {error}{hint}"
        ) from error


def _is_cached(function: Any) -> bool:
    """Whether `functools` keeps its results; other libraries' caches take what theirs does not."""
    return isinstance(function, _CACHED)


def _bare(hint: Any) -> Any:
    """The class of an annotation, without what it holds."""
    if get_origin(hint) is Annotated:
        hint = hint.__origin__
    return get_origin(hint) or hint


def _is_context(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        hint = hint.__origin__
    alternatives = (hint, *get_args(hint))
    return any(isinstance(each, type) and issubclass(each, ToolContext) for each in alternatives)


def _field(hint: Any, default: Any, sentence: str | None) -> Any:
    """The annotation as pydantic reads it: Field wins over the bare string, that over the docstring."""
    extras: tuple[Any, ...] = ()
    if get_origin(hint) is Annotated:
        hint, extras = hint.__origin__, hint.__metadata__
    description = next((extra for extra in extras if isinstance(extra, str)), sentence)
    layers: list[Any] = [Field(description=description)] if description else []
    layers += [extra for extra in extras if not isinstance(extra, str)]
    if isinstance(default, FieldInfo):
        layers.append(default)
    elif default is not inspect.Parameter.empty:
        layers.append(Field(default=default))
    return Annotated[(hint, *layers)] if layers else hint
