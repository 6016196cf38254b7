// What was thrown, as text: for the model, as exception_text.py tells it, and for the log.
//
// A tool can throw anything, and to read it may run the tool's code: a getter, or a proxy. So each property is read alone,
// what throws meanwhile is left out, and causes and members are followed within bounds, as they may lead back.

import { inspect } from "node:util";

import { HERE } from "./place.mjs";
import { ToolError } from "./shims/toolcell.mjs";

// These are the bounds of exception_text.py.
const TEXT_CHARACTERS_MAX = 2_000;
const LINE_CHARACTERS_MAX = 512;
const MESSAGE_LINES_MAX = 20;
const LEAVES_MAX = 5;
const CAUSES_MAX = 3;
const PRINTED_LINES_MAX = 5;
const PRINTED_CHARACTERS_MAX = 200; // of a line
const PRINTED_MAX = 8 * PRINTED_LINES_MAX * PRINTED_CHARACTERS_MAX;
const DEPTH_MAX = 4; // of errors in errors
const TRACE_CHARACTERS_MAX = 16_000;
const UNNAMED = ["Error", "ToolError", "ResolveMessage", "BuildMessage"]; // the name says no more than the message
const SHOWN = { customInspect: false, depth: 2, breakLength: Infinity, maxStringLength: LINE_CHARACTERS_MAX, maxArrayLength: 20 };

/** Returns a property of anything, or undefined where it cannot be read. */
export function property(value, name) {
    try {
        return value[name];
    } catch {
        return undefined;
    }
}

/** Returns whether a value is an instance of a class; false where it does not let itself be looked at. */
export function isA(value, type) {
    try {
        return value instanceof type;
    } catch {
        return false;
    }
}

/** Returns what the model reads of what was thrown, at most 2,000 characters; a ToolError speaks for itself. */
export function textOf(thrown) {
    const message = property(thrown, "message");
    if (isA(thrown, ToolError) && typeof message === "string" && message) return message;
    const leaves = leavesOf(thrown);
    const lines = [];
    for (const leaf of leaves.slice(0, LEAVES_MAX)) {
        lines.push(...linesOf(leaf));
        lines.push(...printedBy(leaf, lines));
        lines.push(...causesOf(leaf, lines));
    }
    if (leaves.length > LEAVES_MAX) lines.push("and more");
    for (const group of groupsOf(thrown)) lines.push(...causesOf(group, lines));
    return cut(lines.join("\n"), TEXT_CHARACTERS_MAX);
}

/** Returns the first line of what the model reads. */
export function lineOf(thrown) {
    return linesOf(leavesOf(thrown)[0])[0];
}

/** Returns the stacks of what was thrown, its members and causes, without our own frames, as far as there are others. */
export function traceOf(thrown) {
    const stacks = [];
    const pending = [[thrown, ""]];
    for (const [one, before] of pending) {
        stacks.push(before + stackOf(one));
        if (stacks.length > LEAVES_MAX) break;
        pending.push(...membersOf(one).map((each) => [each, "one of them: "]));
        const cause = property(one, "cause");
        if (cause !== undefined && cause !== null) pending.push([cause, "caused by: "]);
    }
    return stacks.join("\n").slice(0, TRACE_CHARACTERS_MAX);
}

/** Returns the stack of an error, without our own frames; one that has no others is a bug of ours, and stays whole. */
function stackOf(error) {
    const stack = property(error, "stack");
    const lines = (typeof stack === "string" && stack ? stack.slice(0, TRACE_CHARACTERS_MAX) : lineOf(error)).split("\n");
    const theirs = lines.filter((line) => !(/^\s+at /.test(line) && line.includes(HERE)));
    return (theirs.some((line) => /^\s+at /.test(line)) ? theirs : lines).join("\n");
}

