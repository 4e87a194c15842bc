import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { cached } from '../../../src/build/cache.ts'
import { nativeSources, SANITIZER_FLAGS } from '../../../src/build/native.ts'
import { projectRoot } from '../../../src/build/project.ts'

const nativeRoot = join(projectRoot, 'native')
const vminitSources = nativeSources('init').map((name) => join(projectRoot, name))

const holderSources = nativeSources('holder').map((name) => join(projectRoot, name))

const SMALL_RING = 1024

/** vminit is static, but the sanitizers are not, so the test builds are dynamic. */
const SANITIZED_VMINIT = [...SANITIZER_FLAGS, `-DRING_CAPACITY=${SMALL_RING}`, '-DBROKER_HANG_MS=3000']

/** vminit under ASan and UBSan, with a ring that a test can overflow and a limit of 3 s for a hung broker. */
export function buildSanitizedVminit(): Promise<string> {
  return compile('test-sanitized-vminit', vminitSources, SANITIZED_VMINIT)
}

/** The same, with a limit of 0.5 s for an agent's HELLO. */
export function buildHastyVminit(): Promise<string> {
  return compile('test-hasty-vminit', vminitSources, [...SANITIZED_VMINIT, '-DHELLO_MS=500'])
}

/** As `buildSanitizedVminit`, with kernel answers that FULL_EPOLL and PEER_CID of its environment choose. */
export function buildVminitOnOtherKernel(): Promise<string> {
  const flags = [...SANITIZED_VMINIT, '-Wl,--wrap=epoll_ctl,--wrap=accept4,--wrap=getsockopt']
  return compile('test-other-kernel', [...vminitSources, join(import.meta.dirname, 'other-kernel.c')], flags)
}

/** The holder under ASan and UBSan. */
export function buildSanitizedHolder(): Promise<string> {
  return compile('test-sanitized-holder', holderSources, SANITIZER_FLAGS)
}

/** The holder that dies in the middle of a write to a ring. */
export function buildDyingHolder(): Promise<string> {
  const source = join(projectRoot, 'test/support/host/dying-holder.c')
  return compile('test-dying-holder', [...holderSources, source], ['-Wl,--wrap=pwrite'])
}

/** The parts of the relay that an output which resumes needs, in the cases of kept-steps.c. */
export function buildKeptSteps(): Promise<string> {
  const parts = ['kept', 'stream', 'tail'].map((name) => join(nativeRoot, 'addon/relay', `${name}.c`))
  const source = join(projectRoot, 'test/support/os/kept-steps.c')
  const flags = [...SANITIZER_FLAGS, `-I${nativeRoot}`, '-Wl,--wrap=splice']
  return compile('test-kept-steps', [...parts, source], flags)
}

export function buildParts(): Promise<string> {
  const parts = vminitSources.filter((source) => !source.endsWith('/main.c'))
  return compile('test-parts', [...parts, join(import.meta.dirname, 'parts.c')], SANITIZED_VMINIT)
}

export function buildDescriptorPasser(): Promise<string> {
  return compile('test-pass-descriptors', [join(import.meta.dirname, 'pass-descriptors.c')], [])
}

export function buildDescriptorStorer(): Promise<string> {
  const sources = [join(import.meta.dirname, 'store-descriptors.c'), join(nativeRoot, 'process/message.c')]
  return compile('test-store-descriptors', sources, [])
}

export function buildChannelDisturber(): Promise<string> {
  return compile('test-disturb-channel', [join(import.meta.dirname, 'disturb-channel.c')], [])
}

export function buildExitFlooder(): Promise<string> {
  return compile('test-flood-exits', [join(import.meta.dirname, 'flood-exits.c')], [])
}

async function compile(name: string, sources: readonly string[], flags: readonly string[]): Promise<string> {
  const all = ['-std=c11', '-O2', '-Wall', '-Wextra', '-Werror', `-I${join(nativeRoot, 'init')}`, ...flags]
  const folder = await cached(name, { files: [nativeRoot, ...sources], values: all }, async (target) => {
    await promisify(execFile)('cc', [...all, '-o', join(target, name), ...sources])
  })
  return join(folder, name)
}
