import { dirname } from 'node:path'
import { buildAddon } from '../../../src/build/native.ts'
import { loadNative, type Native } from '../../../src/os/native.ts'

/** The addon, built if it has to be. */
export async function realNative(): Promise<Native> {
  return loadNative(dirname(await buildAddon()))
}
