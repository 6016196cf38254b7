// Stands for the packages of pi, oh-my-pi and Atomic, where a project has not installed them: what tools use of them.

import os from "node:os";
import path from "node:path";

import * as typebox from "../vendor/typebox.mjs";

export const Type = typebox.Type;
export const defineTool = (definition) => definition;

export const CONFIG_DIR_NAME = ".pi";
export const getAgentDir = () =>
    process.env.PI_CODING_AGENT_DIR ?? path.join(os.homedir(), CONFIG_DIR_NAME, "agent");

/** Returns the JSON Schema of one of some texts. */
export const StringEnum = (values, options = {}) => ({ type: "string", enum: [...values], ...options });

/** Writes to one file are in turn anyway: a worker runs one call at a time. */
export const withFileMutationQueue = (_, act) => act();

export const DEFAULT_MAX_LINES = 2000;
export const DEFAULT_MAX_BYTES = 50 * 1024;
const LINE_CHARACTERS_MAX = 500;

/** Returns a number of bytes as people read it. */
export function formatSize(bytes) {
    if (bytes < 1024) return `${bytes}B`;
    return bytes < 1024 * 1024 ? `${(bytes / 1024).toFixed(1)}KB` : `${(bytes / 1024 / 1024).toFixed(1)}MB`;
}

/** Keeps the first whole lines of a text; returns it as `content`, with the figures of what was left out. */
export function truncateHead(text, options) {
    return truncated(text, options, (lines) => lines);
}

/** Keeps the last whole lines of a text. */
export function truncateTail(text, options) {
    return truncated(text, options, (lines) => lines.reverse());
}

/** Cuts a line, and says so. */
export function truncateLine(line, characters = LINE_CHARACTERS_MAX) {
    const isCut = line.length > characters;
    return { text: isCut ? `${line.slice(0, characters)}... [truncated]` : line, wasTruncated: isCut };
}

function truncated(text, { maxLines = DEFAULT_MAX_LINES, maxBytes = DEFAULT_MAX_BYTES } = {}, turned) {
    const lines = text.split("\n");
    const totalBytes = Buffer.byteLength(text);
    const kept = [];
    let bytes = 0;
    let truncatedBy = null;
    for (const line of turned([...lines])) {
        const more = Buffer.byteLength(line) + (kept.length ? 1 : 0);
        if (kept.length === maxLines) truncatedBy = "lines";
        else if (bytes + more > maxBytes) truncatedBy = "bytes";
        if (truncatedBy !== null) break;
        kept.push(line);
        bytes += more;
    }
    return {
        content: turned(kept).join("\n"),
        truncated: truncatedBy !== null,
        truncatedBy,
        totalLines: lines.length,
        totalBytes,
        outputLines: kept.length,
        outputBytes: bytes,
        lastLinePartial: false,
        firstLineExceedsLimit: kept.length === 0,
        maxLines,
        maxBytes,
    };
}

/** The names of keys, which tools give with a shortcut that they register: Key.escape, Key.ctrl("x"). */
export const Key = new Proxy(
    {},
    {
        get: (_, name) =>
            typeof name === "symbol"
                ? undefined
                : Object.assign((key) => `${name}+${key}`, { toString: () => name }),
    },
);

/** Returns a value that can be named, extended and looked into, and throws where it is called. */
export function absent(name) {
    const refuse = () => {
        throw new Error(`${name} is a part of the host, and there is none here`);
    };
    return new Proxy(class {}, {
        apply: refuse,
        construct: refuse,
        get: (own, key) =>
            key in own || typeof key === "symbol" || key === "then" ? own[key] : absent(`${name}.${key}`),
    });
}
