// A stand-in for OpenCode 2, which cannot be had from a registry: the part of its published interface for plugins that
// concerns tools, written from its declarations. It shows that the plugin keeps to them, and not that OpenCode does.
//   node second_host.mjs PLUGIN        reads commands from its standard input and writes answers, a JSON object a line
import { createInterface } from "node:readline"

const FIELDS = new Set(["name", "description", "input", "output", "options", "execute"])
const places = new Map() // by directory: {transforms, tools, cleanup, reloads}
const calls = new Map() // by id: what aborts it
const say = (message) => process.stdout.write(`${JSON.stringify(message)}\n`)
for (const level of ["warn", "error"]) console[level] = (text) => say({ log: level, text })

const { default: definition } = await import(process.argv[2])
if (typeof definition.id !== "string" || typeof definition.setup !== "function") throw new Error("no plugin of version 2")

/** Runs each transform against an empty list, as a reload does. */
function build(place) {
  const tools = new Map()
  const editor = {
    add(tool) {
      for (const key of Object.keys(tool)) if (!FIELDS.has(key)) throw new Error(`a tool has no ${key}`)
      if (!/^[a-zA-Z0-9_-]+$/.test(tool.name)) throw new Error(`a bad name: ${tool.name}`)
      if (place.refuses === tool.name) throw new Error("not this one")
      if (tool.options?.codemode !== false) throw new Error("it would be a function of execute")
      if (tool.name === "execute") throw new Error('the name "execute" is reserved')
      if (typeof tool.description !== "string" || tool.input?.type !== "object") throw new Error("no description or schema")
      tools.set(tool.name, tool)
    },
  }
  for (const transform of place.transforms) if (transform(editor)?.then) throw new Error("a transform is synchronous")
  place.tools = tools
}

async function load({ directory, options = {}, bare = false, refuses = "" }) {
  const place = { transforms: new Set(), tools: new Map(), refuses }
  const context = {
    app: { name: "stand-in", version: "2" },
    location: { directory },
    options,
    session: { interrupt: async ({ sessionID }) => say({ interrupted: sessionID }) },
    tool: {
      async transform(callback) {
        place.transforms.add(callback)
        build(place)
        return { dispose: async () => (place.transforms.delete(callback), build(place)) }
      },
      async reload() {
        build(place)
        say({ reloaded: directory, tools: [...place.tools.keys()] })
      },
    },
  }
  if (bare) delete context.tool
  place.cleanup = await definition.setup(Object.freeze(context))
  places.set(directory, place)
  return { tools: [...place.tools.values()].map(({ name, description, input }) => ({ name, description, input })) }
}

async function call({ id, directory, tool, args, agent = "build" }) {
  const controller = new AbortController()
  calls.set(id, controller)
  const context = { sessionID: "ses_1", messageID: "msg_1", agent, id, signal: controller.signal }
  context.progress = async (metadata) => say({ progress: id, metadata })
  const result = await places.get(directory).tools.get(tool).execute(args, Object.freeze(context))
  for (const key of Object.keys(result)) {
    if (!["content", "metadata"].includes(key)) throw new Error(`a result without a schema has no ${key}`)
  }
  for (const { type, text, uri, mime, name = "", ...more } of result.content) {
    const good = type === "text" ? [text] : type === "file" ? [uri, mime, name] : [null]
    if (Object.keys(more).length || !good.every((each) => typeof each === "string")) throw new Error("bad content")
  }
  return { result }
}

const does = {
  load,
  call,
  abort: ({ id }) => (calls.get(id).abort(), {}),
  names: ({ directory }) => ({ names: [...places.get(directory).tools.keys()] }),
  async unload({ directory }) {
    await places.get(directory).cleanup()
    return { names: [...places.get(directory).tools.keys()] }
  },
}
for await (const line of createInterface({ input: process.stdin })) {
  const { does: what, number, ...more } = JSON.parse(line)
  Promise.resolve()
    .then(() => does[what](more))
    .then((answer) => say({ number, ...answer }), (error) => say({ number, error: error.message }))
}
process.exit()
