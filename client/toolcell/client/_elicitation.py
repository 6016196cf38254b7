"""Forms of MCP (`elicitation/create`) for an agent that puts one question after the other: a field is a question.

A tool, or an MCP server, asks for a form with the service `mcp.input`, which hosts of MCP have. Where an application answers
`ui.question` alone, `connect` serves `mcp.input` by it. What is asked comes from a tool's process, so it is checked and bounded
here; what was typed is read as the field says, and asked for again where it does not fit.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from toolcell._results.errors import ToolError

from .call import Call
from .callbacks import Service
from .forms import OPTIONS_MAX, QUESTION, Question

INPUT: Final = "mcp.input"
METHOD: Final = "elicitation/create"
REQUESTS_MAX: Final = 8
FIELDS_MAX: Final = 32
"""Of all forms of one request; a person answers them one after the other."""
TRIES_MAX: Final = 3
"""For a value that does not fit its field; then the form counts as dismissed."""
TEXT_CHARACTERS_MAX: Final = 4096
"""Of a message, a label and a description each; the rest is cut."""
SKIP: Final = "(no answer)"
"""What is chosen to leave out a field that need not be filled."""

Filling: TypeAlias = Generator[Question, object, dict[str, Any]]
"""Yields questions and is sent the value of each, None for one that was dismissed; returns the results by their names."""


class _Unfit(Exception):
    """What was typed does not fit; the text says what would."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    label: str
    kind: str
    """"string", "integer", "number", "boolean", "choice" or "choices"."""
    options: Mapping[str, str]
    """Of a choice: the values, by what is shown of them."""
    default: str
    required: bool
    least: float
    most: float

    def question(self, call: Call, message: str, wrong: str) -> Question:
        """Return the question for it, with what was wrong with the answer before."""
        text = f"{message}{' ' if message[-1] in '.!?' else ': '}{self.label}"
        if self.kind == "choices":
            text = f"{text} (of {', '.join(self.options)}; with commas between several)"
        if wrong:
            text = f"{text} ({wrong})"
        if self.kind == "boolean":
            return Question(call, "confirm", text)
        if self.kind == "choice":
            return Question(call, "select", text, (*self.options, *(() if self.required else (SKIP,))))
        return Question(call, "input", text, default=self.default)

    def read(self, answer: object) -> object:
        """Return the value of an answer, None to leave the field out. Raises _Unfit."""
        if self.kind == "boolean":
            return bool(answer)
        text = str(answer)
        if self.kind == "choice":
            if not self.required and text == SKIP:
                return None
            return self._value(text)
        if not self.required and not text.strip():
            return None
        if self.kind == "choices":
            return [self._value(part.strip()) for part in text.split(",") if part.strip()]
        if self.kind == "string":
            self._check(len(text), "characters")
            return text
        return self._number(text)

    def _value(self, shown: str) -> str:
        if shown not in self.options:
            raise _Unfit(f"one of these is wanted: {', '.join(self.options)}")
        return self.options[shown]

    def _number(self, text: str) -> int | float:
        try:
            value = int(text) if self.kind == "integer" else float(text)
        except ValueError:
            raise _Unfit(f"a {'whole number' if self.kind == 'integer' else 'number'} is wanted") from None
        if isinstance(value, float) and not math.isfinite(value):
            raise _Unfit("a number is wanted")
        self._check(value, "")
        return value

    def _check(self, figure: float, unit: str) -> None:
        if not self.least <= figure <= self.most:
            bounds = [f"at least {self.least:g}"] if self.least > -math.inf else []
            bounds += [f"at most {self.most:g}"] if self.most < math.inf else []
            raise _Unfit(f"{' and '.join(bounds)} {unit}".rstrip())


@dataclass(frozen=True, slots=True)
class _Form:
    message: str
    fields: tuple[_Field, ...]


def with_forms(services: Mapping[str, Service] | None) -> Mapping[str, Service]:
    """Return services with `mcp.input`, if they have `ui.question` and it not."""
    services = services or {}
    question = services.get(QUESTION)
    if question is None or INPUT in services:
        return services

    async def serve(call: Call, /, **requests: object) -> object:
        filling, answer = fill(call, requests), None
        while True:
            try:
                asked = filling.send(answer)
            except StopIteration as end:
                return end.value
            told = await question(
                call,
                kind=asked.kind,
                message=asked.message,
                options=list(asked.options),
                default=asked.default,
            )
            answer = cast("dict[str, object]", told)["value"]

    return {**services, INPUT: serve}


