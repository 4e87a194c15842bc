import { fileURLToPath } from 'node:url'

/** The top folder of the project, with a slash at its end. */
export const project = fileURLToPath(new URL('../..', import.meta.url))
