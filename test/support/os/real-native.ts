import { execFile } from 'node:child_process'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { buildAddon } from '../../../src/build/native.ts'
import { loadNative, type Native } from '../../../src/os/native.ts'

/** The environment variable with the folder of another build of the addon. */
export const ADDON_FOLDER = 'TEST_ADDON_FOLDER'

export async function addonFolder(): Promise<string> {
  return process.env[ADDON_FOLDER] ?? dirname(await buildAddon())
}

let native: Promise<Native> | undefined

/** Builds the addon when needed. Only the first call checks this, because it takes 0.1 s. */
export function realNative(): Promise<Native> {
  native ??= addonFolder().then(loadNative)
  return native
}

export async function withNativeInOtherProcess(script: string): Promise<string> {
  const path = JSON.stringify(join(await addonFolder(), 'addon.node'))
  const load = `const holder = { exports: {} }; process.dlopen(holder, ${path}); const native = holder.exports;`
  const { stdout } = await promisify(execFile)(process.execPath, ['-e', load + script], { timeout: 20_000 })
  return stdout
}
