// A call under way, as its session knows it, with what it takes to send it again after the line has dropped.
import { lost } from "./outcome.js"

const PART_BYTES_MAX = 48 * 1024 // the contract's bound for a chunk

/** One call, from its request to its one outcome. */
export class Flight {
  sent = false // the daemon may have some of it
  accepted = false // the daemon is known to have it
  abortReason = null
  outcome = null
  #responses = new Map() // by number: what was said to a question or a request
  #asked = new Set() // questions and requests that are known, be they answered or not

  /** @param {object} request a Call of the contract @param {Buffer} args @param {(event) => void} onEvent */
  constructor(session, request, args, onEvent) {
    this.session = session
    this.id = request.callId
    this.args = args
    this.onEvent = onEvent
    this.request = { ...request, arguments: args.subarray(0, PART_BYTES_MAX) }
    if (args.length > PART_BYTES_MAX) this.request.argumentsBytes = args.length
    this.ended = new Promise((resolve) => (this.resolve = resolve))
  }

  /** What starts the call, or rejoins it, and what was said about it since. */
  *messages() {
    this.sent = true
    yield { call: this.request }
    for (let start = PART_BYTES_MAX; start < this.args.length; start += PART_BYTES_MAX) {
      const end = start + PART_BYTES_MAX
      yield { chunk: { callId: this.id, data: this.args.subarray(start, end), last: end >= this.args.length } }
    }
  }

  *repeats() {
    yield* this.#responses.values()
    if (this.abortReason !== null) yield { abort: { callId: this.id, reason: this.abortReason } }
  }

  /** Ask the call to stop; it still ends with its one outcome. Harmless twice. */
  abort(reason) {
    if (this.outcome !== null || this.abortReason !== null) return
    this.abortReason = reason
    this.session.send({ abort: { callId: this.id, reason } })
  }

  /** Whether a question or a request is not known; it comes again after a drop. */
  isNew(askId) {
    const isNew = !this.#asked.has(askId)
    this.#asked.add(askId)
    return isNew
  }

  /** Answer a question, or reply to a request, and remember it in case the line drops. */
  respond(askId, message) {
    if (this.outcome !== null) return
    this.#responses.set(askId, message)
    this.session.send({ ...message })
  }

  /** End the call; the first ending is the only one. */
  end(outcome) {
    if (this.outcome !== null) return
    this.outcome = outcome
    this.session.land(this)
    this.resolve(outcome)
  }

  /** @param {{reason: string, message: string}} why */
  lose(why) {
    this.end(lost(why, this.sent))
  }
}
