// The worker for tools in TypeScript and JavaScript: loads one file, then runs one call at a time.
//
// The Python worker executes an engine with this file when the cell is complete, so nothing here confines anything.
// The engine keeps reading while a tool waits, so an abort reaches the tool as the end of its signal. A tool that holds
// the engine's only thread does not stop so, and is killed with its cell.

import fs from "node:fs";

import { absenceOf } from "./absence.mjs";
import { brokenBy } from "./broken.mjs";
import { Call, Denied, deferred } from "./call.mjs";
import { receive, receiveAborts, send } from "./channel.mjs";
import { refuseDialogs, refuseQuestions } from "./dialogs.mjs";
import { fieldsOf, refusedAtImport } from "./failures.mjs";
import * as leftovers from "./leftovers.mjs";
import { importFile, imported } from "./modules.mjs";
import { ProcessState } from "./process_state.mjs";
import { json, normalise, sendResult } from "./results.mjs";
import { ToolError } from "./shims/toolcell.mjs";
import { isA, shown, textOf, traceOf } from "./thrown.mjs";
import { described, toolsOf } from "./tools.mjs";
import { explainedImport } from "./unimported.mjs";

const PROTOCOL_VERSION = 1;
const NODE_OLDEST = 24;
const LOADING = 0; // the number that stands for loading where calls are aborted
const PROTOCOL_ERROR = 70; // EX_SOFTWARE
const SETTLE_MILLISECONDS = 1_500; // for a tool whose signal was aborted, within the usual grace of two seconds
const IMPORTED_MAX = 500;
const IMPORTED_BATCH_MAX = 50;
const HELPERS_MAX = 1_000;
const NOTHING = Buffer.alloc(0);

const NOT_AWAITED =
    "context.ask(…) was not awaited, so the tool went on without the answer. Write await context.ask(…).";

const ENGINE = process.versions.bun ? `bun ${process.versions.bun}` : `node ${process.versions.node}`;
const exit = process.exit.bind(process);

/** What `process.exit` throws. */
class Exited extends Error {}

class Worker {
    #layers;
    #packages; // the directories of packages that were installed for the file
    #directory = ""; // of calls
    #path = ""; // of the tool file
    #importedIn = "";
    #project = "";
    #enclosure = "none";
    #tools = new Map();
    #call = null; // the running one
    #highest = -1; // of the numbers that were aborted
    #loading = deferred(); // rejected when loading is aborted
    #waits = "an `await` outside of every function, in the file or in what it imports, has not ended; await in execute()";
    #spoiled = 0; // what went wrong outside of a call, or goes on after one
    #baseline = 0; // what the file itself has left running
    #state; // that every call begins with
    #cpuSeconds = 0;
    #reported = new Set(); // imported files of the project

