// One call of a tool: what the tool tells and asks meanwhile, its abort, and the context that it gets.

import { FrameError, PAYLOAD_BYTES_MAX, json } from "./frames.mjs";
import { send } from "./channel.mjs";
import { updateContent } from "./results.mjs";

const TELL_MILLISECONDS = 20;
const METADATA_BYTES_MAX = 32_768;
const RECORDS_MAX = 100; // of one message
const PENDING_MAX = 1_000; // records that are kept until they are sent
const RECORD_CHARACTERS_MAX = 16_000;
const OPEN_MAX = 16; // questions and requests

/** The user refused what a tool asked for. */
export class Denied extends Error {
    name = "Denied";
}

/** Returns a promise with its functions; Promise.withResolvers for engines that are too old for it. */
export function deferred() {
    const found = {};
    found.promise = new Promise((resolve, reject) => Object.assign(found, { resolve, reject }));
    return found;
}

export class Call {
    aborted = false;
    #controller = new AbortController();
    #stopped = deferred(); // rejected by what ends the call before its tool does
    #open = new Map(); // questions and requests by number
    #lastNumber = 0;
    #unanswered = new Set(); // the numbers of permissions that are asked for
    #metadata = null;
    #records = [];
    #lost = 0;
    #newest = new Map(); // update and progress, which replace their predecessors
    #timer = null;

    constructor(sequence, wired) {
        this.sequence = sequence;
        this.wired = wired;
        this.#stopped.promise.catch(() => {});
    }

    /** Aborts the call: its signal fires, and what it waits for ends. */
    abort(reason) {
        if (this.aborted) return;
        this.aborted = true;
        this.#controller.abort(new DOMException(reason || "the call was aborted", "AbortError"));
    }

    /** Ends the call with an error that did not come from its own function. */
    fail(error) {
        this.#stopped.reject(error);
    }

