import { chownSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { silentLogger } from '../../../src/base/log.ts'
import { registerMachine } from '../../../src/client/machines/register.ts'
import { checkUnused, UIDS, uidClaims } from '../../../src/host/instance/machine/uids.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

describe('the user of an instance', () => {
  let folder: string
  let stateFolders: string[]

  beforeEach(() => {
    folder = temporaryFolder()
    stateFolders = ['one', 'other'].map((name) => join(folder, name))
    for (const path of stateFolders) mkdirSync(join(path, 'instances'), { recursive: true })
  })

  const open = (index: number, kept: readonly number[] = []) => {
    const claims = { folder: join(folder, 'run/claims'), log: silentLogger() }
    const stateFolder = stateFolders[index] ?? ''
    const uids = uidClaims({ ...claims, stateFolder, range: { first: 1000, count: 4 } })
    uids.keep(kept)
    return uids
  }
  const claimed = () => readdirSync(join(folder, 'run/claims')).map(Number).toSorted()

  it('is of no other daemon of the host', () => {
    const [one, other] = [open(0), open(1)]
    const uids = [one.claim(), other.claim(), one.claim(), other.claim()]
    expect(uids.toSorted()).toEqual([1000, 1001, 1002, 1003])
    expect(() => other.claim()).toThrow('uids: all 4 are used, want more in the configuration')
    one.release(uids[1] ?? 0)
    expect(() => other.claim()).toThrow('uids: all 4 are used')
    other.release(uids[1] ?? 0)
    expect(one.claim()).toBe(uids[1])
  })

  it('stays its own over a death of the daemon, and over a boot of the host', () => {
    const uid = open(0).claim()
    open(0, [uid])
    expect(claimed()).toEqual([uid])
    rmSync(join(folder, 'run/claims'), { recursive: true })
    open(0, [uid])
    expect(claimed()).toEqual([uid])
  })

  it('is free again when a daemon has died before it was recorded, and when a state folder is gone', () => {
    open(0).claim()
    open(0)
    expect(claimed()).toEqual([])
    open(0).claim()
    rmSync(stateFolders[0] ?? '', { recursive: true })
    open(1)
    expect(claimed()).toEqual([])
  })

  it('is claimed in a folder of which runs have another part', () => {
    open(0).claim()
    expect(() => registerMachine(join(folder, 'run'), 'web').remove()).not.toThrow()
  })

  it.runIf(process.getuid?.() === 0)('is taken by a folder whose record cannot be read', () => {
    const unreadable = join(stateFolders[0] ?? '', 'instances/unreadable')
    mkdirSync(unreadable)
    chownSync(unreadable, 0, 1002)
    const uids = open(0)
    expect([uids.claim(), uids.claim(), uids.claim()].toSorted()).toEqual([1000, 1001, 1003])
  })

  it('is another one than the last', () => {
    const claims = { folder: join(folder, 'run/claims'), log: silentLogger() }
    const uids = uidClaims({
      ...claims,
      stateFolder: stateFolders[0] ?? '',
      range: { first: 1, count: 2 ** 31 },
    })
    uids.keep([])
    const first = uids.claim()
    uids.release(first)
    expect(uids.claim()).not.toBe(first)
  })
})

describe('the users of instances', () => {
  it.each([
    ['passwd', 'root:x:0:0::/:/bin/sh\nanne:x:1000:1000::/:/bin/sh\n', '1000 to anne'],
    ['group', 'none:x:\nstaff:x:1009:anne\n', '1009 to staff'],
    ['subuid', 'anne:100000:65536\nbert:500:501\n', '500 to bert'],
    ['subgid', 'bert:1009:65536\n', '1009 to bert'],
  ])('may not be those of %s', async (file, text, owner) => {
    const folder = temporaryFolder()
    writeFileSync(join(folder, file), text)
    await expect(checkUnused({ first: 1000, count: 10 }, folder)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `uids: ${folder}/${file} gives ${owner}, want a range that nothing else has`,
    })
    for (const range of [
      { first: 1, count: 499 },
      { first: 80_000, count: 10 },
    ])
      await checkUnused(range, folder)
  })

  it('are by default of nothing else on this host', async () => {
    await expect(checkUnused(UIDS)).resolves.toBe(undefined)
  })
})
