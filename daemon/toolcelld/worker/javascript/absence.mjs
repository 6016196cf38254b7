// Why a file has no tools, read from its text, so that it can be said of a file that could not run, too.
//
// A file of another system often looks like one with tools: a server of MCP, a plugin, a script. Each shape has one
// sentence, and what to do in a second line.

import path from "node:path";

import { isHost } from "./stand_ins.mjs";

const TEST_FILE = /\.(test|spec)\.[mc]?[jt]sx?$/;
const CONFIG_FILE = /\.config\.[mc]?[jt]s$/;
const TEST_LIBRARIES = /^(vitest|bun:test|node:test|@jest\/globals)$/;
const MCP = /^@modelcontextprotocol\/(sdk|server)\b/;
const IMPORTED = /\b(?:from|import|require\()\s*["']([^"']+)["']/g;
const NAMES_SHOWN_MAX = 3;
const MAKE =
    'Make one: import { tool } from "toolcell", and export default tool({ description, args, execute })';
const ELSEWHERE = "Put it outside of the directory of tools.";
const HELPER = "If it is a helper, begin its name with _, or import it from a tool file.";

/**
 * Returns why a file has no tools, and in further lines what to do; "" where that is not known. `exported` are its exports,
 * null where it could not run.
 */
export function absenceOf(file, source, exported) {
    const libraries = [...source.matchAll(IMPORTED)].map(([, name]) => name);
    return certain(file, source, libraries) || (exported === null ? "" : probable(source, libraries, exported));
}

/** What holds however the file's code runs. */
function certain(file, source, libraries) {
    if (TEST_FILE.test(file) || libraries.some((name) => TEST_LIBRARIES.test(name) && !CONFIG_FILE.test(file)))
        return `it is a test\n${ELSEWHERE}`;
    if (CONFIG_FILE.test(file)) return `it is the configuration of a program, ${path.basename(file)}\n${ELSEWHERE}`;
    if (libraries.some((name) => MCP.test(name)) && /\bnew\s+(Mcp)?Server\s*\(/.test(source))
        return `it makes a server of MCP, whose tools only a client of it can see\nOffer it to your agent as an MCP server. ${MAKE}`;
    if (/\bparentPort\b/.test(source) && libraries.some((name) => /^(node:)?worker_threads$/.test(name)))
        return `it is run in a thread by another file\n${ELSEWHERE}`;
    if (source.startsWith("#!")) return `it is run as a script\n${MAKE}`;
    return "";
}

function probable(source, libraries, exported) {
    const names = Object.keys(exported);
    const isFunction = (name) => typeof exported[name] === "function";
    const registers = /\.(registerTool|addTool)\s*\(/.test(source);
    if (isExtension(source, libraries))
        return registers
            ? `it registers its tools after it was loaded, in an event or a command of its host\nRegister them while the file is loaded.`
            : `it extends its host by commands or events, and registers no tool\n${MAKE}`;
    if (libraries.some((name) => name.startsWith("@opencode-ai/plugin")) && names.some(isFunction))
        return `it is a plugin of OpenCode, a function that OpenCode calls\nExport its tools themselves. ${MAKE}`;
    if (registers && names.some(isFunction))
        return `it registers its tools with a server of MCP that another file makes\n${MAKE}`;
    if (names.length === 0)
        return /\bexport\s+(type|interface|declare)\b/.test(source)
            ? `it only declares types\n${HELPER}`
            : `it exports nothing\n${MAKE}\n${HELPER}`;
    const shape = names.find((name) => isFunction(name) && "execute" in Object(exported[name].prototype));
    if (shape !== undefined)
        return `its export ${shape} is a class, and an object of it may be a tool\nExport one: export default new ${String(exported[shape].name).replace(/^(default)?$/, "Tool")}(…)\n${HELPER}`;
    const more = names.length > NAMES_SHOWN_MAX ? ` and ${names.length - NAMES_SHOWN_MAX} more` : "";
    return `none of its exports is a tool: ${names.slice(0, NAMES_SHOWN_MAX).join(", ")}${more}\n${MAKE}\n${HELPER}`;
}

function isExtension(source, libraries) {
    const listens = /\.on\s*\(\s*["'](session|agent|turn|tool|before|input)_/;
    return libraries.some(isHost) || /\b(ExtensionAPI|HookAPI)\b/.test(source) || listens.test(source);
}
