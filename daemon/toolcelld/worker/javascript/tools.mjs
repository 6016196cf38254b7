// The tools of a module: which of its exports are tools, and what they are called.

import { absenceOf } from "./absence.mjs";
import { json } from "./frames.mjs";
import { OF_CELL, remarksOn } from "./options.mjs";
import { PUSH, PendingActions } from "./pending.mjs";
import { SchemaError, argumentsOf } from "./schemas.mjs";
import { ON_SESSION, handlersOf, teller } from "./session_events.mjs";
import { lineOf } from "./thrown.mjs";
import { exportedTogether, withFive } from "./together.mjs";

const ARGUMENTS = ["args", "parameters", "inputSchema", "input_schema"];
const NAME = /^[a-zA-Z0-9_-]{1,64}$/;
const DESCRIPTION_BYTES_MAX = 8 * 1024;
const TOOLS_MAX = 256;
const NAME_CHARACTERS_MAX = 100;
const MESSAGE_CHARACTERS_MAX = 1_000;

/**
 * Returns {tools, problems, options, absence} of a module. `source` is its text, `file` its path; `stem` is the file's name without its
 * ending; only with `describe` a tool has the schema of its arguments, which takes long. A tool is {name, description,
 * input, execute}; `options` are those of all tools. A file that pushes pending actions has a tool that decides about
 * them, and one that hears session events an export for these.
 */
export async function toolsOf(module, source, file, stem, describe) {
    const exported = transpiled(module);
    const tools = new Map();
    const problems = [];
    const values = [];
    const pending = new PendingActions();
    async function add(nameOfTool, value, five) {
        let name = "";
        try {
            name = nameOfTool();
            if (value instanceof Error) throw value; // in place of a tool
            if (tools.size === TOOLS_MAX) throw new SchemaError(`the file has more than ${TOOLS_MAX} tools`);
            if (tools.has(name))
                throw new SchemaError(
                    "the file has a tool of this name already; give one of them another name",
                );
            tools.set(name, await toolOf(name, value, five ? withFive(value) : value.execute.bind(value), describe));
            values.push(value);
            if (describe) problems.push(...remarksOn(name, value).map((message) => remark(name, message)));
        } catch (error) {
            problems.push(problem(name, error));
        }
    }
    const single = candidates(exported);
    for (const [value, names] of single)
        await add(() => named(value) ?? nameOf(names, stem), value, value.execute.length > 2);
    for (const [name, value] of Object.entries(exported))
        if (isHalf(value)) problems.push(remark(name, "it has a description and arguments, and no function execute()"));
    try {
        let number = 0;
        for await (const [key, value, five] of exportedTogether(exported, source, isTool, isHalf, pending)) {
            number += 1;
            const unnamed = number === 1 ? stem : `${stem}_${number}`;
            if (!single.has(value)) await add(() => (value instanceof Error ? key : (named(value) ?? (key || unnamed))), value, five);
        }
    } catch (error) {
        if (!(error instanceof TypeError) && tools.size === 0) throw error;
        problems.push(problem("", error));
    }
    const waits = tools.size > 0 && source.includes(PUSH);
    if (waits) {
        const resolve = pending.resolver(stem);
        await add(() => resolve.name, resolve, false);
    }
    const handlers = handlersOf(exported, values);
    if (handlers.length) tools.set(ON_SESSION, teller(handlers));
    const absence = tools.size ? "" : absenceOf(file, source, exported);
    return { tools, problems, options: waits ? { isolation: "session" } : {}, absence };
}

/** Returns the exports of a module; those of one that a compiler has made CommonJS stand below `default`. */
function transpiled(module) {
    const inner = module.default;
    return inner !== null && typeof inner === "object" && inner.__esModule === true ? inner : module;
}

/** Returns the description of tools and problems as the daemon reads it. */
export function described({ tools, problems, options, absence }, helpers) {
    const own = [...tools.values()].filter(({ name }) => name !== ON_SESSION);
    const entries = own.map(({ name, description, input }) => ({
        name,
        description,
        input_schema: JSON.stringify(input.schema),
        export: name,
        options,
        line: 0,
    }));
    return Buffer.from(json({ tools: entries, problems, helpers, absence, on_session: tools.has(ON_SESSION) }));
}

function problem(tool, error) {
    const message = error instanceof SchemaError || error instanceof TypeError ? error.message : lineOf(error);
    return { tool: tool.slice(0, NAME_CHARACTERS_MAX), message: String(message).slice(0, MESSAGE_CHARACTERS_MAX), line: 0 };
}

function remark(tool, message) {
    return { ...problem(tool, new SchemaError(message)), remark: true };
}

function named(value) {
    return typeof value.name === "string" ? value.name : null;
}

/** Returns each exported tool once, with all of its names. */
function candidates(exported) {
    const found = new Map();
    for (const [name, value] of Object.entries(exported)) {
        if (!isTool(value)) continue;
        if (found.has(value)) found.get(value).push(name);
        else found.set(value, [name]);
    }
    return found;
}

function isTool(value) {
    const isDescribed = () => value.description !== undefined || ARGUMENTS.some((key) => key in value);
    return looked(() => value !== null && typeof value === "object" && typeof value.execute === "function" && isDescribed());
}

/** Returns whether a value was to be a tool, and cannot run. */
function isHalf(value) {
    const isDescribed = () => typeof value.description === "string" && ARGUMENTS.some((key) => key in value);
    return looked(() => value !== null && typeof value === "object" && isDescribed() && value.execute === undefined);
}

/** Returns false where a value does not let itself be looked at, as proxies and getters may not. */
function looked(look) {
    try {
        return look();
    } catch {
        return false;
    }
}

function nameOf(names, stem) {
    const ofFile = ["default", stem, stem.replaceAll("-", "_")];
    return names.some((name) => ofFile.includes(name)) ? stem : `${stem}_${names[0]}`;
}

async function toolOf(name, value, execute, describe) {
    if (!NAME.test(name) || name.includes("__"))
        throw new SchemaError(
            "a tool's name is 1 to 64 letters, digits, _ and -, without two _ in a row; give it another name",
        );
    const unread = OF_CELL.find((each) => value[each] !== undefined);
    if (unread === "programs")
        throw new SchemaError(
            `\`programs\` is not read from a file; take it out, and put [profile.some] programs = false and [tool.${name}] sandbox = "some" into the configuration`,
        );
    if (unread !== undefined)
        throw new SchemaError(
            `\`${unread}\` is not read from a file in TypeScript; take it out, and put it under [tool.${name}] in the configuration`,
        );
    const description = value.description ?? "";
    if (typeof description !== "string") throw new SchemaError("its description is not text");
    if (Buffer.byteLength(description) > DESCRIPTION_BYTES_MAX)
        throw new SchemaError(
            `its description has more than ${DESCRIPTION_BYTES_MAX} bytes; say less, models read it every time`,
        );
    const key = ARGUMENTS.find((each) => value[each] !== undefined);
    return {
        name,
        description,
        input: await argumentsOf(value[key], describe),
        execute,
    };
}