    constructor({ layers, packages = [] }) {
        this.#layers = layers;
        this.#packages = packages;
        this.#loading.promise.catch(() => {});
        process.exit = (status) => {
            const said = `called process.exit(${status === undefined ? "" : shown(status)})`;
            throw new Exited(this.#call === null ? said : `the tool ${said}; a tool ends with its result: return it`);
        };
        refuseDialogs();
        process.on("uncaughtException", (error) => this.#onStray(error, true));
        process.on("unhandledRejection", (error) => this.#onStray(error, false));
        receiveAborts((number, reason) => this.#onAbort(number, reason));
        receive(
            (message) => this.#onMessage(message),
            (error) => {
                if (error) fs.writeSync(2, `toolcell: the daemon broke the protocol: ${error.message}\n`);
                exit(error ? PROTOCOL_ERROR : 0);
            },
        );
        send({ type: "hello", protocol: PROTOCOL_VERSION, pid: process.pid, python: ENGINE }, NOTHING);
    }

    #onMessage({ header, payload }) {
        switch (header.type) {
            case "become":
                return this.#become(JSON.parse(payload.toString()));
            case "load":
                return void this.#load(header, payload).catch(leave);
            case "call":
                return void this.#run(header, payload).catch(leave);
            case "answer":
            case "reply":
                return this.#call?.answered(header, Buffer.from(payload));
            case "retire":
                return exit(0);
        }
    }

    #become({ directory, imported_in: importedIn, project, policy }) {
        this.#directory = directory;
        this.#importedIn = importedIn || directory;
        this.#enclosure = policy?.enclosure ?? "none";
        this.#project = project ?? "";
        process.chdir(directory);
    }

    #onAbort(number, reason) {
        this.#highest = Math.max(this.#highest, number);
        if (number === LOADING) this.#loading.reject(new Error(`still loading after ${reason}: ${this.#waits}`));
        const call = this.#call;
        if (call === null || call.sequence > number || call.aborted) return;
        call.abort(reason);
        setTimeout(() => call.fail(new Error("aborted")), SETTLE_MILLISECONDS).unref();
    }

    #onStray(error, isException) {
        this.#spoiled += 1;
        if (this.#call === null) return void fs.writeSync(2, `${traceOf(error)}\n`);
        if (isException) this.#call.fail(error);
        else this.#call.log("error", `a promise that nothing waits for was rejected: ${traceOf(error)}`);
    }

    // Loading

    async #load({ path, stem, directory, describe }, content) {
        this.#path = path;
        try {
            if (parseInt(process.versions.node) < NODE_OLDEST && !process.versions.bun)
                throw new Error(
                    `${ENGINE} (${process.execPath}) is too old: tools in TypeScript and JavaScript need bun, or node ${NODE_OLDEST} or later`,
                );
            leftovers.watch();
            refuseQuestions(content.toString());
            const load = async () => {
                const exported = await importFile(path, Buffer.from(content), this.#packages);
                this.#waits = "what the file exports has not returned its tools";
                return toolsOf(exported, content.toString(), path, stem, describe);
            };
            process.chdir(this.#importedIn);
            const found = await Promise.race([load(), this.#loading.promise]);
            // Unless the file has changed to another one itself.
            if (process.cwd() === this.#importedIn) process.chdir(this.#directory);
            this.#tools = found.tools;
            const inside = directory.endsWith("/") ? directory : `${directory}/`;
            const helpers = imported().filter((file) => file.startsWith(inside) && file !== path);
            const names = helpers.slice(0, HELPERS_MAX).map((file) => file.slice(inside.length));
            await turn();
            this.#baseline = leftovers.count();
            this.#state = new ProcessState(content.toString());
            this.#reportImports();
            const answer = describe ? described(found, names) : Buffer.from('{"tools":[],"problems":[]}');
            send({ type: "loaded", layers: this.#layers }, answer);
        } catch (error) {
            const exited = error instanceof Exited; // what the file has printed says more than a trace
            if (!exited) fs.writeSync(2, `${traceOf(error)}\n`);
            const broken = advised(brokenBy(error, path, content.toString()), path, content.toString());
            const refused = describe ? refusedAtImport(error, this.#enclosure) : "";
            if (refused) broken.message += `\n${refused}`;
            if (exited) broken.stage = "exit";
            send(broken, NOTHING);
        }
    }

    #reportImports() {
        if (!this.#project) return;
        const base = `${this.#project}/`;
        const files = imported().filter((file) => file.startsWith(base) && !this.#reported.has(file));
        files.splice(Math.max(0, IMPORTED_MAX - this.#reported.size));
        for (const file of files) this.#reported.add(file);
        // A time in nanoseconds is more than a number of JavaScript holds.
        const timeOf = (file) => fs.statSync(file, { bigint: true, throwIfNoEntry: false })?.mtimeNs ?? 0n;
        const times = files.map((file) => [file.slice(base.length), JSON.rawJSON(String(timeOf(file)))]);
        for (let at = 0; at < times.length; at += IMPORTED_BATCH_MAX)
            send(
                { type: "imported", files: Object.fromEntries(times.slice(at, at + IMPORTED_BATCH_MAX)) },
                NOTHING,
            );
    }

    // Calling

    async #run({ seq, tool: name, context }, payload) {
        const call = new Call(seq, context);
        this.#call = call;
        const { kind, result, ran, fields = {} } = await this.#outcome(call, this.#tools.get(name), payload);
        await call.finish();
        this.#call = null;
        const lost = this.#state.lost();
        await turn();
        this.#reportImports();
        const used = process.resourceUsage();
        const cpuSeconds = (used.userCPUTime + used.systemCPUTime) / 1e6;
        const threads = Math.max(0, leftovers.count() - this.#baseline) + this.#spoiled;
        const cpu = Math.max(0, Number((cpuSeconds - this.#cpuSeconds).toFixed(6)));
        this.#cpuSeconds = cpuSeconds;
        const figures = { cpu, rss: used.maxRSS * 1024, threads };
        if (lost.length) fields.changed = lost;
        sendResult(send, { type: "result", seq, kind, ran, ...figures, ...fields }, result);
        if (!this.#state.putBack()) exit(0);
    }

    async #outcome(call, tool, payload) {
        if (tool === undefined) return failed("internal", "the file has no such tool any more", false);
        if (call.sequence <= this.#highest) return failed("aborted", "", false);
        let running = null;
        try {
            const read = await call.within(tool.input.parse(JSON.parse(payload.toString())));
            if (read.problems !== undefined) return failed("invalid_arguments", read.problems, false);
            this.#spoiled += 1; // until it settles
            running = (async () => tool.execute(read.value, call.context()))();
            running.then(
                () => (this.#spoiled -= 1),
                () => (this.#spoiled -= 1),
            );
            const result = normalise(await call.within(running));
            if (call.waits && !call.aborted) return failed("tool_error", NOT_AWAITED, true);
            return {
                kind: call.aborted ? "aborted" : result.isError ? "tool_error" : "ok",
                result,
                ran: true,
            };
        } catch (error) {
            const ran = running !== null;
            if (call.aborted) return failed("aborted", "", ran);
            if (!ran && isA(error, SyntaxError))
                return failed("invalid_arguments", `the arguments are not JSON: ${error.message}`, false);
            if (isA(error, Denied)) return failed("denied", textOf(error), ran);
            if (isA(error, ToolError)) return toldBy(error, ran);
            call.log("error", traceOf(error));
            return {
                ...failed("tool_error", explainedImport(textOf(error), this.#path), ran),
                fields: fieldsOf(error, this.#enclosure),
            };
        }
    }
}

/** Ends the process for a bug of ours: what waits for an answer hears of it at once. */
function leave(bug) {
    fs.writeSync(2, `toolcell: ${traceOf(bug)}\n`);
    exit(PROTOCOL_ERROR);
}

function failed(kind, text, ran) {
    return { kind, result: { blocks: text ? [{ type: "text", text }] : [] }, ran };
}

/** The outcome of a call whose tool reports a failure. */
function toldBy(error, ran) {
    const outcome = failed("tool_error", textOf(error), ran);
    try {
        if (error.details !== undefined) outcome.result.details = json(error.details);
    } catch {
        // What JSON cannot carry is left out: the message is what counts.
    }
    return outcome;
}

/** Waits until what was closed is gone: the engine's loop ends closed handles after what it does immediately. */
async function turn() {
    for (let rest = 2; rest > 0; rest -= 1) await new Promise((resolve) => setImmediate(resolve));
}

/**
 * Returns the header of `broken` with what to do for a file that is not there, and, before what was thrown, with why the file
 * would have no tools: a package would be installed in vain.
 */
function advised(broken, path, source) {
    const absence = absenceOf(path, source, null);
    broken.message = explainedImport(broken.message, path);
    if (!absence) return broken;
    const place = broken.line ? `line ${broken.line} cannot be run` : "it cannot be loaded";
    return { ...broken, message: `it has no tool: ${absence}\nBesides, ${place}: ${broken.message}`, line: 0, module: "" };
}

delete process.env.NODE_PATH; // ours, which Bun has read: see engine.py
new Worker(JSON.parse(process.argv[2]));
