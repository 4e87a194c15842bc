import { execFile } from 'node:child_process'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { cached } from '../../../src/build/cache.ts'
import { nativeSources } from '../../../src/build/native.ts'
import { projectRoot } from '../../../src/build/project.ts'

const initRoot = join(projectRoot, 'native/init')
const vminitSources = nativeSources('init').map((name) => join(projectRoot, name))

/** The capacity of the smallest ring that vminit can be built with. */
export const SMALL_RING = 1024

/** vminit with a ring that a test can overflow. */
export function buildSmallRing(): Promise<string> {
  return compile('test-small-ring', vminitSources, [`-DRING_CAPACITY=${SMALL_RING}`])
}

/** A program that calls single functions of vminit. */
export function buildParts(): Promise<string> {
  const parts = vminitSources.filter((source) => !source.endsWith('/main.c'))
  return compile('test-parts', [...parts, join(import.meta.dirname, 'parts.c')], [])
}

/** An agent that passes descriptors to vminit. */
export function buildDescriptorPasser(): Promise<string> {
  return compile('test-pass-descriptors', [join(import.meta.dirname, 'pass-descriptors.c')], [])
}

async function compile(name: string, sources: readonly string[], flags: readonly string[]): Promise<string> {
  const all = ['-std=c11', '-O2', '-Wall', '-Wextra', '-Werror', `-I${initRoot}`, ...flags]
  const folder = await cached(
    name,
    { files: [dirname(initRoot), ...sources], values: all },
    async (target) => {
      await promisify(execFile)('cc', [...all, '-o', join(target, name), ...sources])
    },
  )
  return join(folder, name)
}
