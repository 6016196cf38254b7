// What tools may ask of their agent: sessions of OpenCode that are begun for them, and talk with these.
//
// Such a session is a child of the one whose tool began it, so that its questions are shown to the same user. What it
// calls names the call that it works for, and one that would wait for itself is refused.
export const ABORT = "agent.abort" // what context.abort() uses
export const SERVICES = ["session.start", "session.send", "session.list", ABORT]

const TURNS_MAX = 8 // at once
const SESSIONS_MAX = 1_000 // that are remembered; OpenCode keeps all of them
const REASON_CHARACTERS_MAX = 1_000 // the bridge's bound

/** The sessions that tools of one directory began. */
export class Services {
  #client
  #begun = new Map() // by session: {agent, title, turns, failed, begunAt, activeAt}
  #parents = new Map() // of sub-agents' sessions: the session that waits for it
  #owners = new Map() // by session: the call that it works for
  #waits = [] // [session, the session that it waits for]
  #turns = 0

  constructor(client) {
    this.#client = client
  }

  /** Take notice of OpenCode's own sub-agents. */
  learn({ type, properties }) {
    const { id, parentID } = properties?.info ?? {}
    if (type === "session.created" && parentID && !this.#begun.has(id)) this.#parents.set(id, parentID)
    if (type === "session.deleted") this.#parents.delete(id)
  }

  /** The call that a session works for, also where it is a sub-agent's. */
  ownerOf(session) {
    for (let id = session; id; id = this.#parents.get(id)) if (this.#owners.has(id)) return this.#owners.get(id)
    return ""
  }

  /** Do what a tool requests, and reply; what goes wrong is for the tool to read. */
  async serve(flight, { request, service, arguments: given }) {
    try {
      flight.reply({ request, result: await this.#do(flight, service, given) })
    } catch (error) {
      flight.reply({ request, error: reasonOf(error) })
    }
  }

  async #do(flight, service, { prompt, session_id: session, agent_name: agent, title }) {
    if (service === ABORT) {
      await this.#client.session.abort({ path: { id: flight.request.session_id }, throwOnError: true })
      return null
    }
    if (service === "session.list") {
      const now = performance.now()
      const sessions = [...this.#begun].map(([id, one]) => {
        const { agent, title, turns, failed } = one
        return {
          session_id: id,
          agent_name: agent,
          title,
          running: turns > 0,
          failed: failed && !turns,
          age_seconds: (now - one.begunAt) / 1000,
          idle_seconds: turns ? 0 : (now - one.activeAt) / 1000,
        }
      })
      return { sessions }
    }
    if (!SERVICES.includes(service)) throw new Error(`OpenCode offers no service ${service}`)
    if (typeof prompt !== "string" || !prompt) throw new Error("prompt: should be a text")
    if (session && !this.#begun.has(session)) {
      throw new Error(`no session ${session} was begun here; session.list has those that were`)
    }
    const caller = flight.request.session_id
    if (session && this.#waitsFor(session, caller)) {
      throw new Error(`session ${session} waits for this call, so that its answer would never come`)
    }
    if (this.#turns >= TURNS_MAX) {
      throw new Error(`${TURNS_MAX} sessions are at work for tools already; wait for one of them`)
    }
    const id = session || (await this.#begin(caller, agent))
    if (typeof title === "string" && title) this.#begun.get(id).title = title
    const turn = this.#turn(flight, id, prompt)
    if (service === "session.start") {
      turn.catch(() => {}) // the session itself shows what became of it
      return { session_id: id }
    }
    const stop = () => this.#client.session.abort({ path: { id } }).catch(() => {})
    const ended = flight.ended.then(() => stop().then(() => Promise.reject(new Error("the call has ended"))))
    const wait = [caller, id]
    this.#waits.push(wait)
    try {
      return { session_id: id, reply: await Promise.race([turn, ended]) }
    } finally {
      this.#waits.splice(this.#waits.indexOf(wait), 1)
      turn.catch(() => {})
      ended.catch(() => {})
    }
  }

  async #begin(parentID, agent) {
    if (agent && agent !== "main") {
      const { data } = await this.#client.app.agents({ throwOnError: true })
      const names = data.map(({ name }) => name)
      if (!names.includes(agent)) throw new Error(`no agent ${agent}; there are ${names.join(", ")}`)
    }
    const { data } = await this.#client.session.create({ body: { parentID }, throwOnError: true })
    const now = performance.now()
    this.#begun.set(data.id, { agent: agent || "main", title: "", turns: 0, failed: false, begunAt: now, activeAt: now })
    this.#parents.delete(data.id)
    if (this.#begun.size > SESSIONS_MAX) this.#begun.delete(this.#begun.keys().next().value)
    return data.id
  }

  /** One turn of a session; what the model said at its end. */
  async #turn(flight, id, prompt) {
    const one = this.#begun.get(id)
    const body = { parts: [{ type: "text", text: prompt }] }
    if (one.agent !== "main") body.agent = one.agent
    this.#owners.set(id, flight.id)
    one.turns += 1
    one.failed = true // until the turn has ended well
    this.#turns += 1
    try {
      const { data } = await this.#client.session.prompt({ path: { id }, body, throwOnError: true })
      const wrong = data.info.error
      if (wrong) throw new Error(wrong.data?.message || wrong.name)
      one.failed = false
      return data.parts.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n")
    } finally {
      one.turns -= 1
      one.activeAt = performance.now()
      this.#turns -= 1
      if (!one.turns) this.#owners.delete(id)
    }
  }

  /** Whether a session waits for another, be it by way of others. */
  #waitsFor(session, other) {
    const seen = new Set()
    const next = [other]
    while (next.length) {
      const id = next.pop()
      if (id === session) return true
      if (!id || seen.has(id)) continue
      seen.add(id)
      next.push(this.#parents.get(id), ...this.#waits.filter(([, target]) => target === id).map(([waiting]) => waiting))
    }
    return false
  }
}

/** What went wrong, for a tool to read: without half characters, which the bridge does not take. */
export function reasonOf(error) {
  return String(error?.message || error).toWellFormed().slice(0, REASON_CHARACTERS_MAX).toWellFormed()
}
