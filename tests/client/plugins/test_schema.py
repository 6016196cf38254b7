"""The published JSON Schema of plugin files is that of the models, and editors can use it."""

from __future__ import annotations

import json
from importlib import resources

from tests.client.plugins.kit import SHELL, entry, plugin

from toolcell._arguments.jsonschema import violations
from toolcell._plugins.models import json_schema
from toolcell.cli.authoring.plugin import example

PUBLISHED = resources.files("toolcell._plugins").joinpath("plugin.schema.json")


def test_the_published_schema_is_that_of_the_models() -> None:
    """To write it: python -c 'import json; from toolcell._plugins.models import json_schema as s; print(json.dumps(s(), indent=2))'."""
    assert json.loads(PUBLISHED.read_text()) == json_schema()


def mistakes(content: str | bytes) -> list[tuple[str, str]]:
    schema = json_schema()
    return list(violations(json.loads(content), schema, schema))


def test_it_accepts_a_plugin_file_and_refuses_a_misspelt_key() -> None:
    assert mistakes(example("mine")) == []
    assert mistakes(plugin(entry(SHELL))) == []
    assert mistakes(plugin(entry({**SHELL, "timout": 1})))
    assert mistakes(plugin(entry(SHELL), nam="x"))
    assert mistakes(b'{"name": "x"}')
