import { regenerate } from '../src/build/generate.ts'

/** `npm run gen`: generates src/gen from proto/, and the pages of docs/ that are made from the code. */
regenerate()
// Its imports may need what has just been generated.
const { writePages } = await import('./reference/pages.ts')
await writePages()
