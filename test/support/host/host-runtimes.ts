import { copyFileSync } from 'node:fs'
import { join } from 'node:path'
import { cached } from '../../../src/build/cache.ts'
import { tool } from '../../../src/build/tool.ts'
import { userlandFolder } from '../../../src/image/userland.ts'

const IN_IMAGE = { runc: 'usr/sbin/runc', crun: 'usr/bin/crun' } as const

/**
 * A copy of the image's runc or crun whose header names the image's loader and libraries: the C library of this machine may
 * be older, and both programs execute themselves again.
 */
export async function hostRuntime(name: keyof typeof IN_IMAGE): Promise<string> {
  const userland = await userlandFolder((line) => process.stderr.write(`${line}\n`))
  const libraries = join(userland, 'usr/lib/x86_64-linux-gnu')
  const loader = join(libraries, 'ld-linux-x86-64.so.2')
  const folder = await cached('host-runtimes', { values: [userland] }, async (target) => {
    for (const [runtime, path] of Object.entries(IN_IMAGE)) {
      const copy = join(target, runtime)
      copyFileSync(join(userland, path), copy)
      const header = ['--set-interpreter', loader, '--force-rpath', '--set-rpath', libraries]
      await tool('patchelf', [...header, copy], { debianPackage: 'patchelf' })
    }
  })
  return join(folder, name)
}

export function isOfImage(runtime: string): runtime is keyof typeof IN_IMAGE {
  return runtime in IN_IMAGE
}
