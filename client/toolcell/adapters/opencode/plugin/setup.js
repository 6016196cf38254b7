// The plugin in OpenCode 2: the tools of a directory, added by a transform that runs again whenever they change.
//
// A call is that of version 1 (performance.js) with another context around it. OpenCode 2 gives a plugin no way to ask its
// user, so what would be asked is denied: a question of a tool, and a tool that is declared destructive, unless the
// option `destructive` is "allow".
import { shownUnder } from "./limits.js"
import { attach } from "./offer.js"
import { perform } from "./performance.js"
import { printable } from "./printable.js"
import { ABORT, Services } from "./services.js"

const LIMITS = shownUnder({}) // a plugin cannot read OpenCode's configuration

/** Called by OpenCode for each directory that it opens; what it returns is called when the plugin is unloaded. */
export async function setup(context, options = context.options ?? {}) {
  if (!context.tool) return undefined // 1.18 has the beginnings of version 2 in it, and calls `server` besides
  const directory = context.location?.directory
  if (!directory) throw new Error("Toolcell's tools are missing: this OpenCode does not name its directory to plugins.")
  const services = new Services({
    session: { abort: ({ path }) => context.session.interrupt({ sessionID: path.id }) },
  })
  let loaded = false
  let reloading = Promise.resolve()
  const session = await attach(
    { directory, options, tell },
    {
      second: true,
      answers: false,
      onAsk: () => {}, // none comes
      onRequest: (flight, request) => services.serve(flight, request),
      services: [ABORT],
      onCatalog: () => {
        if (loaded) reloading = reloading.then(() => context.tool.reload()).catch(failed)
      },
    },
  )
  const refused = new Set() // a tool that OpenCode does not accept is told of once
  let registration
  try {
    loaded = true
    registration = await context.tool.transform((editor) => {
      for (const [shown, tool] of session.tools) {
        try {
          editor.add(toolOf(session, tool, { services, mayDestroy: options.destructive === "allow" }))
        } catch (error) {
          if (!refused.has(shown)) tell("warn", `OpenCode does not accept the tool ${shown}: ${error?.message ?? error}`)
          refused.add(shown)
        }
      }
    })
  } catch (error) {
    await session.close()
    throw error
  }
  return async () => {
    loaded = false
    await reloading
    await registration.dispose()
    await session.close()
  }
}

function toolOf(session, { name, description, schema, destructive }, { services, mayDestroy }) {
  const permissions = {
    async askToRun() {
      if (!destructive || mayDestroy) return
      throw new Error(
        `${name} is declared destructive, and OpenCode 2 gives a plugin no way to ask its user; it was not run.\n` +
          'To have such tools run unasked: the option "destructive": "allow" of the plugin.',
      )
    },
  }
  return {
    name,
    description,
    input: schema,
    options: { codemode: false }, // a tool of its own, and no function of OpenCode's `execute`
    async execute(args, context) {
      const told = {}
      const tell = async (more) => context.progress({ ...Object.assign(told, more) })
      const first = {
        sessionID: context.sessionID,
        messageID: context.messageID,
        agent: context.agent,
        callID: context.id,
        abort: context.signal,
        metadata: ({ title, metadata }) => void tell({ ...metadata, ...(title ? { title } : {}) }).catch(() => {}),
      }
      const toast = (_, message) => void tell({ message }).catch(() => {})
      const running = new Map() // for questions, which none comes of
      return second(await perform(session, name, args, first, { limits: LIMITS, permissions, running, services, toast }))
    },
  }
}

/** A result of version 1 as version 2 has it. */
function second({ title, output, metadata, attachments }) {
  const files = attachments.map(({ mime, url, filename }) => ({
    type: "file",
    uri: url,
    mime,
    ...(filename ? { name: filename } : {}),
  }))
  return { content: [{ type: "text", text: output }, ...files], metadata: { ...(title ? { title } : {}), ...metadata } }
}

/** OpenCode 2 has no place for a plugin's messages but its log. */
function tell(level, message) {
  console[level](`Toolcell: ${message.split("\n").map(printable).join("\n")}`)
}

function failed(error) {
  tell("error", `OpenCode does not read its tools again: ${error?.message ?? error}`)
}
