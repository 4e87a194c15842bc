import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { cached } from '../../../../src/build/cache.ts'

/** Compiles NAME.c of this folder into a static program that runs in any container, and returns its bytes. */
export async function guestProgram(name: string): Promise<Buffer> {
  const source = join(import.meta.dirname, `${name}.c`)
  const folder = await cached(`guest-program-${name}`, { files: [source] }, async (target) => {
    const flags = ['-std=gnu11', '-O2', '-Wall', '-Wextra', '-Werror', '-static']
    execFileSync('cc', [...flags, '-o', join(target, name), source])
  })
  return readFileSync(join(folder, name))
}
