"""The arguments of a tool, as words of a command line: `n=3 'lines:=[1, 2]' body=@notes.txt --args @all.json`.

Two steps, because the second needs the tool's schema and the first can fail before any daemon is asked.
`read` takes the words apart and fetches files; `fit` turns text into what the schema wants of it.
Text of another type is passed as text: the tool's own validation has the better message.

`toolcell call` imports this module for each call, so it does without `re`, and imports what few arguments need with them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, NoReturn, TypeAlias, cast

    Schema: TypeAlias = Mapping[str, Any]
else:

    def cast(_, value):
        return value


ARGUMENTS_BYTES_MAX = 16 * 1024 * 1024  # what a call may carry; a longer file needs not be read
REFERENCES_MAX = 16  # `$ref` to a `$ref`; one that leads to itself ends here

DIGITS_MAX = 4000  # of an integer; Python reads 4300
_BOOLEANS = {"true": True, "false": False}


class ParsedArguments:
    """What the command line gives: whole values, and texts in their order."""

    __slots__ = ("texts", "values")

    def __init__(self, values: Mapping[str, Any], texts: Mapping[str, Sequence[str]]) -> None:
        self.values = values
        self.texts = texts


def read(words: Sequence[str], whole: str | None = None) -> ParsedArguments:
    """Take the words apart; what is wrong with them is a Failure that says how to write it."""
    files = _Files()
    values: dict[str, Any] = {}
    if whole is not None:
        values = _object(whole, files)
    texts: dict[str, list[str]] = {}
    exact: set[str] = set()
    for word in words:
        if word.startswith("{"):
            _refuse(f"{word!r} is no argument.", "One JSON object with all arguments is given by --args.")
        key, sign, value = word.partition("=")
        if sign and key.endswith(":"):
            key, sign = key[:-1], ":="
        if not sign or not key:
            _refuse(f"{word!r} is no argument.", "Write key=value, or 'key:=JSON'.")
        if key in exact or (sign == ":=" and key in texts):
            _refuse(f"{key} is given twice.", f'An array is {key}=a {key}=b, or \'{key}:=["a", "b"]\'.')
        if sign == ":=":
            exact.add(key)
            values[key] = _json(key, files.text(key, value[1:]) if value.startswith("@") else value)
        else:
            values.pop(key, None)
            texts.setdefault(key, []).append(files.text(key, value[1:]) if value.startswith("@") else value)
    return ParsedArguments(values, texts)


def fit(given: ParsedArguments, schema: Schema) -> dict[str, Any]:
    """The arguments, each text read as the schema says; a Failure where a key comes twice and takes one value."""
    properties = _mapping(schema.get("properties"))
    arguments = dict(given.values)
    for key, texts in given.texts.items():
        outer, dot, inner = key.partition(".")
        if dot and key not in properties and outer in properties:
            _refuse(
                f"{key} is in {outer}, which is one argument.",
                f"Write it as JSON: '{outer}:={{\"{inner}\": …}}'.",
            )
        options = list(_options(_mapping(properties.get(key)), schema))
        array = next((option for option in options if option.get("type") == "array"), None)
        if array is not None and (len(texts) > 1 or not any("string" in _types(o) for o in options)):
            items = list(_options(_mapping(array.get("items")), schema))
            whole = _array(texts[0], items) if len(texts) == 1 else None
            arguments[key] = [_fitted(text, items) for text in texts] if whole is None else whole
        elif len(texts) == 1:
            arguments[key] = _fitted(texts[0], options)
        elif not properties:
            arguments[key] = list(texts)  # nothing is known of the tool; the daemon will say so
        else:
            _refuse(f"{key} is given {len(texts)} times and takes one value.", f"Leave one {key}=… there.")
    return arguments


def _fitted(text: str, options: Sequence[Schema]) -> Any:
    """Text as one of the types that may stand there; text itself is the first choice where it may."""
    types = {name for option in options for name in _types(option)}
    choices = [choice for option in options for choice in _choices(option)]
    if text in choices or "string" in types:
        return text
    for choice in choices:
        if not isinstance(choice, str) and _dumped(choice) == text:
            return choice
    if "integer" in types and _is_integer(text):
        return int(text)
    if "number" in types and _is_number(text):
        return float(text) if any(letter in text for letter in ".eE") else int(text)
    if "boolean" in types and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    if "null" in types and text == "null":
        return None
    if "object" in types and text.lstrip().startswith("{"):
        import json

        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text


def _array(text: str, items: Sequence[Schema]) -> list[object] | None:
    """The array that a text is, as JSON; None for one that is an item, which a text that is no array of texts may be."""
    if not text.startswith("["):
        return None
    import json

    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list):
        return None
    members = cast("list[object]", found)
    texts = any("string" in _types(option) for option in items)
    return members if not texts or all(isinstance(member, str) for member in members) else None


def _types(option: Schema) -> list[str]:
    kind = option.get("type")
    return [str(name) for name in cast("list[object]", kind)] if isinstance(kind, list) else [str(kind)]


def _is_integer(text: str) -> bool:
    digits = text[1:] if text[:1] in ("+", "-") else text
    return digits.isdecimal() and len(digits) <= DIGITS_MAX


def _is_number(text: str) -> bool:
    """Whether a text is a number as JSON and people write it: "3", "-.5", "2.", "1e-3"."""
    amount = text[1:] if text[:1] in ("+", "-") else text
    for letter in "eE":
        if letter in amount:
            amount, _, power = amount.partition(letter)
            if not (power[1:] if power[:1] in ("+", "-") else power).isdecimal():
                return False
            break
    whole, _, rest = amount.partition(".")
    return (
        (whole + rest).isdecimal() and (whole == "" or whole.isdecimal()) and (rest == "" or rest.isdecimal())
    )


def _dumped(value: object) -> str:
    import json

    return json.dumps(value)


def _choices(option: Schema) -> list[Any]:
    if "const" in option:
        return [option["const"]]
    choices: list[Any] = option.get("enum", [])
    return choices


def _options(schema: Schema, root: Schema, depth: int = 0) -> Iterator[Schema]:
    """The schemas of which a value may fit one: references followed, alternatives taken apart."""
    if depth > REFERENCES_MAX:
        return
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        target: Any = root
        for step in reference[2:].split("/"):
            target = _mapping(target).get(step.replace("~1", "/").replace("~0", "~"))
        yield from _options(_mapping(target), root, depth + 1)
    for key in ("anyOf", "oneOf", "allOf"):
        alternatives = schema.get(key)
        if isinstance(alternatives, list):
            for alternative in cast("list[object]", alternatives):
                yield from _options(_mapping(alternative), root, depth + 1)
    if not schema.keys() & {"$ref", "anyOf", "oneOf", "allOf"}:
        yield schema


def _mapping(value: object) -> Schema:
    return cast("Schema", value) if isinstance(value, dict) else {}


def _object(whole: str, files: _Files) -> dict[str, Any]:
    text = files.text("--args", whole.removeprefix("@")) if whole == "-" or whole.startswith("@") else whole
    value = _json("--args", text)
    if not isinstance(value, dict):
        _refuse(
            f"--args is {type(cast('object', value)).__name__}, not an object.", "Write '{\"key\": value}'."
        )
    return cast("dict[str, Any]", value)


def _json(key: str, text: str) -> Any:
    import json

    def constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is no JSON")

    try:
        return json.loads(text, parse_constant=constant)
    except RecursionError:
        _refuse(f"{key} is nested too deeply to be JSON.")
    except ValueError as error:
        remedy = "Write '{\"key\": value}'." if key == "--args" else f"Plain text is {key}=…, with one sign."
        _refuse(f"{key} is not JSON: {error}.", remedy)


class _Files:
    """Texts of files; stdin can be read once."""

    def __init__(self) -> None:
        self._stdin_for = ""

    def text(self, key: str, path: str) -> str:
        """The text of a file, of stdin for "-"."""
        try:
            if path == "-":
                content = self._stdin(key)
            else:
                with open(path, "rb") as file:
                    content = file.read(ARGUMENTS_BYTES_MAX + 1)
        except OSError as error:
            _refuse(f"{key}: {path}: {error.strerror}.", f"Text that begins with @ is '{key}:=\"@…\"'.")
        if len(content) > ARGUMENTS_BYTES_MAX:
            _refuse(f"{key}: {path} is longer than the 16 MiB of a call.", "Pass the file's path instead.")
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            _refuse(
                f"{key}: {path} is no text: {error.reason} at byte {error.start}.", "Pass its path instead."
            )

    def _stdin(self, key: str) -> bytes:
        if self._stdin_for:
            _refuse(f"{key} and {self._stdin_for} both want stdin.", "Put one of them into a file.")
        self._stdin_for = key
        import sys

        return sys.stdin.buffer.read(ARGUMENTS_BYTES_MAX + 1)


def _refuse(message: str, remedy: str = "") -> NoReturn:
    from toolcell.cli._ui.exit_codes import Misuse

    raise Misuse(message, remedy)
