// How a call ended, and what OpenCode makes of it.
//
// The texts of failures are those of client/toolcell/client/outcome.py; the build puts its constants in the place of
// "toolcell:texts".
import { OutcomeKind } from "./contract.js"
import { cutShort, notUndone, unsaidCause } from "toolcell:texts"

/** The daemon's outcome, read; `body` is whole. */
export function readOutcome(message, body) {
  const kind = OutcomeKind[message.kind].replace("OUTCOME_KIND_", "").toLowerCase()
  try {
    return {
      kind,
      cause: message.cause,
      message: message.message,
      content: json(body)?.content ?? [],
      metadata: json(message.metadata) ?? {},
      output: message.output ?? null,
      notes: message.notes,
    }
  } catch (error) {
    return failed("internal", `The daemon sent a result that cannot be read: ${error.message}`, "unreadable_result")
  }
}

/** A call that the daemon did not serve, or that is none. */
export function failed(kind, message, cause = "") {
  return { kind, cause, message, content: [], metadata: {}, output: null, notes: [] }
}

/** The outcome of a call that the daemon refused. */
export function refused({ reason, message, remedy }) {
  return failed("refused", remedy ? `${message}\n  ${remedy}` : message, reason)
}

/** The ending of a call whose outcome is lost. */
export function lost({ reason, message }, ran) {
  const cause = reason === "superseded" ? reason : "connection_lost"
  return failed("internal", ran ? `${message}\n${notUndone}` : message, cause)
}

/** What the model reads, whether it went well or not. */
export function textOf(outcome) {
  const said = outcome.content.map(textOfBlock).join("\n")
  const notes = outcome.notes.map((note) => `[${note}]`).join("\n")
  return [failureText(outcome, said), said, notes].filter(Boolean).join("\n\n")
}

/** The kind, with the cause where the message does not say it: `timed_out (timeout)`, `aborted`. */
function endingOf({ kind, cause }) {
  return cause && cause !== unsaidCause ? `${kind} (${cause})` : kind
}

/** What the model reads ahead of the content of a call that failed. */
function failureText(outcome, said) {
  const { kind, message, content } = outcome
  if (kind === "ok") return ""
  if (!message) return content.length && !cutShort.includes(kind) ? "" : endingOf(outcome)
  if (cutShort.includes(kind)) return `${endingOf(outcome)}: ${message}`
  return said.includes(message) ? "" : message
}

/** The pictures and other files of a result, as OpenCode attaches files. */
export function attachmentsOf(outcome) {
  return outcome.content
    .filter(({ type }) => type === "image" || type === "file")
    .map(({ type, mime_type: mime, data, name }) => {
      const url = `data:${mime};base64,${data}`
      return { type: "file", mime, url, ...(type === "file" ? { filename: name } : {}) }
    })
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
    case "file":
      return `[file: ${block.name}, ${block.mime_type}, ${Buffer.byteLength(block.data, "base64")} bytes]`
    default:
      return block.name ? `[${block.name}: ${block.uri}]` : `[${block.uri}]`
  }
}
