// The fields of a tool object: which are read, which belong to the configuration, and which nobody knows.

/** What the configuration says of a tool's cell. In a file it would be read as a promise that nobody keeps. */
export const OF_CELL = ["env", "isolation", "network", "programs", "read_only", "sandbox", "secrets"];
/** What it says of a tool besides, which has no effect in a file. */
const OF_TOOL = [
    ...["timeout", "queue", "cpu", "idle", "memory", "processes", "open_files", "file_size", "disk"],
    ...["output_lines", "output_bytes", "destructive", "idempotent"],
];
const READ = ["name", "description", "args", "parameters", "inputSchema", "input_schema", "execute", "onSession"];
/** What tools of other systems have besides, for their hosts. */
const OF_OTHERS = [
    ...["label", "title", "type", "id", "kind", "strict", "hidden", "promptSnippet", "promptGuidelines", "prepareArguments"],
    ...["executionMode", "renderCall", "renderResult", "renderShell", "mergeCallAndResult", "inline", "defaultInactive"],
    ...["deferrable", "mcpServerName", "mcpToolName", "nonAbortable", "concurrency", "lenientArgValidation", "loadMode"],
    ...["summary", "intent", "approval", "annotations", "outputSchema", "output", "options", "toModelOutput", "icon", "icons"],
    ...["providerOptions", "overridesBuiltInTool", "skipPermission", "metadata", "_meta", "examples", "category", "tags"],
];
const KNOWN = [...READ, ...OF_TOOL, ...OF_CELL, ...OF_OTHERS];
const WRONG_MAX = 2; // letters of a name that is meant otherwise
const SHOWN_MAX = 64;

/** Returns a sentence for each field of a plain tool object that has no effect. */
export function remarksOn(tool, value) {
    const above = Object.getPrototypeOf(value);
    if (above !== Object.prototype && above !== null) return []; // the fields of a class are its own
    const odd = Object.keys(value).filter((key) => value[key] !== undefined && !READ.includes(key) && !OF_OTHERS.includes(key));
    return odd.filter((key) => OF_TOOL.includes(key) || typeof value[key] !== "function").map((key) => {
        if (OF_TOOL.includes(key))
            return `\`${key}\` is not read from a file in TypeScript; take it out, and put it under [tool.${tool}] in the configuration`;
        const nearest = KNOWN.map((name) => [distance(key, name), name]).sort(([one], [other]) => one - other)[0];
        const hint = nearest[0] <= WRONG_MAX && nearest[0] < key.length / 2 ? `did you mean '${nearest[1]}'?` : "it has no effect";
        return `there is no option '${key.slice(0, SHOWN_MAX)}'; ${hint}`;
    });
}

/** The letters to insert, remove or replace that make one word of another, without its case. */
function distance(one, other) {
    let row = Array.from({ length: other.length + 1 }, (_, at) => at);
    for (const [at, letter] of [...one.slice(0, SHOWN_MAX).toLowerCase()].entries()) {
        const next = [at + 1];
        for (const [to, wanted] of [...other.toLowerCase()].entries())
            next.push(Math.min(row[to] + (letter === wanted ? 0 : 1), row[to + 1] + 1, next[to] + 1));
        row = next;
    }
    return row.at(-1);
}
