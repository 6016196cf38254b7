// Under which permission a tool's question is put, and that it is put to a person.
//
// OpenCode allows everything that has no rule, without asking. A tool that asks wants an answer of the user, so a question
// goes under a name that a rule exists for: the permission that the tool names, where the user's configuration has
// rules for it, else the tool's own name, which gets the rule "ask". Of several rules that fit, OpenCode takes the last:
// ours come before the user's, so that whatever the user has said counts, be it for "*".

/** What the user's configuration says about permissions. */
export class Permissions {
  #rules = [] // the names that there are rules for, as patterns

  /** Read the configuration, and add what is missing. Called once, before anything runs. */
  learn(config, tools) {
    const all = [config, ...Object.values(config.agent ?? {})].map(({ permission }) => permission)
    this.#rules = all.flatMap((rules) => (rules && typeof rules === "object" ? Object.keys(rules) : [])).map(pattern)
    if (typeof config.permission === "string") return // said for everything
    config.permission = { ...Object.fromEntries(tools.map((tool) => [tool, "ask"])), ...config.permission }
  }

  /** The name to ask under. */
  of(tool, permission) {
    return permission && this.#rules.some((rule) => rule.test(permission)) ? permission : tool
  }
}

/** A name with OpenCode's wildcards. */
function pattern(name) {
  const escaped = name.replace(/[.+^${}()|[\]\\]/g, "\\$&")
  return new RegExp(`^${escaped.replaceAll("*", ".*").replaceAll("?", ".")}$`, "s")
}
