// Under which permissions a tool runs and asks, and that its questions are put to a person.
//
// OpenCode's prompt shows a permission's name, and nothing else of a request; so the name that a question is put under
// has the question in it: "drop: Drop the table users?". What the user's configuration says about "drop" is meant for
// that as well, so each name that it has rules for gets the same rules for its questions. Of several rules that fit
// OpenCode takes the last: those for questions come behind all others, as a pattern could fit the words of a question.
//
// OpenCode allows everything that has no rule, without asking. A tool that asks wants an answer of the user, and one that
// is declared destructive is run on the user's word, so both get the rule "ask", before the user's own.
//
// An answer "always" is kept here: OpenCode would keep it for the same words alone.
import { printable } from "./printable.js"

const QUESTION_CHARACTERS_MAX = 500 // some seven lines of a terminal; the prompt shows them twice

/** What the user's configuration says about permissions, and what the user has allowed for good. */
export class Permissions {
  #client
  #rules = [] // the names that there are rules for, as patterns
  #open = new Map() // by mark: a request that waits for the user
  #allowed = [] // [name, pattern]

  constructor(client) {
    this.#client = client
  }

  /** Read the configuration, and add what is missing. Called once, before anything runs. */
  learn(config, tools) {
    const names = tools.map(({ shown }) => shown)
    const owners = [config, ...Object.values(config.agent ?? {})]
    const all = owners.filter(({ permission }) => permission && typeof permission === "object")
    this.#rules = all.flatMap(({ permission }) => Object.keys(permission)).map(pattern)
    for (const owner of all) {
      if (owner !== config) owner.permission = withQuestions(owner.permission, names, {})
    }
    if (typeof config.permission === "string") return // said for everything
    const asking = tools.filter(({ destructive }) => destructive).map(({ shown }) => [shown, "ask"])
    const given = Object.entries(config.permission ?? {})
    const first = asking.filter(([name]) => !given.some(([key]) => key === name)) // the user's keeps its place
    config.permission = withQuestions(Object.fromEntries([...first, ...given]), names, { "*": "ask" })
  }

  /** Take notice of what becomes of our requests; OpenCode tells of an answer before it is returned. */
  hear({ type, properties }) {
    if (type === "permission.asked") {
      const open = this.#open.get(properties.metadata?.toolcell)
      if (!open) return
      Object.assign(open, { id: properties.id, sessionID: properties.sessionID })
      if (open.withdrawn) this.#takeBack(open)
    } else if (type === "permission.replied" && properties.reply === "always") {
      const open = [...this.#open.values()].find(({ id }) => id === properties.requestID)
      if (open?.name) this.#allowed.push(...open.always.map((each) => [open.name, pattern(each)]))
    }
  }

  /** Have the user say whether a tool runs; rejects with OpenCode's own error. */
  async askToRun(context, shown) {
    await this.#put(context, context.abort, { permission: shown, patterns: ["*"], always: ["*"], metadata: {} })
  }

  /**
   * Have the user answer a question of a tool, until the signal; rejects with OpenCode's own error.
   * One that is asked `anew` is not answered by an earlier "always".
   */
  async ask(context, signal, shown, { question, permission, patterns, always, details, anew = false }) {
    const name = permission && this.#rules.some((rule) => rule.test(permission)) ? permission : shown
    const asked = patterns.length ? patterns : ["*"] // none at all would be allowed unasked
    if (!anew && asked.every((each) => this.#isAllowed(name, each))) return
    const metadata = { question, permission, details }
    const request = { permission: `${name}: ${line(question)}`, patterns: asked, always, metadata }
    await this.#put(context, signal, request, name)
  }

  /** Put a request to OpenCode, and take it back at the signal: OpenCode would leave it on the user's screen. */
  async #put(context, signal, request, name = "") {
    const mark = crypto.randomUUID()
    const open = { id: "", sessionID: "", name, always: request.always, withdrawn: false }
    const withdraw = () => {
      open.withdrawn = true
      if (open.id) this.#takeBack(open)
    }
    this.#open.set(mark, open)
    signal.addEventListener("abort", withdraw, { once: true })
    try {
      await context.ask({ ...request, metadata: { ...request.metadata, toolcell: mark } })
    } finally {
      signal.removeEventListener("abort", withdraw)
      this.#open.delete(mark)
    }
    if (open.withdrawn) throw new Error("the call has ended")
  }

  /** End a request that nothing waits for. A "reject" would reject those of the session's other calls as well. */
  #takeBack({ id: permissionID, sessionID: id }) {
    const reply = { path: { id, permissionID }, body: { response: "once" } }
    this.#client.postSessionIdPermissionsPermissionId(reply).catch(() => {})
  }

  #isAllowed(name, each) {
    return this.#allowed.some(([allowed, rule]) => allowed === name && rule.test(each))
  }
}

/** Rules with those for the questions of tools, and of each other name, behind them. */
function withQuestions(rules, tools, otherwise) {
  const plain = Object.keys(rules).filter((name) => !/[*?]/.test(name))
  const questions = [...new Set([...tools, ...plain])].map((name) => {
    const merged = Object.entries(tools.includes(name) ? otherwise : {})
    for (const [key, actions] of Object.entries(rules)) {
      if (pattern(key).test(name)) merged.push(...Object.entries(typeof actions === "string" ? { "*": actions } : actions))
    }
    return [`${name}: *`, inOrder(merged)]
  })
  return { ...rules, ...Object.fromEntries(questions.filter(([, actions]) => Object.keys(actions).length)) }
}

/** An object of entries whose last ones come last, also where their key was there before. */
function inOrder(entries) {
  const found = new Map()
  for (const [key, value] of entries) {
    found.delete(key)
    found.set(key, value)
  }
  return Object.fromEntries(found)
}

/** A question as a part of a name. */
function line(question) {
  const text = printable(question)
  return text.length > QUESTION_CHARACTERS_MAX ? `${text.slice(0, QUESTION_CHARACTERS_MAX)}…` : text
}

/** A name with OpenCode's wildcards. */
function pattern(name) {
  const escaped = name.replace(/[.+^${}()|[\]\\]/g, "\\$&").replaceAll("*", ".*").replaceAll("?", ".")
  return new RegExp(`^${escaped.endsWith(" .*") ? `${escaped.slice(0, -3)}( .*)?` : escaped}$`, "s")
}
