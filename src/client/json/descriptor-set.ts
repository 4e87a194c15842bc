import { readFileSync } from 'node:fs'
import { join } from 'node:path'

/** Encoded descriptors of all services. A bundle contains them in place of this file (src/build/agent-ctl.ts). */
export function descriptorSet(): Uint8Array {
  return readFileSync(join(import.meta.dirname, '../../gen/descriptors.binpb'))
}