/** The errors of an AggregateError, whose own message says only that there are some; any other error itself. */
function leavesOf(thrown, depth = 0) {
    const members = depth < DEPTH_MAX ? membersOf(thrown) : [];
    return members.length ? members.flatMap((each) => leavesOf(each, depth + 1)).slice(0, LEAVES_MAX + 1) : [thrown];
}

/** The errors that have others in them: the one that was thrown, and those below it. */
function groupsOf(thrown, depth = 0) {
    const members = depth < DEPTH_MAX ? membersOf(thrown) : [];
    return members.length ? [thrown, ...members.flatMap((each) => groupsOf(each, depth + 1))].slice(0, LEAVES_MAX) : [];
}

/** Returns the first errors of an AggregateError; none of any other. */
export function membersOf(error) {
    const errors = isA(error, AggregateError) ? property(error, "errors") : undefined;
    try {
        return Array.isArray(errors) ? [...errors.slice(0, LEAVES_MAX + 1)] : [];
    } catch {
        return [];
    }
}

/** The name and the message of one error, in lines. */
function linesOf(error) {
    const [first = "", ...rest] = said(error).split(/\r?\n/).filter((line) => line.trim());
    const name = nameOf(error);
    const lines = [first && name ? `${name}: ${first}` : first || name || property(error, "name") || "Error"];
    lines.push(...rest.slice(0, MESSAGE_LINES_MAX - 1));
    if (rest.length >= MESSAGE_LINES_MAX) lines.push("…");
    if (first === "Bun is not defined" && !process.versions.bun)
        lines.push(`The file uses functions of Bun, and node ${process.versions.node} runs it; install bun.`);
    return lines.map((line) => cut(String(line).trimEnd(), LINE_CHARACTERS_MAX));
}

/** The name of an error's kind, where it says more than its message. */
function nameOf(error) {
    const name = property(error, "name");
    return typeof property(error, "message") === "string" && typeof name === "string" && !UNNAMED.includes(name) ? name : "";
}

/** The message of an error, or what else was thrown. */
function said(thrown) {
    const message = property(thrown, "message");
    if (typeof message === "string") return message.slice(0, 8 * TEXT_CHARACTERS_MAX).split("\nRequire stack:")[0].trim();
    if (thrown === null || (typeof thrown !== "object" && typeof thrown !== "function")) return String(thrown);
    try {
        if (!isA(thrown, Error)) return inspect(thrown, SHOWN);
    } catch {
        // Its class says what it is.
    }
    return `${kindOf(thrown)}: (its message cannot be shown)`;
}

function kindOf(value) {
    const name = property(property(value, "constructor"), "name");
    return typeof name === "string" && name ? name : typeof value;
}

/** The last lines of what a failed program has printed, if the error has them. */
function printedBy(error, lines) {
    const printed = property(error, "stderr");
    const text = typeof printed === "string" || isA(printed, Uint8Array) ? String(printed.slice(-PRINTED_MAX)) : "";
    const kept = text.split("\n").filter((line) => line.trim()).slice(-PRINTED_LINES_MAX);
    return kept.map((line) => line.slice(0, PRINTED_CHARACTERS_MAX)).filter((line) => !lines.some((told) => told.includes(line)));
}

/** A line for each cause whose message is not told already. */
function* causesOf(error, lines) {
    const told = lines.join("\n");
    let cause = property(error, "cause");
    for (let rest = CAUSES_MAX; rest > 0 && cause !== undefined && cause !== null; rest -= 1) {
        for (const leaf of leavesOf(cause).slice(0, CAUSES_MAX))
            if (!told.includes(said(leaf).split("\n")[0]) || !said(leaf)) yield `caused by ${lineOf(leaf)}`;
        cause = property(cause, "cause") ?? property(leavesOf(cause)[0], "cause");
    }
}

/** Returns a value as the engine writes it, for a sentence. */
export function shown(value) {
    try {
        return cut(inspect(value, SHOWN), LINE_CHARACTERS_MAX);
    } catch {
        return `a ${typeof value}`;
    }
}

function cut(text, most) {
    return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
