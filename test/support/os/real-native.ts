import { execFile } from 'node:child_process'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { buildAddon } from '../../../src/build/native.ts'
import { loadNative, type Native } from '../../../src/os/native.ts'

/** The environment variable with the folder of another build of the addon. */
export const ADDON_FOLDER = 'TEST_ADDON_FOLDER'

/** The folder of the addon, which is built when needed. */
export async function addonFolder(): Promise<string> {
  return process.env[ADDON_FOLDER] ?? dirname(await buildAddon())
}

let native: Promise<Native> | undefined

/** The addon, which is built when needed. To look whether it is takes a tenth of a second, so only the first call does. */
export function realNative(): Promise<Native> {
  native ??= addonFolder().then(loadNative)
  return native
}

/** Runs `script` in a separate Node process, in which `native` is the addon. Resolves with its output. */
export async function withNativeInOtherProcess(script: string): Promise<string> {
  const path = JSON.stringify(join(await addonFolder(), 'addon.node'))
  const load = `const holder = { exports: {} }; process.dlopen(holder, ${path}); const native = holder.exports;`
  const { stdout } = await promisify(execFile)(process.execPath, ['-e', load + script], { timeout: 20_000 })
  return stdout
}
