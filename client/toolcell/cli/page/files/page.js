// The page: opens the link that it was loaded with, follows the daemon, and shows the view that the address names.

import { html, render, useEffect, useRef, useState } from "./vendor/preact.js";
import { Audit } from "./audit.js";
import { Call } from "./call.js";
import { CallList } from "./calls.js";
import { close, follow, get, open } from "./net.js";
import { Overview } from "./overview.js";
import { Failed, place } from "./parts.js";
import { Problems } from "./problems.js";
import { short } from "./text.js";
import { Tool } from "./tool.js";
import { Tools } from "./tools.js";

const VIEWS = { overview: Overview, calls: CallList, call: Call, tools: Tools, tool: Tool, problems: Problems, audit: Audit };
const MENU = [["overview", "Overview"], ["calls", "Calls"], ["tools", "Tools"], ["problems", "Problems"], ["audit", "Audit"]];
const ABOVE = { call: "calls", tool: "tools" };

function parse(hash) {
    try {
        const [view, ...rest] = hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
        return Object.hasOwn(VIEWS, view) ? [view, rest] : ["overview", []];
    } catch {
        return ["overview", []];
    }
}

function useAddress() {
    const [hash, setHash] = useState(location.hash);
    useEffect(() => {
        const changed = () => setHash(location.hash);
        addEventListener("hashchange", changed);
        return () => removeEventListener("hashchange", changed);
    }, []);
    return parse(hash);
}

// Whoever reads the page by ear is told where they are after each change of the view.
function useFocus(view, rest, ready) {
    const first = useRef(true);
    const key = [view, ...rest].join("/");
    useEffect(() => {
        if (!ready) return;
        document.title = `${short(rest[0] ?? view, 60)} - Toolcell`;
        if (first.current) first.current = false;
        else document.querySelector("main")?.focus();
    }, [key, ready]);
}

function Page() {
    const [view, rest] = useAddress();
    const [session, setSession] = useState(null);
    const [state, setState] = useState(null);
    const [fault, setFault] = useState(null);
    const [said, setSaid] = useState(null);
    useFocus(view, rest, session !== null);
    useEffect(() => setSaid(null), [view, rest.join("/")]);
    useEffect(() => {
        let leave = () => {};
        (async () => {
            const link = /^#open=([A-Za-z0-9_-]+)$/.exec(location.hash);
            try {
                if (link) {
                    history.replaceState(null, "", "#/overview"); // a secret has no place in the history
                    await open(link[1]);
                }
                setSession(await get("session"));
                leave = follow(
                    (told) => {
                        setState(told);
                        setFault(null);
                    },
                    setFault,
                );
            } catch (error) {
                setFault(error);
            }
        })();
        return () => leave();
    }, []);
    if (session === null)
        return html`<main tabindex="-1"><h1>Toolcell</h1>${fault ? html`<${Failed} error=${fault} />` : html`<p class="quiet">Loading.</p>`}</main>`;
    const seat = { ...session, say: setSaid };
    const leave = () => close().then(() => location.reload()).catch((error) => setFault(error));
    const Shown = VIEWS[view];
    return html`<a class="skip" href="#main" onClick=${(event) => {
            event.preventDefault();
            document.querySelector("main").focus();
        }}>To the content</a>
        <header>
            <strong>Toolcell</strong>
            <nav aria-label="Views">
                ${MENU.map(([name, title]) => html`<a href=${place(name)} aria-current=${(ABOVE[view] ?? view) === name ? "page" : undefined}>${title}</a>`)}
            </nav>
            <span class="mode">${session.may_act ? "may act" : "read-only"}</span>
            <button type="button" onClick=${leave}>End session</button>
        </header>
        <main id="main" tabindex="-1">
            <${Failed} error=${fault} />
            ${state?.unavailable && html`<${Failed} error=${{ message: state.unavailable, remedy: state.remedy }} />`}
            <div role="status">${said && html`<div class=${said.done ? "note done" : "note"}>${short(said.text, 1000)}${said.remedy ? `\n${short(said.remedy, 600)}` : ""}</div>`}</div>
            <${Shown} key=${[view, ...rest].join("/")} state=${state} seat=${seat} rest=${rest} />
        </main>`;
}

const root = document.getElementById("page");
root.textContent = "";
render(html`<${Page} />`, root);
