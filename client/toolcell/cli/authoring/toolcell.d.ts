// The types of the package "toolcell", for editors. `toolcell new typescript` writes this file anew; nothing of it is run.

declare module "toolcell" {
  /** The JSON Schema of one argument. It is required unless it has a `default`, or `optional: true`. */
  export interface ArgumentSchema {
    readonly type?: "string" | "number" | "integer" | "boolean" | "array" | "object" | "null"
    /** What the model reads about the argument. */
    readonly description?: string
    readonly enum?: readonly unknown[]
    /** What the tool gets where the model gives none. */
    readonly default?: unknown
    readonly optional?: boolean
    readonly items?: ArgumentSchema
    readonly [keyword: string]: unknown
  }

  /** A schema of Zod, or of another library that follows Standard Schema. */
  export interface LibrarySchema {
    readonly "~standard": { readonly types?: { readonly output: unknown } | undefined }
  }

  export type Arguments = { readonly [name: string]: ArgumentSchema | LibrarySchema }

  type ValueOf<S> = S extends { readonly "~standard": { readonly types?: infer T } }
    ? NonNullable<T> extends { readonly output: infer O }
      ? O
      : unknown
    : S extends { readonly enum: readonly (infer E)[] }
      ? E
      : S extends { readonly type: "string" }
        ? string
        : S extends { readonly type: "number" | "integer" }
          ? number
          : S extends { readonly type: "boolean" }
            ? boolean
            : S extends { readonly type: "array"; readonly items: infer I }
              ? ValueOf<I>[]
              : S extends { readonly type: "array" }
                ? unknown[]
                : S extends { readonly type: "object" }
                  ? { [key: string]: unknown }
                  : unknown

  type OptionalNames<A> = {
    [K in keyof A]: A[K] extends { readonly optional: true }
      ? K
      : A[K] extends LibrarySchema
        ? undefined extends ValueOf<A[K]>
          ? K
          : never
        : never
  }[keyof A]

  /** What a tool with these arguments gets: defaults are filled in. */
  export type ValuesOf<A> = { [K in Exclude<keyof A, OptionalNames<A>>]: ValueOf<A[K]> } & {
    [K in OptionalNames<A>]?: ValueOf<A[K]>
  }

  /** The call that a tool runs in. */
  export interface ToolContext {
    readonly sessionID: string
    readonly messageID: string
    readonly callID: string
    /** The agent that calls; empty if it has no name. */
    readonly agent: string
    /** The session's directory, which is also the working directory. */
    readonly directory: string
    /** The root of the session's project. */
    readonly worktree: string
    /** Fires when the call is stopped; a tool that goes on is killed after a grace of seconds. */
    readonly abort: AbortSignal
    /** Tells the client a title and data of the call; later values replace earlier ones. */
    metadata(values: { title?: string; metadata?: { [key: string]: unknown } }): void
    /** Shows how far the call is. */
    progress(done: number, total?: number, message?: string): void
    /** Shows a partial result; a later one replaces it. */
    update(content: unknown, details?: unknown): void
    /** Asks the user; rejects if the user refuses, or there is nobody to ask. */
    ask(question: {
      permission?: string
      patterns?: readonly string[]
      always?: readonly string[]
      metadata?: { [key: string]: unknown }
      question?: string
    }): Promise<void>
    /** Uses a service of the agent's adapter. */
    request(service: string, values?: { [key: string]: unknown }): Promise<unknown>
  }

  export interface ToolDefinition<A extends Arguments = {}> {
    /** Its name; without one the file and the export name it. */
    name?: string
    /** What the model reads about the tool. */
    description: string
    args?: A
    /**
     * Runs the tool. It returns a text, data, `{ output, title, metadata, attachments }` or
     * `{ content, details, isError }`, or a promise of one; what it throws is its error.
     */
    execute(args: ValuesOf<A>, context: ToolContext): unknown
  }

  /** Declares a tool: `export default tool({ … })`. */
  export function tool<const A extends Arguments = {}>(definition: ToolDefinition<A>): ToolDefinition<A>

  /** Thrown to report a failure to the model: the message is passed on unchanged. */
  export class ToolError extends Error {
    constructor(message: string, options?: { details?: unknown })
    /** Data for programs. */
    readonly details: unknown
  }
}
