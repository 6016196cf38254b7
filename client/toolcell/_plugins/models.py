"""The format of a plugin file, as pydantic models: what `docs/writing-tools.md` describes and the published JSON Schema says.

These are shapes only. What a template means, and whether its placeholders exist, is for the module of its strategy.
Keys are in camel case; Python's spelling of them is accepted as well.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema

MILLISECONDS_MAX = 24 * 3600 * 1000
FILE_READ_BYTES_MAX = 10 * 2**20  # as much as is kept of a program's output

Milliseconds: TypeAlias = Annotated[int, Field(ge=1, le=MILLISECONDS_MAX)]
Text: TypeAlias = Annotated[str, Field(min_length=1, max_length=10_000)]


class _Model(BaseModel):
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, alias_generator=to_camel, populate_by_name=True
    )


class ShellHandler(_Model):
    """Runs one program. The template is split into arguments once; a value never becomes more than its own argument."""

    type: Literal["shell"]
    command: Text = Field(
        description="The program and its arguments, with {{name}} where a parameter goes. No shell reads it."
    )
    timeout: Milliseconds = Field(default=30_000, description="Milliseconds until the program is killed.")
    cwd: Text | None = Field(
        default=None, description="The working directory, inside the project. Default: the session's."
    )
    allowed_exit_codes: tuple[Annotated[int, Field(ge=0, le=255)], ...] = Field(
        default=(0,), min_length=1, strict=False, description="The exit codes that are no failure."
    )
    strict: bool = Field(
        default=False,
        description="Refuse values with characters that a shell would interpret, instead of a warning.",
    )


class HttpHandler(_Model):
    """Sends one HTTP request. Parameters that the URL does not name are the JSON body, or with GET the query."""

    type: Literal["http"]
    url: Text = Field(
        description="An http or https URL, with {{name}} where a parameter goes; values are URL-encoded."
    )
    method: Literal["GET", "POST", "PUT"] = "POST"
    headers: dict[str, str] = Field(default_factory=dict[str, str], description="Headers as they are sent.")
    timeout: Milliseconds = Field(default=10_000, description="Milliseconds until the request is given up.")
    raw_params: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="Parameters that are not URL-encoded, as a whole URL; needs allowedHosts.",
    )
    allowed_hosts: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(),
        strict=False,
        description="The hosts that requests may go to: api.example.org, *.example.org or host:port. "
        "Default: the host of the URL.",
    )


class FileReadHandler(_Model):
    """Reads one text file below a directory: the parameter `path`."""

    type: Literal["file-read"]
    base_path: Text = Field(description="The directory; a relative one is inside the project.")
    max_size: int = Field(
        default=2**20, ge=1, le=FILE_READ_BYTES_MAX, description="The size of the largest file, in bytes."
    )


Handler: TypeAlias = Annotated[ShellHandler | HttpHandler | FileReadHandler, Field(discriminator="type")]


class InputSchema(BaseModel):
    """A JSON Schema of an object; its keywords are checked by what enforces them."""

    model_config = ConfigDict(extra="allow")

    type: Literal["object"]
    properties: dict[str, dict[str, Any] | bool] = Field(default_factory=dict[str, dict[str, Any] | bool])
    required: list[str] = []


class PluginTool(_Model):
    """One tool."""

    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$", description="The name that agents call.")
    description: str = Field(min_length=1, description="What the tool does, for the model.")
    input_schema: InputSchema = Field(description="A JSON Schema of the parameters.")
    handler: Handler


class PluginHead(_Model):
    """A plugin file whose tools have not been looked at, so that each is judged by itself."""

    schema_: str | None = Field(default=None, alias="$schema", description="The JSON Schema of this format.")
    name: str = Field(min_length=1, max_length=200, description="The name of the collection.")
    version: str | None = Field(default=None, max_length=200)
    tools: list[Any] = Field(min_length=1)


class PluginFile(PluginHead):
    """A collection of tools, one file of a directory `plugins`."""

    tools: list[PluginTool] = Field(min_length=1)


class _Untitled(GenerateJsonSchema):
    """Without a title for every field, which repeats its name."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the format, as editors read it."""
    schema = PluginFile.model_json_schema(by_alias=True, schema_generator=_Untitled)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "Toolcell plugin file",
    }
