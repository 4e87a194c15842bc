import { regenerate } from '../src/build/generate.ts'

/** `npm run gen`: generates src/gen from proto/, and the pages of docs/ that are made from the code. */
regenerate()
// Imported late: its own imports need the generated files.
const { writePages } = await import('./reference/pages.ts')
await writePages()
