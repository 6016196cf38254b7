"""Arguments of a tool: a JSON Schema from type hints, validation, and error messages that a model can act on."""
