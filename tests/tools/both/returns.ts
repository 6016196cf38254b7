// Returns what both languages have, and what neither can send.

import { tool } from "@opencode-ai/plugin"

function nested(depth: number): unknown[] {
  let row: unknown[] = []
  for (let i = 0; i < depth; i++) row = [row]
  return row
}

const picture = { type: "image", data: Buffer.from("89504e470d0a1a0a", "hex").toString("base64"), mimeType: "image/png" }
const itself: unknown[] = [1]
itself.push(itself)

const values: Record<string, () => unknown> = {
  nothing: () => undefined,
  text: () => "grüß dich",
  empty_text: () => "",
  true: () => true,
  integer: () => 3,
  number: () => 0.5,
  infinities: () => [Infinity, NaN],
  object: () => ({ b: 1, a: [null, "x"] }),
  list: () => [1, "two", [3.5]],
  empty_list: () => [],
  set: () => new Set([7]),
  lone_surrogates: () => "a\ud800b",
  lone_surrogates_inside: () => ({ file: "a\udcffb" }),
  nuls: () => "a\0b\x1b[31mc",
  proto: () => JSON.parse('{"__proto__": {"x": 1}}'),
  nested_200: () => nested(200),
  long: () => "0123456789abcde\n".repeat(4000),
  picture: () => ({ content: [picture] }),
  link: () => ({ content: [{ type: "resource_link", uri: "file:///tmp/x.txt", name: "x.txt", mimeType: "text/plain" }] }),
  holds_itself: () => itself,
  nested_100_000: () => nested(100_000),
  function: () => () => 1,
  breaks_off: () => ({ get a() { throw new Error("the disk is gone") } }),
  parts_257: () => ({ content: Array(257).fill(picture) }),
}

export default tool({
  description: "Return something of that kind",
  args: { kind: tool.schema.string() },
  execute: async ({ kind }) => values[kind]() as string,
})
