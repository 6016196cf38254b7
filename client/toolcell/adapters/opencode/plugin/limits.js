// Limits of a result, below what OpenCode cuts by itself.
const OPENCODES = { max_lines: 2_000, max_bytes: 50 * 1024 } // what it cuts at, unless it is told otherwise
const ROOM_LINES = 10 // for the notice and the note below what the daemon cuts
const ROOM_BYTES = 1_200

/** The limits under a configuration. */
export function shownUnder({ tool_output: told }) {
  const { max_lines: lines, max_bytes: bytes } = { ...OPENCODES, ...told }
  return { output_lines: Math.max(1, lines - ROOM_LINES), output_bytes: Math.max(1, bytes - ROOM_BYTES) }
}