def fill(call: Call, requests: Mapping[str, object]) -> Filling:
    """Have the forms of one request filled. Raises ToolError for what is no form."""
    if not 1 <= len(requests) <= REQUESTS_MAX:
        raise ToolError(f"{INPUT} takes 1 to {REQUESTS_MAX} requests, got {len(requests)}")
    forms = {name: _form(name, request) for name, request in requests.items()}
    if sum(len(form.fields) for form in forms.values()) > FIELDS_MAX:
        raise ToolError(f"a person is asked for {FIELDS_MAX} values at most")
    results: dict[str, Any] = {}
    for name, form in forms.items():
        results[name] = yield from _fill(call, form)
    return results


def _fill(call: Call, form: _Form) -> Filling:
    if not form.fields:
        agreed = yield Question(call, "confirm", form.message)
        if agreed is None:
            return {"action": "cancel"}
        return {"action": "accept", "content": {}} if agreed else {"action": "decline"}
    content: dict[str, object] = {}
    for field in form.fields:
        wrong = ""
        for _ in range(TRIES_MAX):
            answer = yield field.question(call, form.message, wrong)
            if answer is None:
                return {"action": "cancel"}
            try:
                value = field.read(answer)
            except _Unfit as unfit:
                wrong = str(unfit)
                continue
            if value is not None:
                content[field.name] = value
            break
        else:
            return {"action": "cancel"}
    return {"action": "accept", "content": content}


def _form(name: str, request: object) -> _Form:
    asked = _table(request)
    if asked.get("method") != METHOD:
        raise ToolError(
            f"{name:.80}: this agent answers forms alone ({METHOD}); it has no model and no roots for tools"
        )
    params = _table(asked.get("params"))
    schema = _table(params.get("requestedSchema"))
    message, properties = params.get("message"), schema.get("properties")
    if (
        params.get("mode", "form") != "form"
        or not isinstance(message, str)
        or not isinstance(properties, dict)
    ):
        raise ToolError(f"{name:.80}: a form has a message and a requestedSchema with properties")
    required = schema.get("required")
    needed = cast("list[object]", required) if isinstance(required, list) else []
    fields = cast("dict[str, object]", properties)
    if len(fields) > FIELDS_MAX:
        raise ToolError(f"a person is asked for {FIELDS_MAX} values at most")
    return _Form(
        message.strip()[:TEXT_CHARACTERS_MAX].rstrip(": ") or "A form",
        tuple(_field(key, _table(value), required=key in needed) for key, value in fields.items()),
    )


def _field(name: str, schema: Mapping[str, object], *, required: bool) -> _Field:
    kind, many = schema.get("type"), schema.get("type") == "array"
    options = _options(_table(schema.get("items")) if many else schema)
    if options is not None and (many or kind == "string"):
        kind = "choices" if many else "choice"
    elif kind not in ("string", "integer", "number", "boolean"):
        raise ToolError(
            f"the type of {name!r:.80} should be string, integer, number, boolean, or an array of options"
        )
    hints = [] if required or kind == "boolean" else ["optional"]
    if isinstance(form := schema.get("format"), str):
        hints.insert(0, form[:TEXT_CHARACTERS_MAX])
    title, description = (
        _text(schema.get("title")) or name[:TEXT_CHARACTERS_MAX],
        _text(schema.get("description")),
    )
    label = f"{title} ({', '.join(hints)})" if hints else title
    least, most = ("minLength", "maxLength") if kind == "string" else ("minimum", "maximum")
    default = schema.get("default")
    return _Field(
        name,
        f"{label}: {description}" if description else label,
        kind,
        options or {},
        str(default)[:TEXT_CHARACTERS_MAX] if isinstance(default, str | int | float) else "",
        required,
        _bound(schema.get(least), -math.inf),
        _bound(schema.get(most), math.inf),
    )


def _options(schema: Mapping[str, object]) -> dict[str, str] | None:
    """Return the values of an enumeration by what is shown of them; None for none. Raises ToolError."""
    titled = schema.get("oneOf", schema.get("anyOf"))
    if isinstance(titled, list):
        pairs = [
            (_table(each).get("title"), _table(each).get("const")) for each in cast("list[object]", titled)
        ]
    elif isinstance(values := schema.get("enum"), list):
        names = schema.get("enumNames")
        values = cast("list[object]", values)
        fits = isinstance(names, list) and len(cast("list[object]", names)) == len(values)
        pairs = list(zip(cast("list[object]", names) if fits else values, values, strict=True))
    else:
        return None
    if not 1 <= len(pairs) < OPTIONS_MAX or not all(isinstance(value, str) and value for _, value in pairs):
        raise ToolError(f"a choice has 1 to {OPTIONS_MAX - 1} texts")
    found = {_text(title) or str(value): str(value) for title, value in pairs}
    return found if len(found) == len(pairs) else {str(value): str(value) for _, value in pairs}


def _table(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value.strip()[:TEXT_CHARACTERS_MAX] if isinstance(value, str) else ""


def _bound(value: object, otherwise: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return otherwise
    try:
        return float(value)
    except OverflowError:
        return otherwise
