import { chmod, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { askedQemu } from '../../../src/host/qemu/capabilities.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

/** Only looks at the program. */
const NO_TYPES = [] as const

describe('a QEMU that is looked for', () => {
  it('is found after several calls at once have missed it', async () => {
    const program = join(temporaryFolder(), 'qemu')
    const qemu = askedQemu(program, 'tcg')
    const looks = [1, 2, 3].map(() => qemu.propertiesOf(NO_TYPES))
    for (const look of looks) await expect(look).rejects.toThrow('no such program')
    await writeFile(program, '')
    expect(await qemu.propertiesOf(NO_TYPES)).toEqual([])
  })

  it('is taken as another one after one that could not be read', async () => {
    const program = join(temporaryFolder(), 'qemu')
    const qemu = askedQemu(program, 'tcg')
    await writeFile(program, '')
    // Node reads no file of more than 2 GiB.
    for (const bytes of [2 ** 32, 2 ** 33, 1]) {
      await truncate(program, bytes)
      expect(await qemu.propertiesOf(NO_TYPES)).toEqual([])
    }
  })
})

describe('a QEMU that answers', () => {
  it('gives those CPU models whole of which this host lacks no feature', async () => {
    const program = join(temporaryFolder(), 'qemu')
    const models = [
      { name: 'old', 'unavailable-features': [] },
      { name: 'new', 'unavailable-features': ['avx512f'] },
      { name: 'unknown' },
    ]
    const version = { qemu: { major: 7, minor: 2, micro: 22 }, package: '' }
    const answers = [{}, version, [], models, [], { model: { props: {} } }]
    const lines = answers.map((answer) => JSON.stringify({ return: answer })).join('\n')
    await writeFile(program, `#!/bin/sh\ncat <<'END'\n${lines}\nEND\ncat >/dev/null\n`)
    await chmod(program, 0o755)
    const { cpuModels, wholeCpuModels } = await askedQemu(program, 'tcg').capabilities()
    expect(cpuModels).toEqual(['old', 'new', 'unknown'])
    expect(wholeCpuModels).toEqual(['old'])
  })
})
