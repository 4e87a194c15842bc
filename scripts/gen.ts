import { regenerate } from '../src/build/generate.ts'

/** `npm run gen`: generates src/gen from proto/. */
regenerate()
