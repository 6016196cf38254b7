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
export const { Agent, Command, Connection, Credential, Integration, Location, Mcp, Model } = elsewhere("");
export const { PersistentPty, Provider, Reference, Rpc, Skill, Vcs, WebSearch } = elsewhere("");
