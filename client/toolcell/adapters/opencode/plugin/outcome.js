// How a call ended, and what OpenCode makes of it.
import { OutcomeKind } from "./contract.js"

/** The daemon's outcome, read; `body` is whole. */
export function readOutcome(message, body) {
  const kind = OutcomeKind[message.kind].replace("OUTCOME_KIND_", "").toLowerCase()
  try {
    return {
      kind,
      message: message.message,
      content: json(body)?.content ?? [],
      metadata: json(message.metadata) ?? {},
      output: message.output ?? null,
    }
  } catch (error) {
    return failed("internal", `The daemon sent a result that cannot be read: ${error.message}`)
  }
}

/** A call that the daemon did not serve, or that is none. */
export function failed(kind, message) {
  return { kind, message, content: [], metadata: {}, output: null }
}

/** The ending of a call that nobody will ever tell us about. */
export function lost(message, ran) {
  const effects = ran ? " What it had done until then is not undone." : ""
  return failed("internal", `${message}${effects}`)
}

/** What the model reads, whether it went well or not. */
export function textOf(outcome) {
  const said = outcome.content.map(textOfBlock).join("\n")
  if (outcome.kind === "ok" || !outcome.message || said.includes(outcome.message)) return said
  return said ? `${outcome.message}\n\n${said}` : outcome.message
}

/** The pictures of a result, as OpenCode attaches files. */
export function attachmentsOf(outcome) {
  return outcome.content
    .filter((block) => block.type === "image")
    .map((block) => ({ type: "file", mime: block.mime_type, url: `data:${block.mime_type};base64,${block.data}` }))
}

export function json(bytes) {
  return bytes?.length ? JSON.parse(Buffer.from(bytes).toString()) : null
}

function textOfBlock(block) {
  switch (block.type) {
    case "text":
      return block.text
    case "image":
      return `[image: ${block.mime_type}, ${Buffer.byteLength(block.data, "base64")} bytes]`
    default:
      return block.name ? `[${block.name}: ${block.uri}]` : `[${block.uri}]`
  }
}
