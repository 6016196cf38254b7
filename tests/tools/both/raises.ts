// Raises what both languages can raise.

import { statSync } from "node:fs"
import { tool } from "@opencode-ai/plugin"

class Silent extends Error {
  get message(): string { throw new Error("do not look at me") }
  get stack(): string { throw new Error("do not look at me") }
  get name(): string { throw new Error("do not look at me") }
  toString(): string { throw new Error("do not look at me") }
}

const raising = (error: unknown) => () => { throw error }
const deeper = (): unknown => [deeper()]

const acts: Record<string, () => unknown> = {
  plain: raising(new TypeError("unknown sku X; known: A, B")),
  chained: raising(new TypeError("second", { cause: new Error("first") })),
  without_message: raising(new Error()),
  silent: raising(new Silent()),
  huge: raising(new Error("x".repeat(10_000_000))),
  surrogates: raising(new Error("a\ud800b")),
  exits: () => process.exit(3),
  recursion: deeper,
  a_group: raising(new AggregateError([new Error("one of them")], "several")),
  no_file: () => statSync("/nonexistent/file.txt"),
}

export default tool({
  description: "Raise something of that kind",
  args: { kind: tool.schema.string() },
  execute: async ({ kind }) => acts[kind]() as string,
})
