// Texts of others as the page shows them: tools, files, sessions and messages have any characters and any length.

const SHOWN_MAX = 200;
// Controls, and what turns or hides the text around it. A line's end and a tab stay where `lines` is asked for.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]|\udb40[\udc00-\udfff]/g;

const named = (letters) => `\\u${letters.charCodeAt(0).toString(16).padStart(4, "0")}`;

export const lines = (text) => String(text ?? "").replace(HIDDEN, (letter) => (letter === "\n" || letter === "\t" ? letter : named(letter)));

export function short(text, most = SHOWN_MAX) {
    const whole = String(text ?? "");
    return (whole.length > most ? `${whole.slice(0, most)}…` : whole).replace(/[\n\t]+/g, " ").replace(HIDDEN, named);
}

export function seconds(value) {
    if (value === null || value === undefined) return "";
    if (value < 0.0995) return `${(value * 1000).toPrecision(value < 0.00995 ? 2 : 3).replace(/\.0+$/, "")} ms`;
    if (value < 60) return `${value.toFixed(value < 10 ? 2 : 1)} s`;
    if (value < 3600) return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
    if (value < 86400) return `${Math.floor(value / 3600)} h ${Math.round((value % 3600) / 60)} min`;
    return `${Math.floor(value / 86400)} d ${Math.round((value % 86400) / 3600)} h`;
}

export function bytes(value) {
    if (value === null || value === undefined) return "";
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    while (value >= 1024 && unit < units.length - 1) {
        value /= 1024;
        unit += 1;
    }
    return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

const two = (number) => String(number).padStart(2, "0");

// A time of the wire, or seconds since 1970, in the browser's zone.
export function clock(time) {
    if (!time) return "";
    const at = new Date(typeof time === "number" ? time * 1000 : time);
    const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} `;
    const today = new Date().toDateString() === at.toDateString();
    return `${today ? "" : day}${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

export const since = (time) => seconds(Math.max(0, Date.now() / 1000 - (typeof time === "number" ? time : Date.parse(time) / 1000)));
