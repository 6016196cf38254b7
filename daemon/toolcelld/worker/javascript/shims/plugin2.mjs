// Stands for the package of OpenCode 2 that declares plugins, where a project has not installed it.

import { elsewhere } from "../plugins.mjs";

/** A failure, in words for the model. */
class ToolError extends Error {
    name = "ToolError";

    constructor({ message, error, metadata } = {}) {
        super(message, { cause: error });
        this.metadata = metadata;
    }
}

export const Plugin = { define: (plugin) => plugin };
export const Tool = { Error: ToolError, CallID: { make: (id) => id } };

// What other parts of a plugin use; types are gone by the time that a file runs.
export const Agent = elsewhere("Agent");
export const Command = elsewhere("Command");
export const Connection = elsewhere("Connection");
export const Credential = elsewhere("Credential");
export const Integration = elsewhere("Integration");
export const Location = elsewhere("Location");
export const Mcp = elsewhere("Mcp");
export const Model = elsewhere("Model");
export const PersistentPty = elsewhere("PersistentPty");
export const Provider = elsewhere("Provider");
export const Reference = elsewhere("Reference");
export const Rpc = elsewhere("Rpc");
export const Skill = elsewhere("Skill");
export const Vcs = elsewhere("Vcs");
export const WebSearch = elsewhere("WebSearch");
