// What comes down a session's streams: seen once, put together, and then acknowledged.
//
// A session outlives its streams, and so does its inbox: after a drop the daemon sends again what was not
// acknowledged. A long body comes as a head and chunks; the head is not acknowledged before its last chunk is there.

/** The events of a session, each once, in order, with their bodies whole. */
export class Inbox {
  last = 0 // the highest number seen
  told = 0 // the highest number acknowledged
  bodies = new Map() // by call: heads whose chunks are coming

  /** The event and its body, once both are here; null for what is old or not yet whole. */
  take(event) {
    if (event.number) {
      if (event.number <= this.last) return null
      this.last = event.number
    }
    const head = event.outcome ?? event.update
    if (head) {
      this.bodies.delete(event.callId) // an update that was given up half way
      if (!head.more) return { event, body: Buffer.from(head.body) }
      this.bodies.set(event.callId, { event, parts: [Buffer.from(head.body)] })
      return null
    }
    if (!event.chunk) return { event, body: Buffer.alloc(0) }
    const begun = this.bodies.get(event.chunk.callId)
    begun?.parts.push(Buffer.from(event.chunk.data))
    if (!begun || !event.chunk.last) return null
    this.bodies.delete(event.chunk.callId)
    return { event: begun.event, body: Buffer.concat(begun.parts) }
  }

  /** The number to tell the daemon with the next message. */
  acknowledge() {
    this.told = this.dealtWith()
    return this.told
  }

  /** Whether the daemon keeps something that it need not. */
  get owes() {
    return this.dealtWith() > this.told
  }

  /** Another daemon counts from 1 again. */
  restart() {
    this.last = this.told = 0
    this.bodies.clear()
  }

  dealtWith() {
    const heads = [...this.bodies.values()].map((begun) => begun.event.number - 1)
    return heads.length ? Math.min(...heads) : this.last
  }
}
