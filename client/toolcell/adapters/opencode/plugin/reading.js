// How the model reads on where an output was cut: a tool of ours, and the line that points to it.
// What the tool says of itself is put here by the build, from client/toolcell/adapters/read_output.py; the words of its
// answers are those of that module.
import { readOutput } from "toolcell:texts"
import { failed } from "./outcome.js"

export const NAME = readOutput.name
const OPENCODES = { max_lines: 2_000, max_bytes: 50 * 1024 } // what it cuts at, unless it is told otherwise
const ROOM_LINES = 10 // for the notice and the note below what we cut
const ROOM_BYTES = 1_200

/** Limits of a result, below what OpenCode cuts by itself under a configuration. */
export function shownUnder({ tool_output: told }) {
  const { max_lines: lines, max_bytes: bytes } = { ...OPENCODES, ...told }
  return { outputLines: Math.max(1, lines - ROOM_LINES), outputBytes: Math.max(1, bytes - ROOM_BYTES) }
}

export const READ_OUTPUT = readOutput

/** The outcome with a note below an output that was cut. */
export function withHandle(outcome) {
  const output = outcome.output
  if (!output) return outcome
  const call = `${NAME}(output_id="${output.outputId}", start=0)`
  const reason = output.reason ? ` (${output.reason})` : ""
  const kept = output.outputId
    ? `${output.keptBytes} were kept${reason}: ${call}`
    : `no more could be kept than is shown${reason}`
  const note = output.complete
    ? `\n[The whole output has ${output.totalBytes} bytes: ${call}.]`
    : `\n[The output had ${output.totalBytes} bytes, of which ${kept}.]`
  return { ...outcome, content: [...outcome.content, { type: "text", text: note }] }
}

/** What the tool of ours answers. */
export async function read(session, args, { outputLines, outputBytes }) {
  const { output_id: id, start: first = 0, length = outputBytes } = args
  if (typeof id !== "string" || !id) return wrong("output_id: should be the id that the note below an output names")
  if (!isCount(first)) return wrong(`start: should be a number of bytes, got ${JSON.stringify(first)}`)
  if (!isCount(length) || !length) {
    return wrong(`length: should be a number of bytes above 0, got ${JSON.stringify(length)}`)
  }
  let data
  try {
    data = await session.readOutput(id, first, Math.min(length, outputBytes))
  } catch (error) {
    return failed("refused", error.text ?? error.message)
  }
  if (!data.length) return ok(`[nothing: the output has no byte ${first}]`)
  data = firstLines(data, outputLines)
  const [before, after] = halves(data)
  const begin = first + before
  const end = first + data.length - after
  const text = data.subarray(before, data.length - after).toString()
  return ok(`[bytes ${begin} to ${end - 1}; the next: start=${end}]\n${text}`)
}

function isCount(value) {
  return Number.isSafeInteger(value) && value >= 0
}

function ok(text) {
  return { ...failed("ok", ""), content: [{ type: "text", text }] }
}

function wrong(message) {
  return failed("invalid_arguments", `${NAME}: invalid_arguments: ${message}.`)
}

/** As many of its lines as are shown, the line above them counted. */
function firstLines(data, most) {
  let end = -1
  for (let count = 1; count < most; count += 1) {
    end = data.indexOf(0x0a, end + 1)
    if (end < 0) return data
  }
  return data.subarray(0, end + 1)
}

/** How many bytes at the ends of a range are halves of characters. */
function halves(data) {
  const isInner = (byte) => (byte & 0xc0) === 0x80
  const begin = data.subarray(0, 4).findIndex((byte) => !isInner(byte))
  const before = Math.max(begin, 0)
  for (let back = 1; back <= Math.min(4, data.length - before); back += 1) {
    const byte = data[data.length - back]
    if (isInner(byte)) continue
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1
    return [before, length > back ? back : 0]
  }
  return [before, 0]
}
