// The package `toolcell` of tool files, which is nowhere installed; `toolcell new typescript` writes its types.

/** Returns the definition of a tool as it is. */
export function tool(definition) {
    return definition;
}

Object.defineProperty(tool, "schema", {
    get() {
        throw new TypeError(
            'tool.schema is of "@opencode-ai/plugin": import { tool } from there, or write a schema: { type: "string" }',
        );
    },
});

/** Thrown to report a failure to the model: the message is passed on unchanged, the details go to programs. */
export class ToolError extends Error {
    name = "ToolError";

    constructor(message, { details } = {}) {
        super(message);
        this.details = details;
    }
}
