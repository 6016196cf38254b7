// Loaded as a tool file, for `toolcell doctor`: the description of its tool is the version of the engine.

export default { description: process.versions.bun ?? process.versions.node, execute() {} };
