// The package `toolcell` of tool files, which is nowhere installed; `toolcell new typescript` writes its types.

/** Returns the definition of a tool as it is. */
export function tool(definition) {
    return definition;
}

/** Thrown to report a failure to the model: the message is passed on unchanged, the details go to programs. */
export class ToolError extends Error {
    name = "ToolError";

    constructor(message, { details } = {}) {
        super(message);
        this.details = details;
    }
}
