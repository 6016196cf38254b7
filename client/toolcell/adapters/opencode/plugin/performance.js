// One call of OpenCode's: what it tells and asks on the way, and how it ends.
import { attachmentsOf, failed, json, textOf } from "./outcome.js"
import { printable } from "./printable.js"
import { NAME, read, withHandle } from "./reading.js"
import { currentTrace } from "./trace.js"

const BY = "by OpenCode"
const TELL_EVERY_MS = 100 // each is a write to OpenCode's database
const SHOW_EVERY_MS = 1_000 // a call that takes less shows nothing
const TOAST_CHARACTERS_MAX = 300

/**
 * Run a tool for OpenCode, which has it under the name `shown`: the result, or an error with the text for the model.
 * Returns when the tool has stopped. `toast` shows a title and a text to the user for a moment.
 */
export async function perform(session, tool, args, context, { shown, limits, permissions, running, services, toast }) {
  const traceparent = currentTrace() // before anything is awaited
  await permissions.askToRun(context, shown)
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
    traceparent,
  }
  const telling = new Telling(context, (text) => toast(shown, text))
  const flight = session.call(request, args, (event, body) => telling.take(event, body))
  const asking = new Asking(flight, context, permissions, shown)
  running.set(flight, asking)
  const abort = () => {
    asking.end()
    flight.abort(BY)
  }
  context.abort.addEventListener("abort", abort, { once: true })
  try {
    const outcome = await flight.ended
    if (outcome.kind === "denied" && asking.denial) throw asking.denial // OpenCode knows what to do with its own
    return resultOf(withHandle(outcome), telling.metadata)
  } finally {
    context.abort.removeEventListener("abort", abort)
    running.delete(flight)
    telling.end()
    asking.end()
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

/** What a call tells about itself, as OpenCode's metadata and to its user; when there is much of it, the newest. */
class Telling {
  metadata = {}
  #title = ""
  #context
  #timer = null
  #toast
  #news = ""
  #showing = null

  constructor(context, toast) {
    this.#context = context
    this.#toast = toast
  }

  take({ metadata, progress, update }, body) {
    if (metadata) {
      this.#title = metadata.title || this.#title
      Object.assign(this.metadata, json(metadata.values))
      this.#show(metadata.title)
    } else if (progress) {
      const { done, total, message } = progress
      this.metadata.progress = { done, ...(total == null ? {} : { total }), message }
      this.#show([total == null ? done : `${done}/${total}`, message].filter(Boolean).join(" "))
    } else if (update) {
      const { content = [] } = json(body) ?? {}
      this.#show(content.map(({ text = "" }) => text).join("\n"))
      return
    } else return
    this.#timer ??= setTimeout(() => this.#tell(), TELL_EVERY_MS)
  }

  end() {
    clearTimeout(this.#timer)
    clearTimeout(this.#showing)
  }

  #tell() {
    this.#timer = null
    // 1.18 makes an effect of it that nothing runs (anomalyco/opencode#50313); the result has it all the same.
    this.#context.metadata({ title: this.#title, metadata: { ...this.metadata } })
  }

  /** Have the user see it, as 1.18 has no place for it beside the call. */
  #show(text = "") {
    this.#news = printable(text).slice(-TOAST_CHARACTERS_MAX) || this.#news
    this.#showing ??= setTimeout(() => {
      this.#showing = null
      if (this.#news) this.#toast(this.#news)
    }, SHOW_EVERY_MS)
  }
}

/** The questions of a call, put to OpenCode's user. */
class Asking {
  denial = null
  #flight
  #context
  #permissions
  #shown
  #over = new AbortController()

  constructor(flight, context, permissions, shown) {
    this.#flight = flight
    this.#context = context
    this.#permissions = permissions
    this.#shown = shown
  }

  async ask(ask) {
    const { askId } = ask
    const answer = { callId: this.#flight.id, askId, allowed: true }
    try {
      await this.#permissions.ask(this.#context, this.#over.signal, this.#shown, ask, json(ask.details))
    } catch (error) {
      this.denial = error
      answer.allowed = false
      answer.message = error?.message || "OpenCode's user said no."
    }
    this.#flight.respond(askId, { answer })
  }

  /** Take back what is still open; harmless where nothing is. */
  end() {
    this.#over.abort()
  }
}
