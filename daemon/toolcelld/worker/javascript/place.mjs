// Where the worker lies: its libraries are in vendor/, and so is the worker itself when it is one file.

import path from "node:path";
import { fileURLToPath } from "node:url";

/** The directory of these files, also for the one file that build.mjs makes of them. */
export const HERE = path.dirname(fileURLToPath(import.meta.url)).replace(/\/vendor$/, "");
