// Plugins of OpenCode 2, {id, setup}: `setup` gets a context, and registers its tools by `context.tool.transform`.
// Plugins of OpenCode 1 are functions that return hooks, and their tools as `tool`; they are known by the type that they import.
//
// Only its tools are for a worker. What else it registers (hooks, agents, commands, providers) belongs to the process of the
// agent: registering is silent, and using what only OpenCode has throws when it is used.

const REGISTERS = new Set(["transform", "hook", "register", "reload", "subscribe"]);
const REGISTRATION = { dispose: async () => {}, async *[Symbol.asyncIterator]() {} };

/** Returns whether an export is such a plugin. */
export function isPlugin(value) {
    return (
        value !== null &&
        typeof value === "object" &&
        typeof value.id === "string" &&
        typeof value.setup === "function"
    );
}

/** Sets a plugin up; returns its tools with their names, as the file could have exported them. */
export async function toolsOfPlugin(plugin) {
    const tools = new Map();
    const editor = editorOf(tools);
    const edits = []; // not every plugin waits for them
    const own = {
        options: {},
        location: { directory: process.cwd() },
        tool: elsewhere("tool", {
            transform(edit) {
                edits.push((async () => edit(editor))());
                return edits.at(-1).then(() => REGISTRATION);
            },
            list: async () => editor.list(),
        }),
    };
    const cleanUp = await plugin.setup(elsewhere("", own));
    await Promise.all(edits);
    if (typeof cleanUp === "function") process.once("exit", cleanUp);
    return [...tools].map(([name, tool]) => [name, exported(name, tool)]);
}

/** Returns whether a source says that its functions are plugins of OpenCode 1. */
export function hasFirstPlugins(source) {
    return /["']@opencode-ai\/plugin["']/.test(source) && /\bPlugin\b/.test(source);
}

/** Runs the plugins of OpenCode 1 of a module; returns their tools with their names. */
export async function toolsOfFirstPlugins(exported) {
    const directory = process.cwd();
    const log = async () => ({ data: true });
    const own = {
        client: elsewhere("client", { app: elsewhere("client.app", { log }) }),
        project: { id: "", worktree: directory },
        directory,
        worktree: directory,
        $: globalThis.Bun?.$ ?? elsewhere("$"),
    };
    const tools = [];
    for (const value of new Set(Object.values(exported))) {
        const plugin = typeof value === "function" ? value : value?.server;
        if (typeof plugin !== "function") continue;
        const hooks = await plugin(elsewhere("", own));
        tools.push(...Object.entries(hooks?.tool ?? {}));
    }
    return tools;
}

/** Returns an object with these members; the others are there to be named, and throw when they are called. */
export function elsewhere(name, own = {}) {
    const missing = () => {
        throw new Error(`${name}() is OpenCode's own, and a tool's process has it not`);
    };
    return new Proxy(Object.assign(missing, own), {
        get(found, key) {
            if (Object.hasOwn(own, key)) return own[key];
            if (typeof key === "symbol" || key === "then" || key === "toJSON") return undefined;
            if (REGISTERS.has(key)) return () => Object.assign(Promise.resolve(REGISTRATION), REGISTRATION);
            return elsewhere(name ? `${name}.${key}` : key);
        },
    });
}

function editorOf(tools) {
    const idOf = ({ name, options }) => (options?.namespace ? `${options.namespace}_${name}` : name);
    return {
        namespace() {},
        list: () => [...tools].map(([id, tool]) => ({ ...tool, id })),
        get: (id) => (tools.has(id) ? { ...tools.get(id), id } : undefined),
        add(tool) {
            if (typeof tool?.name !== "string" || typeof tool.execute !== "function")
                throw new TypeError("what a plugin adds has a name and a function execute");
            tools.set(idOf(tool), { ...tool });
        },
        update: (id, change) => void (tools.has(id) && change(tools.get(id))),
        remove: (id) => void tools.delete(id),
    };
}

function exported(name, { description, input, execute }) {
    return {
        name,
        description,
        inputSchema: input,
        execute: async (values, context) => resultOf(await execute(values, contextOf(context))),
    };
}

/** Returns the context of a call as OpenCode 2 has it. */
function contextOf(context) {
    return {
        sessionID: context.sessionID,
        agent: context.agent,
        messageID: context.messageID,
        id: context.callID,
        signal: context.abort,
        progress: async (metadata) => context.metadata({ metadata }),
        checkpoint: async (result) => context.update(resultOf(result)),
    };
}

/** Returns {output, content, metadata} with a content in any case. */
function resultOf(value) {
    if (value === null || typeof value !== "object" || Array.isArray(value)) return value;
    const { output, content, metadata } = value;
    if (content !== undefined || (output === undefined && metadata === undefined)) return value;
    if (output === undefined) return { content: "", metadata };
    return { content: typeof output === "string" ? output : JSON.stringify(output), output, metadata };
}
