// One call of OpenCode's: what it tells and asks on the way, and how it ends.
import { attachmentsOf, failed, json, textOf } from "./outcome.js"
import { NAME, read, withHandle } from "./reading.js"

const BY = "by OpenCode"
const TELL_EVERY_MS = 100 // each is a write to OpenCode's database

/** Run a tool for OpenCode, which has it under the name `shown`: the result, or an error with the text for the model. Returns when the tool has stopped. */
export async function perform(session, tool, args, context, { shown, limits, permissions, running, services }) {
  if (tool === NAME && !session.tools.has(NAME)) return resultOf(await read(session, args, limits), {})
  if (context.abort.aborted) return resultOf(failed("aborted", `${BY}, before it was sent`, "client"), {})
  const request = {
    callId: legal(context.callID),
    tool,
    sessionId: context.sessionID,
    messageId: context.messageID,
    agentName: context.agent,
    limits,
    parentCallId: services.ownerOf(context.sessionID),
  }
  const telling = new Telling(context)
  const flight = session.call(request, args, (event) => telling.take(event))
  const asking = new Asking(flight, context, permissions, shown)
  running.set(flight, asking)
  const abort = () => flight.abort(BY)
  context.abort.addEventListener("abort", abort, { once: true })
  try {
    const outcome = await flight.ended
    if (outcome.kind === "denied" && asking.denial) throw asking.denial // OpenCode's own, which it knows what to do with
    return resultOf(withHandle(outcome), telling.metadata)
  } finally {
    context.abort.removeEventListener("abort", abort)
    running.delete(flight)
    telling.end()
  }
}

function resultOf(outcome, told) {
  if (outcome.kind !== "ok") throw new Error(textOf(outcome))
  const { title = "", ...values } = outcome.metadata
  return {
    title,
    output: textOf(outcome),
    metadata: { ...told, ...values },
    attachments: attachmentsOf(outcome),
  }
}

/** What the contract accepts of the model's id for a call. */
function legal(id) {
  return (id || crypto.randomUUID()).replace(/[^A-Za-z0-9_.:-]/g, "_").slice(0, 80)
}

/** What a call tells about itself, as OpenCode's metadata; when there is much of it, the newest. */
class Telling {
  metadata = {}
  #title = ""
  #context
  #timer = null

  constructor(context) {
    this.#context = context
  }

  take({ metadata, progress }) {
    if (metadata) {
      this.#title = metadata.title || this.#title
      Object.assign(this.metadata, json(metadata.values))
    } else if (progress) {
      const { done, total, message } = progress
      this.metadata.progress = { done, ...(total == null ? {} : { total }), message }
    } else return
    this.#timer ??= setTimeout(() => this.#tell(), TELL_EVERY_MS)
  }

  end() {
    clearTimeout(this.#timer)
  }

  #tell() {
    this.#timer = null
    // 1.18 makes an effect of it that nothing runs (anomalyco/opencode#50313); the result has it all the same.
    this.#context.metadata({ title: this.#title, metadata: { ...this.metadata } })
  }
}

/** The questions of a call, put to OpenCode's user. */
class Asking {
  denial = null
  #flight
  #context
  #permissions
  #shown

  constructor(flight, context, permissions, shown) {
    this.#flight = flight
    this.#context = context
    this.#permissions = permissions
    this.#shown = shown
  }

  async ask({ askId, question, permission, patterns, always, details }) {
    const answer = { callId: this.#flight.id, askId, allowed: true }
    try {
      await this.#context.ask({
        permission: this.#permissions.of(this.#shown, permission),
        patterns: patterns.length ? patterns : ["*"], // none at all would be allowed unasked
        always, // OpenCode remembers it, and says so the next time it is asked
        metadata: { question, permission, details: json(details) },
      })
    } catch (error) {
      this.denial = error
      answer.allowed = false
      answer.message = error?.message || "OpenCode's user said no."
    }
    this.#flight.respond(askId, { answer })
  }
}
