// What a factory of tools receives, and what a tool of oh-my-pi or pi gets as its context.

import { spawn } from "node:child_process";

import { vendored } from "./modules.mjs";
import { hostModule } from "./stand_ins.mjs";

// Where nobody can be asked, a dialog is answered as if it had been closed.
const NO_SCREEN = new Proxy({}, { get: (_, name) => answers(name) });

let current = null; // the context of the newest call: a host is made once, and asked during calls

/** Returns the host for a factory; a tool that it registers is given to `register`, an action that waits to `pending`. */
export async function hostFor(register, pending) {
    const [zod, typebox, { StringEnum }] = await Promise.all([
        vendored("zod"),
        vendored("typebox"),
        hostModule(),
    ]);
    const host = {
        cwd: process.cwd(),
        directory: process.cwd(), // as plugins of OpenCode have it
        worktree: process.cwd(),
        get hasUI() {
            return current?.hasUI ?? false;
        },
        get ui() {
            return uiOf(current);
        },
        pushPendingAction: (action) => pending.push(action),
        logger: { debug: tell, info: tell, warn: tell, error: tell },
        zod: zod.z,
        typebox,
        exec: run,
        registerTool: register,
        // What an extension subscribes to or offers beside its tools is not there to be asked for.
        on() {},
        events: { on: () => () => {}, emit() {} },
        getFlag() {},
    };
    host.pi = named({ StringEnum, Type: typebox.Type, zod: zod.z, typebox });
    return named(host);
}

/** Returns the five arguments of oh-my-pi's `execute`, or those of pi, which has the signal third. */
export function argumentsFor(execute, values, context) {
    const onUpdate = (partial) => context.update(partial, partial?.details ?? null);
    const host = hostContext(context);
    const third = parameterNames(execute)[2];
    const rest = /^_?(signal|abort)/.test(third ?? "")
        ? [context.abort, onUpdate, host]
        : [onUpdate, host, context.abort];
    return [context.callID, values, ...rest];
}

/** Returns the context of a call as a tool of oh-my-pi has it. */
export function hostContext(context) {
    current = context;
    return { ...context, cwd: context.directory, hasUI: context.hasUI, ui: uiOf(context) };
}

/** Returns the dialogs of a call; a title and a message are one text where the user is asked. */
function uiOf(context) {
    if (!context?.hasUI) return NO_SCREEN;
    const ask = async (kind, parts, more = {}) => {
        const message = parts.filter((part) => typeof part === "string" && part.trim()).join("\n");
        const answer = await context.request("ui.question", { kind, message, ...more });
        return answer?.value ?? undefined;
    };
    const dialogs = {
        select: (title, options) => ask("select", [title], { options: options.map(String) }),
        input: (title, placeholder) => ask("input", [title], { default: String(placeholder ?? "") }),
        confirm: async (title, message) => (await ask("confirm", [title, message])) === true,
        notify: (message, level = "info") =>
            context.request("ui.notify", { message: String(message), level }).catch(() => tell(message)),
    };
    return new Proxy(dialogs, { get: (found, name) => found[name] ?? NO_SCREEN[name] });
}

function parameterNames(execute) {
    const list = /^[^(]*\(([^)]*)\)/.exec(Function.prototype.toString.call(execute))?.[1] ?? "";
    return list.split(",").map((name) => name.trim());
}

/** Returns an object that says which of its names is not there when a tool calls it, and that registers nothing else. */
function named(object) {
    const missing = (name) => () => {
        if (!name.startsWith("register")) throw new Error(`the host has no ${name}() here`);
    };
    const isAsked = (name) => typeof name === "symbol" || name === "then" || name === "toJSON";
    return new Proxy(object, {
        get: (found, name) => (name in found || isAsked(name) ? found[name] : missing(name)),
    });
}

function answers(name) {
    if (name === "then" || typeof name === "symbol") return undefined;
    return async () => (name === "confirm" ? false : undefined);
}

function tell(...values) {
    console.error(...values);
}

/** Runs a program without a shell; returns {stdout, stderr, code, killed} and does not throw. */
function run(command, words = [], { cwd, env, signal, timeout } = {}) {
    return new Promise((resolve) => {
        const child = spawn(command, words, {
            cwd,
            signal,
            timeout,
            env: env ? { ...process.env, ...env } : process.env,
            stdio: ["ignore", "pipe", "pipe"],
        });
        const output = { stdout: "", stderr: "" };
        for (const stream of ["stdout", "stderr"]) {
            child[stream].setEncoding("utf8");
            child[stream].on("data", (text) => (output[stream] += text));
        }
        child.on("error", (error) => {
            output.stderr += error.message;
            if (child.pid === undefined) resolve({ ...output, code: 127, killed: false });
        });
        child.on("close", (code, ended) => resolve({ ...output, code: code ?? 1, killed: ended !== null }));
    });
}
