import { existsSync, mkdirSync, rmdirSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { linuxScratchFiles } from '../../../src/os/files/scratch-files.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { realNative } from '../../support/os/real-native.ts'

const ROOTS = ['/sys/fs/cgroup', '/sys/fs/cgroup/unified', '/sys/fs/cgroup/freezer'].filter(
  (path) => existsSync(`${path}/cgroup.procs`) || existsSync(`${path}/cgroup.controllers`),
)

describe.each([...ROOTS, 'the fake'])('the links of a cgroup in %s', (root) => {
  it('are two, and one for each cgroup in it', async () => {
    const os = new FakeOs()
    const isFake = root === 'the fake'
    const files = isFake ? os.files : linuxScratchFiles(await realNative())
    const folder = isFake ? '/cgroup' : `${root}/cgroup-links-test`
    const make = (path: string) => (isFake ? os.files.makeDirectories(path) : mkdirSync(path))
    const links = async () => (await files.stat(folder))?.links
    const paths = [folder, `${folder}/a`, `${folder}/b`, `${folder}/b/c`]
    const counts: unknown[] = []
    try {
      for (const path of paths) {
        await make(path)
        counts.push(await links())
      }
    } finally {
      if (!isFake) for (const path of paths.toReversed()) if (existsSync(path)) rmdirSync(path)
    }
    expect(counts).toEqual([2, 3, 4, 4])
  })
})
