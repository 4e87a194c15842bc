import { dirname } from 'node:path'
import { buildAddon } from '../../../src/build/native.ts'
import { loadNative, type Native } from '../../../src/os/native.ts'

/** The environment variable that names the folder of another build of the addon. */
export const ADDON_FOLDER = 'TEST_ADDON_FOLDER'

/** The addon, built if it has to be. */
export async function realNative(): Promise<Native> {
  return loadNative(process.env[ADDON_FOLDER] ?? dirname(await buildAddon()))
}
