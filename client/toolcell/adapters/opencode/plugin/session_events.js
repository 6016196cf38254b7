// What happens to OpenCode's sessions, told to the tools that want to hear it.
const told = (reason, sessionId = "", data = {}) => ({ reason, session_id: sessionId, data })

/** Turns OpenCode's events into the daemon's; null for all others. */
export class SessionEvents {
  #retrying = new Set()

  read({ type, properties = {} }) {
    const { sessionID: id, info, status } = properties
    if (type === "session.created" && !info?.parentID) return told("switch", info?.id) // of an agent below: no session of the user's
    if (type === "session.compacted") return told("auto_compaction_end", id)
    if (type === "session.deleted") this.#retrying.delete(info?.id)
    if (type !== "session.status") return null
    if (status?.type === "retry") {
      this.#retrying.add(id)
      return told("auto_retry_start", id, { attempt: status.attempt }) // the message is the provider's, and no tool's business
    }
    return this.#retrying.delete(id) ? told("auto_retry_end", id) : null
  }
}