    /** Waits for a promise of the tool's, unless the call ends before. */
    within(promise) {
        return Promise.race([promise, this.#stopped.promise]);
    }

    /** The second argument of a tool. */
    context() {
        const wired = this.wired;
        const context = {
            sessionID: wired.session_id,
            messageID: wired.message_id,
            callID: wired.call_id,
            agent: wired.agent_name || wired.agent,
            directory: wired.directory,
            worktree: wired.worktree,
            abort: this.#controller.signal,
            extra: {},
            metadata: ({ title, metadata } = {}) =>
                this.#tellMetadata(title === undefined ? metadata : { ...metadata, title }),
            update: (content, details = null) =>
                this.#tellNewest("update", {}, { content: updateContent(content), details }),
            progress: (done, total, message) =>
                this.#tellNewest("progress", progressOf(done, total, message)),
            ask: (question) => this.#ask(question),
            request: (service, values = {}) => this.#request(service, values),
        };
        // Not among the names that a tool of OpenCode sees.
        return Object.defineProperty(context, "hasUI", { value: wired.has_ui === true });
    }

    /** Keeps a record for the log of the call. */
    log(level, text) {
        if (this.#records.length < PENDING_MAX)
            this.#records.push({ level, text: text.slice(0, RECORD_CHARACTERS_MAX) });
        else this.#lost += 1;
        this.#schedule();
    }

    /** Passes on the answer to a question or request. */
    answered(header, payload) {
        this.#unanswered.delete(header.ask);
        this.#open.get(header.ask)?.(header, payload);
        this.#open.delete(header.ask);
    }

    /** Whether a permission is asked for and not given yet: at the end of its function the tool has not waited for it. */
    get waits() {
        return this.#unanswered.size > 0;
    }

    /** Withdraws open questions and sends what is pending; nothing is sent for the call afterwards, but its result. */
    async finish() {
        const withdrawn = [...this.#open.keys()].map((number) => {
            const { promise, resolve } = deferred();
            this.#open.set(number, resolve);
            send({ type: "withdraw", seq: this.sequence, ask: number }, Buffer.alloc(0));
            return promise;
        });
        await Promise.all(withdrawn);
        clearTimeout(this.#timer);
        this.#sendPending();
        this.#timer = true; // no later message is scheduled
    }

    async #ask({ permission = "", patterns = [], always = [], metadata, question } = {}) {
        const fields = { permission: String(permission), patterns: texts(patterns), always: texts(always) };
        fields.question = String(question ?? `${fields.permission}: ${fields.patterns.join(", ")}`);
        const { header } = await this.#question("ask", fields, metadata);
        if (!header.allowed) throw new Denied(header.message || "The user did not allow it.");
    }

    async #request(service, values) {
        if (values === null || typeof values !== "object" || Array.isArray(values))
            throw new TypeError("the values of a request are an object");
        const { header, payload } = await this.#question("request", { service: String(service) }, values);
        if (payload.length === 0) throw new Error(header.message || `the service ${service} did not answer`);
        return JSON.parse(payload.toString());
    }

    #question(type, fields, value) {
        if (this.#timer === true) throw new Error("the call has ended");
        if (this.#open.size >= OPEN_MAX) throw new Error(`more than ${OPEN_MAX} questions are open`);
        const ask = this.#lastNumber + 1;
        const { promise, resolve } = deferred();
        try {
            const payload = value === undefined ? Buffer.alloc(0) : Buffer.from(json(value));
            if (payload.length > PAYLOAD_BYTES_MAX)
                throw new FrameError(`a payload of ${payload.length} bytes`);
            send({ type, seq: this.sequence, ask, ...fields }, payload);
        } catch (error) {
            if (!(error instanceof FrameError)) throw error;
            throw new Error(`The question is too large: ${error.message}. Ask for less at once.`);
        }
        this.#lastNumber = ask;
        this.#open.set(ask, (header, payload) => resolve({ header, payload }));
        if (type === "ask") this.#unanswered.add(ask);
        return this.within(promise);
    }

    #tellMetadata(values) {
        const merged = { ...this.#metadata, ...values };
        if (Buffer.byteLength(json(merged)) > METADATA_BYTES_MAX)
            this.log("warning", "metadata was dropped: too large");
        else this.#metadata = merged;
        this.#schedule();
    }

    #tellNewest(type, fields, value) {
        const payload = value === undefined ? Buffer.alloc(0) : Buffer.from(json(value));
        if (payload.length > PAYLOAD_BYTES_MAX)
            this.log("warning", `an ${type} of ${payload.length} bytes was dropped: too large`);
        else this.#newest.set(type, [fields, payload]);
        this.#schedule();
    }

    #schedule() {
        this.#timer ??= setTimeout(() => {
            this.#timer = null;
            this.#sendPending();
        }, TELL_MILLISECONDS);
    }

    #sendPending() {
        if (this.#metadata !== null)
            send({ type: "metadata", seq: this.sequence }, Buffer.from(json(this.#metadata)));
        this.#metadata = null;
        while (this.#records.length || this.#lost) {
            let count = Math.min(RECORDS_MAX, this.#records.length);
            let payload = Buffer.from(json(this.#records.slice(0, count)));
            while (payload.length > PAYLOAD_BYTES_MAX) {
                count = Math.ceil(count / 2);
                payload = Buffer.from(json(this.#records.slice(0, count)));
            }
            send({ type: "log", seq: this.sequence, lost: this.#lost }, payload);
            this.#records.splice(0, count);
            this.#lost = 0;
        }
        for (const [type, [fields, payload]] of this.#newest)
            send({ type, seq: this.sequence, ...fields }, payload);
        this.#newest.clear();
    }
}

function texts(values) {
    if (!Array.isArray(values)) throw new TypeError("a list of texts is needed");
    return values.map(String);
}

function progressOf(done, total, message) {
    const number = (value) => (Number.isFinite(value) ? value : 0);
    const fields = { done: number(done) };
    if (total !== undefined && total !== null) fields.total = number(total);
    if (message !== undefined && message !== null) fields.message = String(message);
    return fields;
}
