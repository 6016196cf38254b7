// Under which permission a tool's question is put, and that it is put to a person.
//
// OpenCode allows whatever nobody has made a rule for, without asking. A tool that asks means a person, so a question
// goes under a name that a rule exists for: the permission that the tool names, where the user's configuration has
// rules for it, else the tool's own name, which gets the rule "ask" unless the user has said otherwise.

/** What the user's configuration says about permissions. */
export class Permissions {
  #known = new Set()

  /** Read the configuration, and add what is missing. Called once, before anything runs. */
  learn(config, tools) {
    const agents = Object.values(config.agent ?? {})
    for (const { permission } of [config, ...agents]) {
      if (permission && typeof permission === "object") Object.keys(permission).forEach((name) => this.#known.add(name))
    }
    const all = config.permission
    if (typeof all === "string" || (all && "*" in all)) return // somebody has said it for everything
    config.permission = all ?? {}
    for (const tool of tools) config.permission[tool] ??= "ask"
  }

  /** The name to ask under. */
  of(tool, permission) {
    return permission && this.#known.has(permission) ? permission : tool
  }
}
