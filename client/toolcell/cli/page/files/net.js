// What the page asks of its server. Each request shows the token that came with the cookie; it is kept for this origin
// alone, so that another server of this host, which is sent the cookie, has nothing of it.

const PLACE = "/api/operator/";
const TOKEN = "toolcell-page";
const QUIET_SECONDS = 3;

export class Fault extends Error {
    constructor(status, { reason, message, remedy }) {
        super(message);
        Object.assign(this, { status, reason, remedy });
    }
}

async function ask(path, options = {}) {
    const headers = { "X-Toolcell-Page": localStorage.getItem(TOKEN) ?? "" };
    if (options.body !== undefined) headers["Content-Type"] = "application/json";
    let answer;
    try {
        answer = await fetch(PLACE + path, { ...options, headers, cache: "no-store" });
    } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new Fault(0, { reason: "gone", message: "The page's server has ended.", remedy: "Start it again: toolcell ui" });
    }
    if (answer.ok) return answer;
    let said;
    try {
        said = (await answer.json()).error;
    } catch {
        said = { reason: "internal", message: `The server answered ${answer.status}.`, remedy: "" };
    }
    throw new Fault(answer.status, said);
}

const query = (values) =>
    new URLSearchParams(Object.entries(values).filter(([, value]) => value !== "" && value !== undefined && value !== false));

export const get = async (path, values = {}, signal) => (await ask(`${path}?${query(values)}`, { signal })).json();

export const post = async (path, body = {}) =>
    (await ask(path, { method: "POST", body: JSON.stringify(body) })).json();

export async function open(link) {
    const { token } = await post("open", { link });
    localStorage.setItem(TOKEN, token);
}

export async function close() {
    await post("close");
    localStorage.removeItem(TOKEN);
}

// Server-sent events by `fetch`, as an EventSource shows no token.
export async function* events(path, options = {}) {
    const reader = (await ask(path, options)).body.pipeThrough(new TextDecoderStream()).getReader();
    let unread = "";
    try {
        for (;;) {
            const { done, value } = await reader.read();
            if (done) return;
            const parts = (unread + value).split("\n\n");
            unread = parts.pop();
            for (const part of parts) {
                const found = /^event: (.*)\ndata: (.*)$/.exec(part);
                if (found) yield { name: found[1], data: JSON.parse(found[2]) };
            }
        }
    } finally {
        reader.cancel().catch(() => {});
    }
}

export const call = (body, signal) => events("call", { method: "POST", body: JSON.stringify(body), signal });

// Follow the state of the daemon for as long as the page is shown; a lost connection is made again.
export function follow(told, failed) {
    const ending = new AbortController();
    (async () => {
        while (!ending.signal.aborted) {
            try {
                for await (const event of events("live", { signal: ending.signal })) if (event.name === "state") told(event.data);
                failed(new Fault(0, { reason: "gone", message: "The connection has ended; trying again.", remedy: "" }));
            } catch (error) {
                if (ending.signal.aborted) return;
                failed(error);
                if (error.status === 401 || error.status === 403) return;
            }
            await new Promise((done) => setTimeout(done, QUIET_SECONDS * 1000));
        }
    })();
    return () => ending.abort();
}
