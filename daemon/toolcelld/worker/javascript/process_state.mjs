// The state of the process that a call can change and that the next call would meet: the table, as in process_state.py.
//
// Each row has a name, how its value is taken, and how it is put back; where nothing can do that, the worker is replaced and
// the outcome says so. What the import of the file has left is the state that every call begins with.

import fs from "node:fs";
import os from "node:os";
import { isDeepStrictEqual } from "node:util";

const STANDARD = [0, 1, 2];
const TEXT = Buffer.alloc(1024); // of /proc/self/stat
const POLICY = 41 - 3; // its field, of those behind the name
let status;

const TIMERS = ["setTimeout", "setInterval", "setImmediate", "clearTimeout", "clearInterval"];

/** The table; `same` compares two values where they are no plain data, `prompt` rows may fail to be put back. */
export const ROWS = [
    { name: "file descriptors 0 to 2", prompt: true, take: files },
    { name: "priority", prompt: true, take: () => os.getPriority(), putBack: (before) => os.setPriority(before) },
    { name: "scheduling policy", prompt: true, take: policy },
    { name: "directory", prompt: true, take: directory, putBack: (before) => process.chdir(before) },
    { name: "umask", take: umask, putBack: (before) => process.umask(before) },
    { name: "environment", take: () => ({ ...process.env }), putBack: setEnvironment },
    { name: "exit code", take: () => process.exitCode ?? 0, putBack: (before) => (process.exitCode = before) },
    { name: "arguments", take: () => [...process.argv], putBack: (before) => process.argv.splice(0, Infinity, ...before) },
    { name: "listeners", take: listeners, same: areSame, putBack: setListeners },
    propertiesOf("console", () => console, ["log", "info", "warn", "error", "debug", "trace", "dir", "table"]),
    propertiesOf("process", () => process, ["exit", "kill", "emitWarning", "env", "argv"]),
    propertiesOf("global values", () => globalThis, ["process", "console", "fetch", ...TIMERS]),
    { name: "stack traces", take: () => [Error.stackTraceLimit, Error.prepareStackTrace], putBack: setStackTraces },
];

// An engine takes ten milliseconds to make these three, so only a file that names one has these rows.
const STREAMS = [
    { name: "standard input", prompt: true, take: () => process.stdin.destroyed || process.stdin.readableEnded },
    propertiesOf("standard streams", () => process, ["stdout", "stderr"]),
    propertiesOf("standard output", () => process.stdout, ["write"]),
    propertiesOf("standard error", () => process.stderr, ["write"]),
];

/** The state that every call begins with: as it is now. */
export class ProcessState {
    #kept;

    /** @param source The text of the tool file. */
    constructor(source) {
        const rows = /\bstd(in|out|err)\b/.test(source) ? [...ROWS, ...STREAMS] : ROWS;
        this.#kept = rows.map((row) => ({ row, before: row.take() }));
    }

    /** Puts back what may not succeed; returns the names of the rows that are changed for good. */
    lost() {
        return this.#kept.filter(({ row, before }) => row.prompt && !putBack(row, before)).map(({ row }) => row.name);
    }

    /** Puts back the rest; returns false if that failed, and the process is not to have another call. */
    putBack() {
        return this.#kept.every(({ row, before }) => row.prompt || putBack(row, before));
    }
}

function putBack(row, before) {
    const same = row.same ?? isDeepStrictEqual;
    try {
        if (same(row.take(), before)) return true;
        row.putBack?.(before);
        return same(row.take(), before);
    } catch {
        return false; // a tool can have put any object there
    }
}

function files() {
    return STANDARD.map((number) => {
        try {
            const { dev, ino } = fs.fstatSync(number);
            return `${dev} ${ino}`;
        } catch {
            return "closed";
        }
    });
}

/** What the kernel says of the process last; an engine cannot ask for it, and a program that the tool starts can set it. */
function policy() {
    try {
        status ??= fs.openSync("/proc/self/stat"); // which to open again would take three times as long
        const read = fs.readSync(status, TEXT, 0, TEXT.length, 0);
        return TEXT.latin1Slice(TEXT.lastIndexOf(")", read) + 2, read).split(" ", POLICY + 1)[POLICY];
    } catch {
        status = undefined; // the tool has closed it
        return "";
    }
}

function directory() {
    try {
        return process.cwd();
    } catch {
        return ""; // it is removed
    }
}

function umask() {
    const mask = process.umask(0o077);
    process.umask(mask);
    return mask;
}

function setEnvironment(before) {
    for (const name of Object.keys(process.env)) if (!(name in before)) delete process.env[name];
    Object.assign(process.env, before);
}

function listeners() {
    return new Map(process.eventNames().map((event) => [event, process.rawListeners(event)]));
}

function areSame(now, before) {
    return now.size === before.size && [...now].every(([event, each]) => isSame(each, before.get(event)));
}

function isSame(one, other = []) {
    return one.length === other.length && one.every((listener, at) => listener === other[at]);
}

function setListeners(before) {
    for (const event of new Set([...process.eventNames(), ...before.keys()])) {
        const each = before.get(event) ?? [];
        if (isSame(process.rawListeners(event), each)) continue;
        process.removeAllListeners(event);
        for (const listener of each) process.on(event, listener);
    }
}

function setStackTraces([limit, prepare]) {
    Error.stackTraceLimit = limit;
    Error.prepareStackTrace = prepare;
}

/** A row for properties of an object, which are taken without calling a getter. */
function propertiesOf(name, find, names) {
    return {
        name,
        take: () => names.map((key) => [key, Object.getOwnPropertyDescriptor(find(), key)]),
        same: (one, other) =>
            one.every(([, now], at) => {
                const before = other[at][1];
                return now?.value === before?.value && now?.get === before?.get && !now === !before;
            }),
        putBack: (before) => {
            for (const [key, property] of before) {
                if (property) Object.defineProperty(find(), key, property);
                else delete find()[key];
            }
        },
    };
}
