// The client of MCP's TypeScript SDK, which holds each result against the output schema of its tool.
//
// node strict.mjs SDK PROGRAM ARGUMENT...   with [[TOOL, ARGUMENTS], ...] on stdin; prints what came of each call.
import { text } from "node:stream/consumers"

const [sdk, command, ...args] = process.argv.slice(2)
const { Client } = await import(`${sdk}/dist/esm/client/index.js`)
const { StdioClientTransport } = await import(`${sdk}/dist/esm/client/stdio.js`)

const calls = JSON.parse(await text(process.stdin))
const client = new Client({ name: "strict", version: "1" })
await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" }))
const { tools } = await client.listTools() // from now on it knows the output schemas
const found = []
for (const [name, given] of calls) {
  try {
    const { isError, content, structuredContent } = await client.callTool({ name, arguments: given })
    found.push({ isError: isError === true, content, structured: structuredContent })
  } catch (error) {
    found.push({ refused: String(error) })
  }
}
await client.close()
console.log(JSON.stringify({ tools: tools.map((tool) => tool.name), found }))
