import { execFileSync } from 'node:child_process'
import { copyFileSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { checkPrograms } from '../../../src/image/check-runtimes.ts'
import { LIBRARIES } from '../../../src/image/libraries.ts'
import { userlandFolder } from '../../../src/image/userland.ts'
import { bookwormRunc } from '../../support/host/bookworm-runc.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const NOVEMBER_2025 = 'CVE-2025-31133, CVE-2025-52565, CVE-2025-52881'

describe('the check of the OCI runtimes in a root', () => {
  let userland: string
  beforeAll(async () => {
    userland = await userlandFolder((line) => process.stderr.write(`${line}\n`))
  }, 600_000)

  function rootWith(path: string, program: string): string {
    const root = temporaryFolder()
    mkdirSync(join(root, dirname(path)), { recursive: true })
    copyFileSync(program, join(root, path))
    mkdirSync(dirname(join(root, LIBRARIES)), { recursive: true })
    symlinkSync(join(userland, LIBRARIES), join(root, LIBRARIES))
    return root
  }

  /** Stands for a statically linked program, as runc's authors publish it. */
  function staticRunc(words: string): string {
    const source = join(temporaryFolder(), 'runc.c')
    writeFileSync(source, `#include <stdio.h>\nint main(void) { puts("${words}"); }\n`)
    execFileSync('gcc', ['-static', '-o', `${source}.out`, source])
    return `${source}.out`
  }

  it("takes the image's own, and a root without any", async () => {
    for (const root of [userland, temporaryFolder()]) {
      await expect(checkPrograms(root, [])).resolves.toBeUndefined()
    }
  })

  it("refuses Debian 12's runc, and takes one that was taken with a warning", async () => {
    const root = rootWith('usr/sbin/runc', await bookwormRunc())
    await expect(checkPrograms(root, [])).rejects.toThrow(
      `usr/sbin/runc: runc 1.1.5+ds1-1+deb12u1: containers can break out of it by ${NOVEMBER_2025}, want 1.2.8, 1.3.3, 1.4.0-rc.3 or later`,
    )
    await checkPrograms(root, [{ name: 'runc', version: '1.1.15+ds1-2+b4', suite: 'trixie' }])
  })

  it('refuses one that is linked statically, wherever it is', async () => {
    const open = rootWith('usr/local/sbin/runc', staticRunc('runc version 1.1.11'))
    await expect(checkPrograms(open, [])).rejects.toThrow('usr/local/sbin/runc: runc 1.1.11: containers can')
    await checkPrograms(rootWith('usr/local/sbin/runc', staticRunc('runc version 1.3.6')), [])
  })

  it('refuses one that does not print its version', async () => {
    const mute = rootWith('usr/bin/crun', staticRunc('hello'))
    await expect(checkPrograms(mute, [])).rejects.toThrow('runtime version "": want MAJOR.MINOR.PATCH')
    const broken = join(temporaryFolder(), 'runc')
    writeFileSync(broken, 'no program', { mode: 0o755 })
    await expect(checkPrograms(rootWith('usr/sbin/runc', broken), [])).rejects.toThrow(
      'usr/sbin/runc: tells no version: ',
    )
  })
})
