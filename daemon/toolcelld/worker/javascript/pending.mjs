// Actions that wait for a decision: a tool shows what it would do, and the model applies or discards it.

export const PUSH = "pushPendingAction";
const PENDING_MAX = 64;
const LABEL_CHARACTERS_MAX = 200;

const SCHEMA = {
    type: "object",
    properties: {
        action: {
            type: "string",
            enum: ["apply", "discard"],
            description: "Whether the pending action is carried out.",
        },
        reason: { type: "string", description: "Why, in a sentence.", default: "" },
    },
    required: ["action"],
    additionalProperties: false,
};

/** The actions of one process, the newest last. */
export class PendingActions {
    #actions = [];

    /** Keeps {label, apply, reject, details} until it is applied or discarded. Throws for what is none, and beyond 64. */
    push({ label, apply, reject, details } = {}) {
        if (typeof label !== "string" || !label.trim() || typeof apply !== "function")
            throw new TypeError("a pending action has a label and a function apply");
        if (this.#actions.length >= PENDING_MAX)
            throw new Error(`${PENDING_MAX} actions are pending; resolve some first`);
        this.#actions.push({ label: label.trim().slice(0, LABEL_CHARACTERS_MAX), apply, reject, details });
    }

    /** Returns the tool that decides about the actions of a file. */
    resolver(stem) {
        return {
            name: `${stem}_resolve`,
            description: `Apply or discard the action that a tool of ${stem} proposed last. Nothing of a proposal has been done until it is applied.`,
            parameters: SCHEMA,
            execute: (values, context) => this.#resolve(values, context),
        };
    }

    async #resolve({ action, reason = "" }, context) {
        const newest = this.#actions.at(-1);
        if (newest === undefined)
            throw new Error("No action is pending. Call the tool that proposes one first.");
        const isApplied = action === "apply";
        const value = isApplied ? await newest.apply(reason) : await newest.reject?.(reason);
        this.#actions.splice(this.#actions.indexOf(newest), 1); // one whose apply throws stays
        context.metadata({ title: `${isApplied ? "Apply" : "Discard"}: ${newest.label}` });
        if (value !== undefined && value !== null) return value;
        const rest = this.#actions.length ? ` ${this.#actions.length} more are pending.` : "";
        const text = `${isApplied ? "Applied" : "Discarded"}: ${newest.label}.${rest}`;
        return { content: [{ type: "text", text }], details: newest.details ?? null };
    }
}
